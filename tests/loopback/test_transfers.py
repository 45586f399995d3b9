"""`Transfer`: awaiting it, its counts, and cancelling it."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fabricio import RegionError

if TYPE_CHECKING:
    from tests.loopback.conftest import OpenPair, Pair

SIZE = 1 << 16


async def test_counts(pair: Pair) -> None:
    near, far = await pair.register(SIZE), await pair.register_far(SIZE)
    transfer = pair.a.write_pages(near.region, range(16), far.remote, range(16), page_bytes=4096)
    assert transfer.operation == "write"
    assert (transfer.pages_total, transfer.bytes_total) == (16, SIZE)
    assert 0 <= transfer.pages_done <= 16
    assert not transfer.done()
    assert await transfer == SIZE
    assert (transfer.done(), transfer.pages_done, transfer.bytes_done) == (True, 16, SIZE)
    reading = pair.a.read(near.region, far.remote)
    assert (reading.operation, reading.pages_total) == ("read", 1)
    assert await reading == SIZE
    assert (reading.pages_done, reading.bytes_done) == (1, SIZE)


async def test_awaited_again_and_by_several_tasks(pair: Pair) -> None:
    near, far = await pair.register(SIZE), await pair.register_far(SIZE)
    transfer = pair.a.write(near.region, far.remote)

    async def wait() -> int:
        return await transfer

    assert set(await asyncio.gather(wait(), wait(), transfer)) == {SIZE}
    assert await transfer == SIZE
    assert await transfer == SIZE
    assert not transfer.cancel()
    assert await transfer == SIZE


async def test_never_awaited(pair: Pair) -> None:
    near, far = await pair.register(SIZE), await pair.register_far(SIZE)
    pair.a.write(near.region, far.remote, notify="there")
    gc.collect()
    assert await pair.b.recv() == "there"
    assert np.array_equal(near.array, far.array)


async def test_nothing_to_move_is_done_at_once(pair: Pair) -> None:
    near, far = await pair.register(SIZE), await pair.register_far(SIZE)
    for transfer in (
        pair.a.write(near.region[:0], far.remote),
        pair.a.read(near.region[:0], far.remote[:0]),
        pair.a.write_pages(near.region, [], far.remote, [], page_bytes=4096),
        pair.a.read_pages(near.region, np.array([]), far.remote, (), page_bytes=1),
        # No page is out of range, then.
        pair.a.write_pages(near.region, [], far.remote, [], page_bytes=2 * SIZE),
    ):
        assert transfer.done()
        assert not transfer.cancel()
        assert await transfer == 0
        assert (transfer.pages_done, transfer.bytes_done) == (0, 0)
    await pair.works()


async def test_cancel(open_slow_pair: OpenPair) -> None:
    async with open_slow_pair() as pair:
        endless = await pair.endless_write()
        transfer = endless.write()
        assert transfer.cancel()
        for _ in range(2):
            with pytest.raises(asyncio.CancelledError):
                await transfer
        assert transfer.done()
        assert not transfer.cancel()
        assert transfer.pages_done < endless.page_count
        assert transfer.bytes_done == transfer.pages_done * endless.page_bytes
        # The memory of this side is quiet: nobody looks at it any more.
        page = endless.page.array
        old = page.copy()
        page[:] = ~old
        await pair.works()
        pages = endless.row.array.reshape(endless.page_count, endless.page_bytes)
        assert ((pages == old).all(1) | (pages == 0).all(1)).all()


async def test_a_cancelled_read_writes_no_more(open_slow_pair: OpenPair) -> None:
    async with open_slow_pair() as pair:
        endless = await pair.endless_read()
        transfer = endless.read()
        transfer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await transfer
        endless.row.array[:] = 7
        await pair.works()
        assert (endless.row.array == 7).all()


async def test_cancelling_one_waiter_cancels_the_transfer_for_all(open_slow_pair: OpenPair) -> None:
    async with open_slow_pair() as pair:
        endless = await pair.endless_write()
        transfer = endless.write()

        async def wait() -> int:
            return await transfer

        first, second = asyncio.create_task(wait()), asyncio.create_task(wait())
        await pair.a.flush()  # both wait by now
        first.cancel()
        await asyncio.wait([first, second])
        assert first.cancelled()
        assert second.cancelled()
        assert transfer.pages_done < endless.page_count
        await pair.works()


async def test_a_timeout_cancels(open_slow_pair: OpenPair) -> None:
    async with open_slow_pair() as pair:
        endless = await pair.endless_write()
        transfer = endless.write()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await transfer
        assert transfer.done()
        await pair.works()


async def test_a_cancelled_transfers_region_can_be_closed(open_slow_pair: OpenPair) -> None:
    async with open_slow_pair() as pair:
        endless = await pair.endless_write()
        transfer = endless.write()
        transfer.cancel()
        await endless.page.region.deregister()
        assert transfer.done()
        await pair.works()


async def test_small_transfers_pass_an_endless_one(open_slow_pair: OpenPair) -> None:
    async with open_slow_pair() as pair:
        endless = await pair.endless_write()
        source, target = await pair.register(4096), await pair.register_far(4096)
        transfer = endless.write()
        assert await pair.a.write(source.region, target.remote, notify="small") == 4096
        assert await pair.b.recv() == "small"
        await pair.a.send("message")
        assert await pair.b.recv() == "message"
        assert not transfer.done()
        transfer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await transfer
        await pair.works()


async def test_other_transfers_of_the_same_memory_go_on(open_slow_pair: OpenPair) -> None:
    async with open_slow_pair() as pair:
        endless = await pair.endless_write()
        cancelled = endless.write()
        count = 1000
        kept = pair.a.write_pages(
            endless.page.region,
            [0] * count,
            endless.row.remote,
            range(count),
            page_bytes=endless.page_bytes,
        )
        cancelled.cancel()
        assert await kept == count * endless.page_bytes
        expected = np.tile(endless.page.array, count)
        assert np.array_equal(endless.row.array[: expected.size], expected)
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await pair.works()


async def test_unconfirmed(pair: Pair) -> None:
    near, far = await pair.register(SIZE), await pair.register_far(SIZE)
    confirmed = pair.far.statistics().transfers_confirmed
    assert await pair.a.write(near.region, far.remote, confirm=False) == SIZE
    assert pair.far.statistics().transfers_confirmed == confirmed
    # What was posted later and is confirmed says nothing about it, but a notification would.
    assert await pair.a.write(near.region, far.remote, confirm=False, notify="there") == SIZE
    assert await pair.b.recv() == "there"
    assert np.array_equal(near.array, far.array)
    before = pair.far.statistics().transfers_confirmed
    assert await pair.a.write(near.region, far.remote) == SIZE
    assert pair.far.statistics().transfers_confirmed == before + 1
    assert await pair.a.read(near.region, far.remote, confirm=False) == SIZE
    await pair.works()


async def test_a_refused_transfer_leaves_no_trace(pair: Pair) -> None:
    near, far = await pair.register(SIZE), await pair.register_far(SIZE)
    posted = pair.near.statistics().operations_posted
    with pytest.raises(RegionError, match="must end within") as caught:
        pair.a.write_pages(near.region, [0, 1, 16], far.remote, [0, 1, 2], page_bytes=4096)
    assert caught.value.position == 2
    assert "transfers=0" in repr(pair.a)
    assert pair.near.statistics().operations_posted == posted
    assert not far.array.any()
    await pair.works()


async def test_repr_says_how_far_it_is(open_slow_pair: OpenPair) -> None:
    async with open_slow_pair() as pair:
        endless = await pair.endless_write()
        transfer = endless.write()
        assert f"/{endless.page_count} pages running" in repr(transfer)
        transfer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await transfer
        assert "CancelledError" in repr(transfer)
