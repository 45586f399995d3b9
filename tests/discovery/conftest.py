"""What tests of discovery share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.discovery.dnsmasq import Dnsmasq

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def dnsmasq(tmp_path: Path) -> Iterator[Dnsmasq]:
    """A DNS server without records."""
    with Dnsmasq(tmp_path) as server:
        yield server


@pytest.fixture(autouse=True)
async def clean(loop_errors_refused: None) -> None:
    """Every test here must leave nothing behind."""
