"""Cancelling a coroutine at every moment of its life, one moment a run, and what must hold then."""

from __future__ import annotations

import asyncio
import itertools
import os
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from fabricio import engine as engines
from tests.loopback.conftest import connect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator

    from fabricio import Endpoint, Fabric, Listener
    from fabricio.engine import Engine
    from tests.loopback.conftest import Memory, Pair

Mode = Literal["steps", "waiting", "woken", "again"]
MODES: tuple[Mode, ...] = get_args(Mode)

# Up to here every turn of the loop, and every await, is tried; then strides grow.
DENSE_STEPS, DENSE_AWAITS = 10, 20
MAX_STEPS = 1 << 24
SETTLE_S = 15.0  # a backstop: what is left then will stay

PAGE_BYTES, PAGE_COUNT = 64, 4


@dataclass(frozen=True)
class Outcome:
    """How a coroutine ended that was, or was not, cancelled in time."""

    cancelled: bool
    value: Any = None


class Interruption:
    """One moment at which a coroutine is cancelled: call this with the coroutine.

    - "steps": `number` turns of the loop after its task was made; 0: before it begins.
    - "waiting": in its await number `number`, while nothing has come of that yet.
    - "woken": there as well, when it has happened and the coroutine has not heard of it.
    - "again": as "waiting", and once more in every await of its cleaning up.

    Attributes:
        delivered: whether the coroutine was cancelled before it had ended.
        begun: whether it ran at all.
    """

    def __init__(self, mode: Mode, number: int) -> None:
        self._mode = mode
        self._number = number
        self._awaits = 0
        self._task: asyncio.Task[Any] | None = None
        self.delivered = False
        self.begun = False

    def __repr__(self) -> str:
        return f"<cancelled: {self._mode} {self._number}>"

    async def __call__(self, coroutine: Coroutine[Any, Any, Any]) -> Outcome:
        """Run the coroutine; an exception other than CancelledError is raised.

        A coroutine that was cancelled and yet returns has swallowed it: that fails here.
        """
        loop = asyncio.get_running_loop()
        self._task = task = loop.create_task(self._begin(coroutine))
        if self._mode == "steps":
            self._count_down(self._number)
        await asyncio.wait([task])
        self._task = None  # its traceback would keep alive what the coroutine had
        coroutine.close()  # one that never began would say so
        if task.cancelled():
            assert self.delivered, f"cancelled by something else than {self}"
            return Outcome(cancelled=True)
        outcome = Outcome(cancelled=False, value=task.result())
        assert not self.delivered, f"a cancellation was swallowed: {self}"
        return outcome

    async def _begin(self, coroutine: Coroutine[Any, Any, Any]) -> object:
        self.begun = True
        return await self._watch(coroutine)

    @types.coroutine
    def _watch(self, coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Run the coroutine, and look at everything that it waits for."""
        error: BaseException | None = None
        try:
            while True:
                future = coroutine.send(None) if error is None else coroutine.throw(error)
                error = None
                self._waits(future)
                try:
                    yield future
                except BaseException as thrown:  # passed on, whatever it is
                    error = thrown
        except StopIteration as stop:
            return stop.value
        finally:
            del error  # it leads to this frame, and from here to what the coroutine had

    def _waits(self, future: asyncio.Future[Any] | None) -> None:
        if self._mode == "steps" or self._task is None:
            return
        self._awaits += 1
        if self._awaits < self._number or (self._awaits > self._number and self._mode != "again"):
            return
        if self._mode == "woken" and future is not None:
            # Called before the task's own callback, which is added after this.
            future.add_done_callback(lambda _: self._cancel())
        else:
            self._task.get_loop().call_soon(self._cancel)

    def _count_down(self, left: int) -> None:
        if not left:
            self._cancel()
        elif self._task is not None:
            self._task.get_loop().call_soon(self._count_down, left - 1)

    def _cancel(self) -> None:
        if self._task is not None and self._task.cancel():
            self.delivered = True


async def at_every_moment(attempt: Callable[[Interruption], Awaitable[None]]) -> None:
    """Run an attempt for each moment of each mode, until it was over before it was cancelled."""
    for mode in MODES:
        for number in _moments(mode):
            interruption = Interruption(mode, number)
            try:
                await attempt(interruption)
            except BaseException as error:
                error.add_note(repr(interruption))
                raise
            if not interruption.delivered:
                break
        else:
            raise AssertionError(f"it never ended before it was cancelled: {mode}")


def _moments(mode: Mode) -> Iterator[int]:
    number, dense = (0, DENSE_STEPS) if mode == "steps" else (1, DENSE_AWAITS)
    while number < MAX_STEPS:
        yield number
        number = number + 1 if number < dense else number * 3 // 2


class World:
    """A connected pair, and what it looks like while nothing is under way.

    Attributes:
        pair: the two Fabrics and the two ends of a connection.
        listener: of the far Fabric, with a rendezvous.
        numbers: messages that no other attempt uses.
    """

    def __init__(self, pair: Pair, listener: Listener, near: Memory, far: Memory) -> None:
        self.pair = pair
        self.listener = listener
        self.numbers = itertools.count(1)
        self._near, self._far = near, far
        self._random = np.random.default_rng(1)
        self._mine = asyncio.all_tasks()
        self._resting = self._census()

    @classmethod
    async def make(cls, pair: Pair, listener: Listener) -> World:
        size = PAGE_BYTES * PAGE_COUNT
        world = cls(pair, listener, await pair.register(size), await pair.register_far(size))
        await world.check()  # whatever is made with the first use
        world._resting = world._census()
        return world

    async def check(self) -> None:
        """Nothing is left over, and everything works in both directions, byte by byte."""
        await self.settle()
        pair = self.pair
        await self.check_endpoints(pair.a, pair.b)
        await self._check_pages(pair.a, pair.b, self._near, self._far)
        await self._check_pages(pair.b, pair.a, self._far, self._near)
        await self.settle()

    async def check_endpoints(self, a: Endpoint, b: Endpoint) -> None:
        """The two are the ends of one connection, and nothing is under way or unread there."""
        for sender, receiver in ((a, b), (b, a)):
            number = next(self.numbers)
            await sender.send(number)
            assert await receiver.recv() == number

    async def connect(self) -> tuple[Endpoint, Endpoint]:
        """One more connection, through the listener."""
        connected = await self.pair.near.connect(self.pair.far.address)
        return connected, await self.listener.accept()

    async def settle(self) -> None:
        """Wait until all is as it was at first."""
        try:
            async with asyncio.timeout(SETTLE_S):
                while self._census() != self._resting:  # noqa: ASYNC110  (any turn may end it)
                    await asyncio.sleep(0)
        except TimeoutError:
            found = self._census()
            left = {key: (self._resting[key], found[key]) for key in found}
            different = {key: pair for key, pair in left.items() if pair[0] != pair[1]}
            raise AssertionError(f"left over, as (before, now): {different}") from None

    async def _check_pages(
        self, source: Endpoint, target: Endpoint, local: Memory, remote: Memory
    ) -> None:
        local.array[:] = self._random.integers(0, 256, local.array.size, np.uint8)
        order, number = self._random.permutation(PAGE_COUNT), next(self.numbers)
        moved = await source.write_pages(
            *(local.region, range(PAGE_COUNT), remote.remote, order),
            page_bytes=PAGE_BYTES,
            notify=number,
        )
        assert moved == local.array.size
        assert await target.recv() == number
        pages = remote.array.reshape(PAGE_COUNT, PAGE_BYTES)[order]
        assert (pages == local.array.reshape(PAGE_COUNT, PAGE_BYTES)).all()

    def _census(self) -> dict[str, object]:
        """Count what an operation may leave behind."""
        found: dict[str, object] = {
            "tasks": [task for task in asyncio.all_tasks() if task not in self._mine],
            "engines": len(engines._running),
            "lowest free descriptor": _lowest_free_descriptor(),
        }
        for name, fabric in (("near", self.pair.near), ("far", self.pair.far)):
            found |= {f"{name} {what}": count for what, count in _counts(fabric).items()}
        return found


def engine_of(fabric: Fabric) -> Engine:
    """The engine of an open Fabric."""
    assert fabric._engine is not None
    return fabric._engine


def _lowest_free_descriptor() -> int:
    """What a descriptor that is left over takes, for the time being."""
    descriptor = os.dup(0)
    os.close(descriptor)
    return descriptor


def _counts(fabric: Fabric) -> dict[str, object]:
    """Count what an open Fabric holds and has under way."""
    engine, counted = engine_of(fabric), fabric.statistics()
    done = counted.operations_completed + counted.operations_failed
    channels, acceptor = engine.channels, fabric._acceptor
    outboxes = [channel.outbox for channel in channels if channel._stream is not None]
    return {
        "operations": counted.operations_posted - done,
        "requests": len(engine.reader._tokens),
        "peers": len(engine.reader._sinks),
        "channels": len(channels),
        "dependents": len(engine.dependents),
        "transfers": sum(len(channel.transfers) for channel in channels),
        "messages to send": sum(len(outbox._sending) for outbox in outboxes),
        "flushes": sum(len(outbox._flushing) for outbox in outboxes),
        "unread": sum(len(channel.inbox._ready) for channel in channels),
        "receivers": sum(len(channel.inbox._waiters) for channel in channels),
        "hellos answered": len(acceptor._attempts),
        "hellos kept": len(acceptor._kept),
        "connects": len(fabric._connector._attempts),
    }


__all__ = ["MODES", "Interruption", "Outcome", "World", "at_every_moment", "connect", "engine_of"]
