"""A peer whose Python does not run: its engine receives, counts and confirms all the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from tests.two_process.conftest import OpenLink

PAGE_BYTES, COUNT = 4096, 2000


@pytest.mark.parametrize("how", ["sleep", "compute"])
async def test_transfers_are_confirmed(open_link: OpenLink, how: str) -> None:
    async with open_link() as (link, peer):
        random = np.random.default_rng(8)
        data = random.integers(256, size=(COUNT, PAGE_BYTES), dtype=np.uint8)
        region = await link.fabric.register(data)
        remote = await link.remote(2 * data.size)
        assert await link.ask(op="wait", how=how) == {"waits": True}
        # From here on the peer's loop does not run until we say so, however long that takes.
        order = random.permutation(COUNT)
        whole, scattered = await asyncio.gather(
            link.endpoint.write(region, remote, notify={"op": "notified"}),
            link.endpoint.write_pages(
                region, range(COUNT), remote[data.size :], order, page_bytes=PAGE_BYTES
            ),
        )
        assert whole == scattered == data.size
        back = np.zeros_like(data)
        target = await link.fabric.register(back)
        assert await link.endpoint.read(target, remote) == data.size
        assert np.array_equal(back, data)
        # Messages are kept for it.
        for number in range(100):
            await link.endpoint.send({"op": "echo", "value": number})
        peer.wake()
        assert await link.endpoint.recv() == {"waits": False}
        assert await link.endpoint.recv() == {"op": "notified"}
        for number in range(100):
            assert await link.endpoint.recv() == {"value": number}
        assert await link.holds(0, data.tobytes())
        expected = np.empty_like(data)
        expected[order] = data
        assert await link.holds(data.size, expected.tobytes())
