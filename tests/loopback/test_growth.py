"""Connecting and parting, over and over, leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from fabricio import Fabric

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fabricio import Listener
    from tests.loopback.conftest import OpenPair, Pair

pytestmark = pytest.mark.slow

TIMES, NEW_FABRICS = 500, 40
ROUNDS = 4
LIMIT_S = 10.0
WARM_UP_TIMES = 50  # caches, and slots of the engine that rest before they are used again
# Of Python's memory, for each connection and each Fabric that has come and gone. One that stays
# takes several kilobytes. What Python itself keeps of a thread that has ended is no more than this.
KEPT_BYTES, KEPT_OF_FABRIC_BYTES = 64, 192
# The engine lets a slot rest until so many others are free; both ends of a connection may close
# a moment apart.
SLOTS = 256 + 4


@pytest.fixture(autouse=True)
async def one_thread_counts() -> None:
    """Give the loop a pool of one thread: its own takes another now and then, and keeps it."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))


@dataclass
class Held:
    """What the process has of everything that a connection takes."""

    descriptors: int
    threads: int
    shm_files: int
    channels: int
    python_bytes: int

    @classmethod
    async def by(cls, *fabrics: Fabric) -> Held:
        """Count, once what is garbage has gone."""
        descriptors, threads, shm_files = await asyncio.to_thread(_list)
        gc.collect()
        return cls(
            descriptors=descriptors,
            threads=threads,
            shm_files=shm_files,
            channels=sum(len(fabric._running().channels) for fabric in fabrics),
            python_bytes=tracemalloc.get_traced_memory()[0],
        )

    def exceeds(self, before: Held) -> bool:
        """Whether the process has more of the system than it had."""
        return (
            self.descriptors > before.descriptors
            or self.threads > before.threads
            or self.shm_files > before.shm_files
        )


def _list() -> tuple[int, int, int]:
    names = os.listdir("/dev/shm")
    return (
        len(os.listdir("/proc/self/fd")),
        len(os.listdir("/proc/self/task")),
        sum(str(os.getpid()) in re.findall(r"\d+", name) for name in names),
    )


async def meet_and_part(near: Fabric, far: Fabric, listener: Listener) -> int:
    """Connect, exchange a message, part; returns the greater slot number of both engines."""
    a, b = await asyncio.gather(near.connect(far.address), listener.accept())
    await a.send("here")
    assert await b.recv() == "here"
    slots = a._channel.peer, b._channel.peer
    await asyncio.gather(a.aclose(), b.aclose())
    return max(slots)


async def check_growth(
    come_and_go: Callable[[], Awaitable[None]], fabrics: tuple[Fabric, ...], kept_bytes: int
) -> None:
    """See that what is held afterwards is what was held before.

    A leak grows in every round; the interpreter's free lists, which count as well, fill up.
    """
    grown = []
    for _ in range(ROUNDS):
        before = await Held.by(*fabrics)
        await come_and_go()
        after = await Held.by(*fabrics)
        # The worker tears a connection down after the endpoint has gone, and over shm an
        # endpoint's file stays until the other side has let go of it.
        deadline = asyncio.get_running_loop().time() + LIMIT_S
        while after.exceeds(before):
            assert asyncio.get_running_loop().time() < deadline, f"{before} became {after}"
            after = await Held.by(*fabrics)
        assert after.channels == before.channels
        grown.append(after.python_bytes - before.python_bytes)
        if grown[-1] <= kept_bytes:
            return
    raise AssertionError(f"memory grew in every round: {grown} B, and {kept_bytes} B may stay")


async def test_connections_come_and_go(open_pair: OpenPair) -> None:
    asyncio.get_running_loop().set_debug(False)  # it would take ten times as long
    async with open_pair() as pair, pair.far.listen() as listener:

        async def come_and_go() -> None:
            assert await meet_often(pair, listener, TIMES) <= SLOTS

        await meet_often(pair, listener, WARM_UP_TIMES)
        tracemalloc.start()
        try:
            await meet_often(pair, listener, WARM_UP_TIMES)
            assert (await Held.by(pair.near, pair.far)).channels == 2
            await check_growth(come_and_go, (pair.near, pair.far), TIMES * KEPT_BYTES)
        finally:
            tracemalloc.stop()
        await pair.works()


async def meet_often(pair: Pair, listener: Listener, times: int) -> int:
    """Connect and part so many times; returns the greatest slot number."""
    return max([await meet_and_part(pair.near, pair.far, listener) for _ in range(times)])


async def test_fabrics_come_and_go(open_pair: OpenPair, options: dict[str, Any]) -> None:
    asyncio.get_running_loop().set_debug(False)  # it would take ten times as long
    async with open_pair() as pair, pair.far.listen() as listener:

        async def come_and_go() -> None:
            for _ in range(NEW_FABRICS):
                async with Fabric(**options) as near:
                    await meet_and_part(near, pair.far, listener)

        tracemalloc.start()
        try:
            await check_growth(come_and_go, (pair.far,), NEW_FABRICS * KEPT_OF_FABRIC_BYTES)
        finally:
            tracemalloc.stop()
        await pair.works()
