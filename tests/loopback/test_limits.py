"""What a Fabric holds is bounded by options: who reaches one is told, and nothing grows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from fabricio import Fabric, PeerUnreachableError, ResourceExhaustedError, Transfer, WouldBlock
from tests.loopback.conftest import SLOW

if TYPE_CHECKING:
    from tests.loopback.conftest import OpenPair

KIB = 1024


async def test_endpoints(options: dict[str, Any]) -> None:
    options = {**options, "connect_timeout_s": 0.5}
    async with (
        Fabric(**options, max_endpoints=2) as small,
        Fabric(**options) as large,
        large.listen() as listener,
    ):
        first = await small.connect(large.address)
        ends = [await listener.accept()]
        second, refused = await asyncio.gather(
            small.connect(large.address), small.connect(large.address), return_exceptions=True
        )
        assert isinstance(refused, ResourceExhaustedError)
        assert "max_endpoints=2" in str(refused)
        ends.append(await listener.accept())
        async with small.listen() as full:
            with pytest.raises(PeerUnreachableError):
                await large.connect(small.address)
            await first.aclose()  # and then there is room for one
            other = await large.connect(small.address)
            third = await full.accept()
            await third.send("room")
            assert await other.recv() == "room"
            assert not isinstance(second, BaseException)
            await asyncio.gather(*(end.aclose() for end in (second, third, other, *ends)))


async def test_regions(options: dict[str, Any]) -> None:
    async with Fabric(**options, max_regions=3) as fabric:
        regions = [await fabric.register(bytearray(64)) for _ in range(3)]
        with pytest.raises(ResourceExhaustedError, match="max_regions=3"):
            await fabric.register(bytearray(64))
        for _ in range(5):
            await regions.pop().deregister()
            regions.append(await fabric.register(bytearray(64)))
        with pytest.raises(ResourceExhaustedError, match="max_regions=3"):
            await fabric.register(bytearray(64))


async def test_transfers(open_pair: OpenPair) -> None:
    async with open_pair(**SLOW, max_transfers=4) as pair:
        near, far = await pair.register(64 * KIB), await pair.register_far(64 * KIB)

        def start() -> Transfer:
            pages = range(KIB)
            return pair.a.write_pages(near.region, pages, far.remote, pages, page_bytes=64)

        transfers = [start() for _ in range(4)]
        with pytest.raises(WouldBlock, match="max_transfers=4"):
            start()
        assert [await transfer for transfer in transfers] == [64 * KIB] * 4
        assert await start() == 64 * KIB
        await pair.works()


@pytest.mark.parametrize("limit", [{"max_queued_messages": 5}, {"max_queued_bytes": 4001}])
async def test_messages(open_pair: OpenPair, limit: dict[str, int]) -> None:
    window = {"max_message_bytes": KIB, "frame_bytes": 2 * KIB, "receive_window_bytes": 4 * KIB}
    async with open_pair(**window, **limit) as pair:
        sending = [asyncio.create_task(pair.a.send(bytes(997))) for _ in range(9)]
        await pair.b.flush()  # four fill the window, and five wait
        with pytest.raises(WouldBlock, match=next(iter(limit))):
            await pair.a.send(1)
        for _ in sending:
            assert await pair.b.recv() == bytes(997)
        await asyncio.gather(*sending)
        await pair.works()
