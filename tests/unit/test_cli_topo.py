from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from fabricio.cli.app import app
from fabricio.hardware import Core, Machine, Nic, NumaNode, PciAddress, PciObject
from fabricio.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch) -> Callable[[Topology], list[str]]:
    """Run the command on a topology; the lines that it prints."""

    def run(topology: Topology) -> list[str]:
        monkeypatch.setattr(Topology, "discover", lambda provider, xml: topology)
        result = CliRunner().invoke(app, ["topo"])
        assert result.exit_code == 0, result.output
        return [line.strip("│├└─ ") for line in result.stdout.splitlines()]

    return run


def machine(nodes: int = 1, *, pcis: tuple[PciObject, ...] = ()) -> Machine:
    return Machine(
        tuple(NumaNode(n, n << 30, 2) for n in range(1, nodes + 1)),
        tuple(Core(n, 1) for n in (0, 1, 2, 5)),
        pcis,
    )


def test_p5(show: Callable[[Topology], list[str]], p5: Topology) -> None:
    lines = show(p5)
    assert lines[0] == ("this machine: 2 NUMA nodes, 96 usable cores, 8 GPUs, 32 NICs of efa")
    assert lines[1:8] == [
        "group 0: NUMA node 0, 1024.0 GiB",
        "GPU 0 at 0000:53:00.0 (10de:2330, 63 GB/s)",
        "NIC rdmap79s0-rdm at 0000:4f:00.0 100 Gbit/s",
        "NIC rdmap80s0-rdm at 0000:50:00.0 100 Gbit/s",
        "NIC rdmap81s0-rdm at 0000:51:00.0 100 Gbit/s",
        "NIC rdmap82s0-rdm at 0000:52:00.0 100 Gbit/s",
        "CPUs 0-11, one of each core; worker on CPU 11",
    ]
    assert len(lines) == 1 + 8 * 7


def test_nothing_special_is_said_plainly(show: Callable[[Topology], list[str]]) -> None:
    nics = (Nic("eth0", "tcp", addresses=("10.0.0.7",)), Nic("lo", "tcp", addresses=("::1",)))
    lines = show(Topology.from_records(machine(), nics))
    assert lines[1:5] == [
        "group 0: NUMA node 1, 1.0 GiB",
        "NIC eth0 10.0.0.7",
        "NIC lo ::1 (this host only)",
        "CPUs 0-2,5, one of each core; worker on CPU 5",
    ]
    assert lines[5].startswith("Nothing special here: no GPU,")


def test_odd_things_are_said(show: Callable[[Topology], list[str]]) -> None:
    place = PciAddress(0, 1, 0, 0)
    pcis = (
        PciObject("device", PciAddress(0, 9, 0, 0), 2, None, 0x0302, 0x10DE, 0x2330),
        PciObject("device", place, 1, None, 0x0200),
    )
    nics = (Nic("efa[0]", "efa", place), Nic("efa1", "efa", PciAddress(0, 2, 0, 0), up=False))
    odd = machine(2, pcis=pcis)
    odd = replace(odd, nodes=(odd.nodes[0], replace(odd.nodes[1], memory_bytes=0)), cores=())
    lines = show(Topology.from_records(odd, nics))
    assert "NIC efa[0] at 0000:01:00.0" in lines
    assert "no CPU of this node may be used" in lines
    assert lines[lines.index("down: in no group") + 1] == "NIC efa1 at 0000:02:00.0"
    assert "Group 0 holds a GPU of another NUMA node, which has no NIC near." in lines
    assert "0 cores for 1 worker: workers would not be pinned." in lines


def test_several_nodes_without_places(show: Callable[[Topology], list[str]]) -> None:
    lines = show(Topology.from_records(machine(2), (Nic("shm", "shm"),)))
    assert "group 0: any NUMA node" in lines
    assert lines[-1].startswith("The provider does not say where its NICs are")


def test_a_node_without_memory(show: Callable[[Topology], list[str]]) -> None:
    nodes = (NumaNode(0, 0, 4),)
    lines = show(Topology.from_records(replace(machine(), nodes=nodes), (Nic("shm", "shm"),)))
    assert "group 0: NUMA node 0, without memory" in lines


def test_export_and_import(tmp_path: Path) -> None:
    file = tmp_path / "here.xml"
    result = CliRunner().invoke(app, ["topo", "--provider", "tcp", "--xml", str(file)])
    assert result.exit_code == 0, result.output
    assert "<topology" in file.read_text("utf-8")
    result = CliRunner().invoke(app, ["topo", "--from-xml", str(file)])
    assert result.exit_code == 0, result.output
    assert "of tcp" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--from-xml", "/nonexistent.xml"], "No such file"),
        (["--xml", "/nonexistent/x.xml"], "No such file"),
        (["--provider", "nonsense"], "provider 'nonsense' offers no NIC"),
    ],
)
def test_failures_are_on_stderr(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["topo", *arguments])
    assert result.exit_code == 1
    assert result.stderr.startswith("fabricio topo: ")
    assert words in result.stderr
    assert result.stdout == ""
