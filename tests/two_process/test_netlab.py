"""Two hosts made of network namespaces, with several links: pages arrive over all of them."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from benchmarks.lab import open_lab
from benchmarks.netlab import run_pair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.lab import Lab

LINKS = 3

# What `ip` and `tc` say in a container without rights, or on a kernel without htb.
UNABLE = ("not permitted", "Permission denied", "not supported", "qdisc kind is unknown")


@pytest.fixture
def lab() -> Iterator[Lab]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    try:
        with open_lab(LINKS, 1000) as opened:
            yield opened
    except FileNotFoundError:
        pytest.skip("there is no `ip` or no `tc` (iproute2)")
    except RuntimeError as error:
        if any(words in str(error) for words in UNABLE):
            pytest.skip(f"this system allows no such links: {error}")
        raise


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
