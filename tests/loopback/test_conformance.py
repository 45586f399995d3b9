"""Every provider passes the public conformance check, with the options that change the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fabricio.testing import check_endpoint_pair

if TYPE_CHECKING:
    from tests.loopback.conftest import OpenPair, Pair


async def test_defaults(pair: Pair) -> None:
    await check_endpoint_pair(pair.a, pair.b)


async def test_pages_of_one_byte(pair: Pair) -> None:
    await check_endpoint_pair(pair.a, pair.b, page_bytes=1, page_count=64)


async def test_large_pages(pair: Pair) -> None:
    await check_endpoint_pair(pair.a, pair.b, page_bytes=1 << 18, page_count=8)


@pytest.mark.parametrize(
    "overrides",
    [
        {"inflight_count": 1},
        {"inflight_bytes": 4096, "max_operation_bytes": 4096},
        {"max_operation_bytes": 1000},
        {"merge": False, "segments": 1, "quantum": 1},
        {"frame_bytes": 2048, "receive_count": 4},
        {"polling": "busy"},
        {"spin_us": 0.0, "nap_us": 50.0},
    ],
    ids=lambda overrides: "-".join(overrides),
)
async def test_options(open_pair: OpenPair, overrides: dict[str, Any]) -> None:
    async with open_pair(**overrides) as pair:
        await check_endpoint_pair(pair.a, pair.b)
