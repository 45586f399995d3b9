"""Two hosts made of network namespaces, with several links: pages arrive over all of them."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from benchmarks.netlab import run_pair
from tests.two_process.conftest import lab_or_skip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.lab import Lab

LINKS = 3


@pytest.fixture
def lab() -> Iterator[Lab]:
    with lab_or_skip(LINKS, 1000) as made:
        yield made


def sent(lab: Lab) -> list[int]:
    """Bytes that each NIC of the first host has sent."""
    files = [f"/sys/class/net/{nic}/statistics/tx_bytes" for nic in lab.nics(0)]
    done = subprocess.run(lab.command(0, "cat", *files), capture_output=True, check=True, text=True)
    return [int(word) for word in done.stdout.split()]


@pytest.mark.timeout(90)
def test_pages_over_several_links(lab: Lab) -> None:
    before = sent(lab)
    figures = run_pair(lab, "fabricio", 0.5)  # the target looks at every page
    assert figures["percent"] > 0
    shares = [now - then for now, then in zip(sent(lab), before, strict=True)]
    assert min(shares) > 1 << 20
