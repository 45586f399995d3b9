"""asyncio's own ways to cancel: timeouts, task groups, shields; afterwards everything works."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from fabricio import RemoteTransferError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from fabricio import Transfer
    from tests.loopback.conftest import Endless, OpenPair, Pair

WINDOW: dict[str, Any] = {
    "receive_window_bytes": 65536,
    "max_message_bytes": 40000,
    "frame_bytes": 4096,
}
LARGE = b"large" * 7000  # the window takes one of them


class Mine(Exception):
    """What a child of a task group fails with."""


class Waits:
    """Everything that waits, and can be cancelled, each in a pair of its own kind."""

    def __init__(self, pair: Pair, endless: Endless) -> None:
        self.pair = pair
        self.endless = endless
        self.transfers: list[Transfer] = []

    def all(self) -> dict[str, Callable[[], Awaitable[object]]]:
        return {
            "recv": self.pair.b.recv,
            "async for": self.pair.b.__anext__,
            "send": self._send,
            "write": self._write,
            "connect": self._connect,
            "accept": self._accept,
        }

    async def _write(self) -> None:
        self.transfers.append(self.endless.write(notify=len(self.transfers)))
        await self.transfers[-1]

    async def _send(self) -> None:
        for _ in range(3):
            await self.pair.a.send(LARGE)

    async def _connect(self) -> None:
        await self.pair.near.connect(self.pair.far.address)

    async def _accept(self) -> None:
        async with self.pair.near.listen() as listener:
            await listener.accept()

    async def settle(self) -> None:
        """All that was begun is over; the peer hears of it, and both ends are as at first."""
        for transfer in self.transfers:
            with pytest.raises(asyncio.CancelledError):
                await transfer
        await self.pair.a.send("the end")
        failed = 0
        while True:
            try:
                message = await self.pair.b.recv()
            except RemoteTransferError:
                failed += 1
                continue
            if message == "the end":
                break
            assert message == LARGE
        assert failed == len(self.transfers)
        self.transfers.clear()
        await self.pair.works()


@pytest.fixture
async def waits(open_slow_pair: OpenPair) -> AsyncIterator[Waits]:
    async with open_slow_pair(**WINDOW) as pair:
        yield Waits(pair, await pair.endless_write())


@pytest.mark.parametrize("timeout_s", [-1.0, 0.0, 1e-6, 0.01])
async def test_timeouts(waits: Waits, timeout_s: float) -> None:
    for wait in waits.all().values():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_as_coroutine(wait), timeout_s)
        await waits.settle()


async def test_a_timeout_that_has_passed_spares_what_does_not_wait(pair: Pair) -> None:
    await pair.b.send("here")
    await pair.b.flush()
    async with asyncio.timeout(0):
        await pair.a.send("sent")
        assert await pair.a.recv() == "here"
    assert await pair.b.recv() == "sent"


async def test_a_failing_child_cancels_the_others(waits: Waits) -> None:
    async def fail() -> None:
        await waits.pair.a.flush()  # the others wait by now
        raise Mine

    async def all_at_once() -> None:
        async with asyncio.TaskGroup() as group:
            for wait in waits.all().values():
                group.create_task(_as_coroutine(wait))
            group.create_task(fail())

    with pytest.raises(ExceptionGroup) as caught:
        await all_at_once()
    assert [type(error) for error in caught.value.exceptions] == [Mine]
    await waits.settle()


async def test_a_shielded_transfer_goes_on(pair: Pair) -> None:
    near, far = await pair.register(1 << 20), await pair.register_far(1 << 20)
    transfer = pair.a.write(near.region, far.remote, notify="whole")
    shielded = asyncio.ensure_future(transfer)
    await _cancel_in(asyncio.shield(shielded))
    assert await shielded == 1 << 20
    assert await pair.b.recv() == "whole"
    assert (near.array == far.array).all()
    await pair.works()


async def test_a_shielded_recv_still_takes_the_message(pair: Pair) -> None:
    receiving = asyncio.create_task(pair.b.recv())
    await _cancel_in(asyncio.shield(receiving))
    await pair.a.send("for the shielded one")
    assert await receiving == "for the shielded one"
    await pair.works()


async def test_what_a_gather_had_not_begun_to_await_runs_on(pair: Pair) -> None:
    near, far = await pair.register(1 << 16), await pair.register_far(1 << 16)
    transfer = pair.a.write(near.region, far.remote, notify="whole")
    gathering = asyncio.gather(transfer)
    gathering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gathering
    assert await transfer == 1 << 16
    assert await pair.b.recv() == "whole"


async def _as_coroutine(wait: Callable[[], Awaitable[object]]) -> object:
    return await wait()


async def _cancel_in(awaitable: Awaitable[object]) -> None:
    """Cancel a task as soon as it waits for that."""
    task = asyncio.create_task(_as_coroutine(lambda: awaitable))
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()
