"""Processes that are killed or stopped at random moments of a transfer: what the survivor keeps.

The moments are drawn from a fixed seed, as what is seen to have moved first; no test looks at where
the transfer really was. All rounds of a test are of one Fabric, which has another peer too: it
transfers all the while, and looks at every byte.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import mmap
import os
import resource
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pytest

from fabricio import CompletionError, PeerLostError, RemoteRegion, Transfer
from tests.two_process.neighbour import neighbourhood
from tests.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fabricio import MemoryRegion
    from tests.two_process.conftest import Link, OpenPeer, Peer

pytestmark = pytest.mark.timeout(60)  # a process or two for each round

TIMEOUT_S = 1.0
LIMIT_S = 15.0  # a backstop: what never ends is found by it
PAGE_BYTES, COUNT = 65536, 256  # more than the sockets' buffers and the window take
LENGTH_BYTES = PAGE_BYTES * COUNT
AHEAD = 3  # transfers that the peer is asked for at a time
OURS = b"\xa5" * LENGTH_BYTES  # what memory is filled with that is ours again

# Which side begins: what goes on here is the initiator or the target.
sides = pytest.mark.parametrize("who", ["here", "there"])
WARM_UP_ROUNDS = 2
ROUNDS = ("write", "read") * 2


class Traffic:
    """Transfers with a peer, one after the other, until they are stopped or fail.

    Attributes:
        memory: of this side.
        region: the same, registered.
        working: ends with what they failed with.
    """

    region: MemoryRegion
    working: asyncio.Task[None]

    def __init__(self, link: Link, who: str, operation: str, random: Random) -> None:
        self._link = link
        self._who = who
        self._operation = operation
        self._random = random
        self._to_peer = (who == "here") == (operation == "write")
        self._pages = [random.sample(range(COUNT), COUNT) for _ in range(2)]  # from, to
        self._source = random.randbytes(0)
        self._running: Transfer | None = None
        self._finished = 0
        self._stopping = False
        self.memory = mmap.mmap(-1, LENGTH_BYTES)

    async def start(self) -> Self:
        seed = self._random.randrange(1 << 32)
        self._source = np.random.default_rng(seed).bytes(LENGTH_BYTES)
        if self._to_peer:
            self.memory[:] = self._source
        self.region = await self._link.fabric.register(self.memory)
        remote = await self._link.remote(LENGTH_BYTES, seed=None if self._to_peer else seed)
        work = self._begin_here(remote) if self._who == "here" else self._begin_there()
        self.working = asyncio.create_task(work)
        return self

    @property
    def progress(self) -> int:
        """Pages that have moved; where the peer begins, transfers of which it has said so."""
        if self._who == "there":
            return self._finished
        return self._finished * COUNT + (self._running.pages_done if self._running else 0)

    async def moment(self) -> None:
        """Wait for a random one."""
        moment = self.progress + self._random.randrange(4 * COUNT if self._who == "here" else 8)
        await until(lambda: self.progress >= moment or self.working.done())

    async def stop(self) -> None:
        """Let what runs end; all bytes are where they belong then."""
        self._stopping = True
        await self.working
        out_of, into = self._pages
        expected = np.empty((COUNT, PAGE_BYTES), np.uint8)
        expected[into] = np.frombuffer(self._source, np.uint8).reshape(COUNT, PAGE_BYTES)[out_of]
        if self._to_peer:
            assert await self._link.holds(0, expected.tobytes())
        else:
            assert self.memory[:] == expected.tobytes()

    async def release(self) -> CompletionError | None:
        """Deregister; returns why the memory is still held, if it is."""
        try:
            await self.region.deregister()
        except CompletionError as error:
            return error
        return None

    async def _begin_here(self, remote: RemoteRegion) -> None:
        move: Any = getattr(self._link.endpoint, f"{self._operation}_pages")
        pages = self._pages if self._to_peer else self._pages[::-1]
        while not self._stopping:
            self._running = move(self.region, pages[0], remote, pages[1], page_bytes=PAGE_BYTES)
            assert await self._running == LENGTH_BYTES
            self._running = None
            self._finished += 1

    async def _begin_there(self) -> None:
        endpoint = self._link.endpoint
        pages = self._pages[::-1] if self._to_peer else self._pages
        question = {
            "op": self._operation,
            "region": self.region.share("w" if self._operation == "write" else "r"),
            "local": pages[0],
            "remote": pages[1],
            "page_bytes": PAGE_BYTES,
            "notify": "over",
        }
        asked = 0
        while not self._stopping or self._finished < asked:
            while not self._stopping and asked < self._finished + AHEAD:
                await endpoint.send(question)
                asked += 1
            assert await endpoint.recv() == "over"
            self._finished += 1


@dataclass
class Level:
    """What the process holds."""

    rss_bytes: int
    descriptors: int
    threads: int

    def is_no_more_than(self, other: Level) -> bool:
        return (
            self.descriptors <= other.descriptors
            and self.threads <= other.threads
            and self.rss_bytes < other.rss_bytes + LENGTH_BYTES // 2
        )

    @classmethod
    async def now(cls) -> Level:
        gc.collect()
        return await asyncio.to_thread(cls._look)

    @classmethod
    def _look(cls) -> Level:
        ctypes.CDLL(None).malloc_trim(0)  # what is free is not held
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        counts = (len(os.listdir(f"/proc/self/{what}")) for what in ("fd", "task"))
        return cls(pages * resource.getpagesize(), *counts)


async def comes_back_to(level: Level) -> None:
    """Wait until nothing is more than before. Memory of one transfer that stayed would be seen."""
    async with asyncio.timeout(LIMIT_S):
        while not (await Level.now()).is_no_more_than(level):
            pass


@asynccontextmanager
async def stopped(peer: Peer) -> AsyncIterator[None]:
    """Stop a peer for this block, which begins when its process has stopped."""
    peer.process.send_signal(signal.SIGSTOP)
    stat = Path(f"/proc/{peer.process.pid}/stat")
    async with asyncio.timeout(LIMIT_S):
        while (await asyncio.to_thread(stat.read_text)).rsplit(")")[1].split()[0] != "T":
            pass
    try:
        yield
    finally:
        peer.process.send_signal(signal.SIGCONT)


@sides
async def test_killed(
    options: dict[str, Any],
    open_peer: OpenPeer,
    shared_peer: str,
    who: str,
) -> None:
    random = Random(1)
    options = options | {"peer_timeout_s": TIMEOUT_S}
    async with neighbourhood(shared_peer, options) as neighbour:
        for number, operation in enumerate(ROUNDS):
            if number == WARM_UP_ROUNDS:
                level = await Level.now()
            async with open_peer() as peer, neighbour.link.to(peer.address) as link:
                traffic = await Traffic(link, who, operation, random).start()
                await traffic.moment()
                assert await peer.end(signal.SIGKILL) == -signal.SIGKILL
                with pytest.raises(PeerLostError) as lost:
                    await traffic.working
                with pytest.raises(PeerLostError):
                    await link.endpoint.recv()
                await neighbour.goes_on()
                async with asyncio.timeout(LIMIT_S):
                    await lost.value.drained()
                    await traffic.release()
                    await traffic.region.drained()
                traffic.memory.close()  # nothing has it any more
            del link, traffic, lost  # errors hold on to frames
        await comes_back_to(level)


@sides
async def test_stopped_for_a_moment(
    options: dict[str, Any], open_peer: OpenPeer, shared_peer: str, who: str
) -> None:
    random = Random(2)
    async with (
        neighbourhood(shared_peer, options) as neighbour,
        open_peer() as peer,
        neighbour.link.to(peer.address) as link,
    ):
        for operation in ROUNDS:
            traffic = await Traffic(link, who, operation, random).start()
            await traffic.moment()
            async with stopped(peer):
                pass
            await neighbour.goes_on()
            await traffic.moment()
            await traffic.stop()
            assert await traffic.release() is None
            traffic.memory.close()
        await link.works()


@sides
async def test_stopped_for_long(
    options: dict[str, Any],
    open_peer: OpenPeer,
    shared_peer: str,
    who: str,
) -> None:
    random = Random(3)
    options = options | {"peer_timeout_s": TIMEOUT_S}
    async with neighbourhood(shared_peer, options) as neighbour:
        for number, operation in enumerate(ROUNDS):
            if number == WARM_UP_ROUNDS:
                level = await Level.now()
            async with open_peer() as peer, neighbour.link.to(peer.address) as link:
                traffic = await Traffic(link, who, operation, random).start()
                await traffic.moment()
                async with stopped(peer):
                    assert isinstance(await link.endpoint.closed, PeerLostError)
                    with pytest.raises(PeerLostError) as lost:
                        await traffic.working
                    await neighbour.goes_on()
                    releasing = asyncio.create_task(traffic.release())
                    free = lost.value.quiesced and await releasing is None
                    if free:
                        traffic.memory[:] = OURS
                assert await peer.end() == 0
                await releasing
                if free:
                    assert traffic.memory[:] == OURS
                await lost.value.drained()
                await traffic.region.drained()
                traffic.memory.close()
            del link, traffic, lost, releasing  # errors hold on to frames
        await comes_back_to(level)
