"""Discovery on this machine, from files, and of NICs."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from fabricio import nics as module
from fabricio._ffi import native
from fabricio.errors import FabricError, NoProviderError, OptionsError
from fabricio.hardware import Machine, PciAddress
from fabricio.nics import default_routes, list_nics
from fabricio.topology import Topology

if TYPE_CHECKING:
    from pathlib import Path

    from fabricio._ffi._native import Array, FabNic, Pointer


def row(domain: bytes, source: bytes = b"", **fields: int) -> dict[str, object]:
    return {"provider": b"efa", "domain": domain, "source": source, "usable": 1, **fields}


@pytest.fixture
def offers(monkeypatch: pytest.MonkeyPatch) -> dict[bytes, list[dict[str, object]] | int]:
    """Provider -> its rows or its return code, in the place of libfabric."""
    ffi, _ = native()
    answers: dict[bytes, list[dict[str, object]] | int] = {}

    def fab_nic_list(
        provider: bytes, rows: Array[FabNic], capacity: int, count: Pointer[int]
    ) -> int:
        answer = answers.get(provider, [])
        if isinstance(answer, int):
            return answer
        count[0] = len(answer)
        for i, fields in enumerate(answer[:capacity]):
            for name, value in fields.items():
                setattr(rows[i], name, value)
        return 0

    monkeypatch.setattr(module, "native", lambda: (ffi, SimpleNamespace(fab_nic_list=fab_nic_list)))
    monkeypatch.delenv("FABRICIO_PROVIDER", raising=False)
    return answers


Offers = dict[bytes, list[dict[str, object]] | int]


def test_rows_of_one_nic_become_one(offers: Offers) -> None:
    place = {"is_pci": 1, "pci_bus": 0x4F, "bits_per_s": 10**11}
    offers[b"efa"] = [
        row(b"nic0", b"10.0.0.1", **place),
        row(b"nic1", is_down=1),
        row(b"nic0", b"fe80::1"),
        row(b"nic2", usable=0),
    ]
    first, second = list_nics()
    assert (first.domain, first.pci, first.bits_per_s) == ("nic0", PciAddress(0, 79, 0, 0), 10**11)
    assert first.addresses == ("10.0.0.1", "fe80::1")
    assert first.up
    assert not second.up


def test_many_rows(offers: Offers) -> None:
    offers[b"efa"] = [row(b"nic%d" % i) for i in range(1000)]
    assert len(list_nics("efa")) == 1000


def test_the_first_provider_that_offers_any(
    offers: Offers, monkeypatch: pytest.MonkeyPatch
) -> None:
    offers[b"efa"] = -38
    offers[b"verbs"] = [row(b"mlx5_0", usable=0)]
    offers[b"tcp;ofi_rxm"] = [row(b"eth0")]
    assert [nic.domain for nic in list_nics()] == ["eth0"]
    assert [nic.domain for nic in list_nics("tcp")] == ["eth0"]
    monkeypatch.setenv("FABRICIO_PROVIDER", "shm")
    with pytest.raises(NoProviderError, match="provider 'shm' offers no NIC"):
        list_nics()


def test_no_provider(offers: Offers) -> None:
    with pytest.raises(NoProviderError, match="none of efa, verbs, tcp offers a NIC"):
        list_nics()
    offers[b"efa"] = -12
    with pytest.raises(FabricError, match="FI_ENOMEM"):
        list_nics("efa")


def test_this_machine(tmp_path: Path) -> None:
    here = Topology.discover("tcp")
    assert here.machine.is_local
    assert {core.cpu for core in here.cores} <= os.sched_getaffinity(0)
    assert here.groups
    assert any("127.0.0.1" in nic.addresses for nic in here.nics)
    here.to_xml(tmp_path / "here.xml")
    again = Topology.discover(xml=tmp_path / "here.xml")
    assert not again.machine.is_local
    assert (again.nics, again.gpus) == (here.nics, here.gpus)
    with pytest.raises(NoProviderError, match="no NIC of provider 'efa', only of tcp"):
        Topology.discover("efa", xml=tmp_path / "here.xml")


def test_the_mask_of_this_process_is_respected() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {max(before)})
        (core,) = Topology.discover("tcp").cores
    finally:
        os.sched_setaffinity(0, before)
    assert core.cpu == max(before)


def test_p5_survives_its_own_export(p5: Topology, tmp_path: Path) -> None:
    p5.to_xml(tmp_path / "p5.xml")
    again = Topology.discover("efa", xml=tmp_path / "p5.xml")
    assert again.groups == p5.groups
    assert again.machine == p5.machine


SANE = {
    "domain": "a",
    "provider": "b",
    "pci": None,
    "bits_per_s": 0,
    "up": True,
    "addresses": ["::1"],
}


@pytest.mark.parametrize(
    "note",
    [
        "nonsense",
        "[]",
        "{}",
        "[" * 100000,
        *(
            json.dumps(SANE | wrong)
            for wrong in (
                {"domain": 1},
                {"domain": ""},
                {"provider": None},
                {"pci": "x"},
                {"pci": 7},
                {"bits_per_s": -1},
                {"bits_per_s": "1"},
                {"up": 1},
                {"addresses": ["x"]},
                {"addresses": None},
            )
        ),
    ],
)
def test_a_bad_note_is_refused(p5_xml: Path, tmp_path: Path, note: str) -> None:
    with pytest.raises(OptionsError, match="a note on a NIC that cannot be read"):
        discover_with_note(p5_xml, tmp_path, note)


def test_a_good_note_is_taken(p5_xml: Path, tmp_path: Path) -> None:
    (nic,) = discover_with_note(p5_xml, tmp_path, json.dumps(SANE)).nics
    assert (nic.domain, nic.addresses) == ("a", ("::1",))


def discover_with_note(p5_xml: Path, tmp_path: Path, note: str) -> Topology:
    text = p5_xml.read_text("utf-8")
    at = text.index('<object type="Package"')
    value = note.replace('"', "&quot;")
    noted = tmp_path / "noted.xml"
    noted.write_text(f'{text[:at]}<info name="fabricio" value="{value}"/>{text[at:]}', "utf-8")
    return Topology.discover(xml=noted)


def test_notes_are_json_lines(p5: Topology) -> None:
    assert p5.xml.count('<info name="fabricio"') == 32
    assert json.loads(module.nic_to_note(p5.nics[0]))["pci"] == "0000:4f:00.0"


def test_records_have_no_xml(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="made from records"):
        Topology.from_records(Machine((), ()), ()).to_xml(tmp_path / "x.xml")


def test_the_way_to_other_networks(tmp_path: Path) -> None:
    table = tmp_path / "route"
    table.write_text(
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        "docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
        "ens5\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
        "short\n"
    )
    assert default_routes(table) == {"ens5"}
    assert default_routes(tmp_path / "missing") == set()


def test_the_interface_of_the_default_route_comes_first(
    offers: Offers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "default_routes", lambda: {"ens5"})
    offers[b"tcp"] = [row(b"docker0", b"172.17.0.1"), row(b"ens5", b"10.0.0.7"), row(b"lo")]
    assert [nic.domain for nic in list_nics("tcp")] == ["ens5", "docker0", "lo"]
