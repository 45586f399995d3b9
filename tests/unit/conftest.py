"""What unit tests share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fabricio.hardware import Nic, PciAddress
from fabricio.topology import Topology

_DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="session")
def p5_xml() -> Path:
    """An AWS p5.48xlarge as hwloc sees it; tests/data/make_p5.py writes it."""
    return _DATA / "p5.xml"


@pytest.fixture(scope="session")
def p5(p5_xml: Path) -> Topology:
    """The same with its NICs."""
    rows = json.loads((_DATA / "p5_nics.json").read_text("utf-8"))
    nics = tuple(
        Nic(row["domain"], "efa", PciAddress.parse(row["pci"]), bits_per_s=row["bits_per_s"])
        for row in rows
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fabricio.topology.list_nics", lambda provider: nics)
        return Topology.discover(xml=p5_xml)
