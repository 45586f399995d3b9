"""Damaged files are refused before hwloc sees them; others keep what is used of them."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

import pytest

from fabricio.errors import OptionsError
from fabricio.hardware import Nic
from fabricio.hwloc_xml import MAX_BYTES, sanitize
from fabricio.topology import Topology

if TYPE_CHECKING:
    from pathlib import Path


def sets(cpus: str, nodes: str) -> str:
    return f'cpuset="{cpus}" complete_cpuset="{cpus}" nodeset="{nodes}" complete_nodeset="{nodes}"'


# The second core comes first, in a cache; as lstopo would not write it.
SMALL = f"""<?xml version="1.0"?>
<topology version="2.0">
  <object type="Machine" {sets("0xf", "0x3")}>
    <info name="note" value="a &lt;&amp;&quot;&#10;"/>
    <object type="L3Cache" {sets("0xc", "0x2")} cache_size="oops">
      <object type="MemCache" {sets("0xc", "0x2")} cache_size="1">
        <object type="NUMANode" os_index="1" {sets("0xc", "0x2")} local_memory="4096"/>
      </object>
      <object type="Core" {sets("0xc", "0x2")}>
        <object type="PU" os_index="3" {sets("0x8", "0x2")}/>
        <object type="PU" os_index="2" {sets("0x4", "0x2")}/>
      </object>
      <object type="Bridge" bridge_type="0-1" bridge_pci="0000:[00-01]" depth="0">
        <object type="Bridge" bridge_type="1-1" bridge_pci="0000:[01-01]" depth="1"
                pci_busid="0000:00:01.0" pci_type="0604 [8086:0001] [0000:0000] 00">
          <object type="PCIDev" pci_busid="0000:01:00.0" pci_link_speed="nan"
                  pci_type="0200 [8086:0002] [0000:0000] 00">
            <object type="OSDev" name="eth0" osdev_type="2"/>
          </object>
        </object>
      </object>
    </object>
    <object type="Core" {sets("0x3", "0x1")}>
      <object type="NUMANode" os_index="0" {sets("0x3", "0x1")} local_memory="4096"/>
      <object type="PU" os_index="0" {sets("0x1", "0x1")}/>
      <object type="PU" os_index="1" {sets("0x2", "0x1")}/>
    </object>
    <object type="Misc" name="lost"/>
  </object>
  <distances2 nbobjs="1000000"/>
</topology>
"""


def discover(path: Path, text: str) -> Topology:
    path.write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fabricio.topology.list_nics", lambda provider: (Nic("lo", "tcp"),))
        return Topology.discover(xml=path)


def test_what_is_used_is_kept(tmp_path: Path) -> None:
    machine = discover(tmp_path / "small.xml", SMALL).machine
    assert [(node.index, node.memory_bytes, node.cpu_count) for node in machine.nodes] == [
        (0, 4096, 2),
        (1, 4096, 2),
    ]
    assert [(core.cpu, core.node) for core in machine.cores] == [(0, 0), (2, 1)]
    assert [(pci.kind, pci.node, str(pci.address)) for pci in machine.pcis] == [
        ("host", 1, "None"),
        ("bridge", 1, "0000:00:01.0"),
        ("device", 1, "0000:01:00.0"),
    ]
    assert not machine.is_local


def test_what_is_written_is_taken_again_and_stays_the_same() -> None:
    once = sanitize(SMALL.encode())
    assert sanitize(once) == once
    assert b'value="a &lt;&amp;&quot;&#10;"' in once
    assert b"distances2" not in once


def test_only_the_allowed_cores_are_used(tmp_path: Path) -> None:
    allowed = SMALL.replace(
        '"Machine" ', '"Machine" allowed_cpuset="0x8" allowed_nodeset="0x2" ', 1
    )
    machine = discover(tmp_path / "allowed.xml", allowed).machine
    assert [(core.cpu, core.node) for core in machine.cores] == [(3, 1)]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("<topology", "<machine", "no XML"),
        ('version="2.0"', 'version="3.0"', "version 3.0: export it with hwloc 2.x"),
        ('topology version="2.0"', "topology", "version 1"),
        ('"Machine"', '"Package"', "does not hold one Machine"),
        (' cpuset="0xf"', "", "a Machine has no cpuset"),
        ('"Core" cpuset="0xc" complete_cpuset="0xc"', '"Core" cpuset="0xc"', "no complete_cpuset"),
        ('"Core" cpuset="0xc"', '"Core" cpuset="0xf...f"', "is not possible"),
        (' cpuset="0xf"', f' cpuset="{"0x1," * 5000}"', "is not possible"),
        (' cpuset="0xf" complete_cpuset="0xf"', ' cpuset="0x7" complete_cpuset="0x7"', "beyond"),
        (' cpuset="0xf"', ' cpuset="0x1f"', "beyond its complete_cpuset"),
        ('os_index="3"', "", "a PU has no os_index"),
        ('os_index="3"', 'os_index="2"', "not its number"),
        ('os_index="3"', 'os_index="4294967295"', "above 65535"),
        ('os_index="3"', 'os_index="99999999999999999999"', "is not possible"),
        ('"OSDev"', '"Toaster"', "unknown"),
        ('"PCIDev"', '"PU"', "a PU in a Bridge"),
        ('"L3Cache"', '"PU"', "a PU has no os_index"),
        (' depth="1"', "", "a Bridge has no depth"),
        ('"MemCache"', '"Package"', "a CPU is in two objects of one Group"),
        ('pci_busid="0000:00:01.0"', "", "no pci_busid"),
        ('pci_busid="0000:01:00.0"', 'pci_busid="elsewhere"', "pci_busid='elsewhere'"),
    ],
)
def test_a_file_that_does_not_hold_together_is_refused(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    assert old in SMALL
    with pytest.raises(OptionsError, match=rf"bad\.xml is no topology.*{words}.*Export one"):
        discover(tmp_path / "bad.xml", SMALL.replace(old, new, 1))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no XML"),
        (b"\0" * 100, "no XML"),
        (b"<html/>", "holds <html>, not <topology>"),
        (b'<!DOCTYPE t [<!ENTITY a "b">]><topology/>', "entities"),
        (b'<topology version="2.0"/>', "one Machine"),
        (b" " * (MAX_BYTES + 1), "more than"),
        (b'<?xml version="1.0" encoding="klingon"?><topology/>', "no XML"),
    ],
)
def test_no_topology(data: bytes, words: str) -> None:
    with pytest.raises(OptionsError, match=words):
        sanitize(data)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match=r"cannot be read: .*No such file"):
        Topology.discover(xml=tmp_path / "none.xml")


def test_depth_and_number_are_bounded() -> None:
    deep = '<object type="Group">' * 500 + "</object>" * 500
    with pytest.raises(OptionsError, match="deeper"):
        sanitize(SMALL.replace('<object type="Misc" name="lost"/>', deep).encode())


def test_damage_is_refused_or_harmless(tmp_path: Path) -> None:
    """What passes is given to hwloc, which would crash the test."""
    source = random.Random(1)
    passed = 0
    for _ in range(400):
        text = SMALL
        for _ in range(source.randint(1, 3)):
            values = list(re.finditer(r'\w+="([^"]*)"', text))
            one, other = source.choice(values), source.choice(values)
            if source.random() < 0.3:
                text = text[: one.start()] + text[one.end() :]
            else:
                text = text[: one.start(1)] + other[1] + text[one.end(1) :]
        try:
            discover(tmp_path / "damaged.xml", text)
        except OptionsError:
            continue
        passed += 1
    assert 0 < passed < 400
