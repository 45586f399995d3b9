"""Notifications: messages that come once all of their transfer is in place, and in their turn."""

from __future__ import annotations

import asyncio
import errno
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fabricio import RemoteRegion, RemoteTransferError, ResourceExhaustedError, Transfer
from tests.loopback.conftest import Interposed

if TYPE_CHECKING:
    from tests.loopback.conftest import Memory, OpenPair, Pair

PAGE = 512

VALUES: list[Any] = [
    None,
    False,
    0,
    1 << 63,
    1.5,
    "",
    "text",
    b"",
    b"bytes",
    [],
    {},
    {"layer": 3, "pages": [[1], [2]]},
]


async def memories(pair: Pair, pages: int = 32) -> tuple[Memory, Memory]:
    return await pair.register(pages * PAGE), await pair.register_far(pages * PAGE)


async def test_every_kind_of_value(pair: Pair) -> None:
    near, far = await memories(pair)
    for value in VALUES:
        transfer = pair.a.write(near.region, far.remote, notify=value)
        message = await pair.b.recv()
        assert message == value
        assert type(message) is type(value)
        assert np.array_equal(near.array, far.array)
        assert await transfer == near.array.size
        far.array[:] = 0


async def test_none_given_and_nothing_given(pair: Pair) -> None:
    near, far = await memories(pair)
    await pair.a.write(near.region, far.remote)
    await pair.a.write(near.region, far.remote, notify=None)
    await pair.a.send("last")
    assert [await pair.b.recv(), await pair.b.recv()] == [None, "last"]


async def test_on_reads_and_on_nothing(pair: Pair) -> None:
    near, far = await memories(pair)
    await pair.a.read(near.region, far.remote, notify="read")
    await pair.a.read_pages(near.region, [3, 1], far.remote, [1, 2], page_bytes=PAGE, notify="some")
    await pair.a.write_pages(near.region, [], far.remote, [], page_bytes=PAGE, notify="none")
    await pair.a.write(near.region[:0], far.remote, notify="zero")
    assert [await pair.b.recv() for _ in range(4)] == ["read", "some", "none", "zero"]


async def test_a_long_one(pair: Pair) -> None:
    near, far = await memories(pair)
    body = random.Random(1).randbytes(1_000_000)
    await pair.a.write(near.region, far.remote, notify=body)
    assert await pair.b.recv() == body
    assert np.array_equal(near.array, far.array)


async def test_one_with_a_region(pair: Pair) -> None:
    near, far = await memories(pair)
    await pair.a.write(near.region, far.remote, notify={"back": near.region[:PAGE].share("r")})
    message: Any = await pair.b.recv()
    assert isinstance(message["back"], RemoteRegion)
    into = bytearray(PAGE)
    await pair.b.read(await pair.far.register(into), message["back"])
    assert into == near.array[:PAGE].tobytes()


async def test_they_keep_their_place_among_messages(pair: Pair) -> None:
    near, far = await memories(pair)
    transfers: list[Transfer] = []
    for number in range(200):
        if number % 3:
            await pair.a.send(number)
        else:
            transfers.append(pair.a.write(near.region, far.remote, notify=number))
    for number in range(200):
        assert await pair.b.recv() == number
    for transfer in transfers:
        assert await transfer == near.array.size


async def test_none_comes_before_its_data(open_pair: OpenPair) -> None:
    # Small operations, few in flight and two transfers at a time: completions come mixed.
    async with open_pair(inflight_count=3, max_operation_bytes=256, quantum=1) as pair:
        near, far = await memories(pair)
        order = list(range(32))
        for number in range(60):
            random.Random(number).shuffle(order)
            near.array[:] = number + 1
            half = near.array.size // 2
            transfers = [
                pair.a.write_pages(
                    near.region[start:][:half],
                    [page // 2 for page in order if page % 2 == 0],
                    far.remote[start:][:half],
                    [page // 2 for page in order if page % 2 == 1],
                    page_bytes=PAGE,
                    notify=start,
                )
                for start in (0, half)
            ]
            for start in (0, half):
                assert await pair.b.recv() == start
                assert (far.array[start:][:half] == number + 1).all()
            for transfer in transfers:
                await transfer


async def test_both_ways_at_once(pair: Pair) -> None:
    near, far = await memories(pair)
    back = await pair.near.register(np.zeros(near.array.size, np.uint8))
    await pair.a.send(back.share("rw"))
    remote = await pair.b.recv()
    assert isinstance(remote, RemoteRegion)
    for number in range(50):
        one = pair.a.write(near.region, far.remote, notify=number)
        other = pair.b.write(far.region, remote, notify=-number)
        assert await pair.a.recv() == -number
        assert await pair.b.recv() == number
        await one
        await other


@pytest.mark.parametrize("confirm", [True, False])
async def test_a_cancelled_transfer_is_never_silent(
    open_slow_pair: OpenPair, confirm: bool
) -> None:
    async with open_slow_pair() as pair:
        transfer = (await pair.endless_write()).write(notify="never", confirm=confirm)
        await pair.a.send("after")
        transfer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await transfer
        with pytest.raises(RemoteTransferError, match="ECANCELED") as caught:
            await pair.b.recv()
        assert caught.value.transfer == 0
        assert await pair.b.recv() == "after"
        await pair.works()


async def test_one_that_the_engine_refuses(
    open_pair: OpenPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_pair(peer_timeout_s=0.3) as pair:  # b waits as long for an end that is mute
        near, far = await memories(pair)
        other = await pair.near.register(bytearray(near.array.size))
        engine = pair.a._channel.engine
        lib = engine.lib
        released: list[object] = []

        def release(handle: Any, transfer: Any) -> int:  # noqa: ANN401  (cffi's)
            released.append(transfer)
            return int(lib.fab_transfer_release(handle, transfer))

        refuse = Interposed(
            lib, fab_frame_send=lambda *_: -errno.ENOMEM, fab_transfer_release=release
        )
        monkeypatch.setattr(engine, "lib", refuse)
        transfer = pair.a.write(other, far.remote, notify="never")  # it runs: its memory is in use
        with pytest.raises(ResourceExhaustedError, match="fi_send"):
            await transfer
        await other.deregister()
        monkeypatch.undo()
        assert len(released) == 1
        assert far.remote.grant.transfers == 0
        with pytest.raises(ResourceExhaustedError):
            await pair.a.send("more")
