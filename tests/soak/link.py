"""One connection of the soak: rounds of pages and messages both ways, each byte of them checked.

Either side drives rounds of its own. One round:

    driver                                   other side
    note: bytes that follow from their number
    ask                        ->            registers memory, all of one byte
                               <-            grant: the region
    writes some of its pages, notified
                               ->            checks all of the memory, written or not; fills it anew
                               <-            checked
    reads some of its pages, checks them
    done                       ->            deregisters, and takes the memory for something else

Every message carries its number on this connection, so that a lost, doubled or overtaken one shows.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, deque
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from fabricio import CompletionError, RemoteRegion

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricio import Endpoint, Fabric, MemoryRegion

    Bytes = np.ndarray[Any, np.dtype[np.uint8]]

REGION_BYTES = 1 << 16
PAGE_BYTES = (512, 4096, 16384)
MAX_NOTE_BYTES = 4096
LONG_NOTE_BYTES = 200_000  # more than a frame; one note in LONG_NOTE_EVERY
LONG_NOTE_EVERY = 20
UNTOUCHED, RELEASED = 0xEE, 0x77

ROUND_LIMIT_S = 30.0
QUIET_LIMIT_S = 45.0  # a stop is much shorter
RELEASED_COUNT = 64


class Wrong(Exception):
    """A byte, a message or an order that should not be."""


@dataclass
class Shared:
    """What all connections of a process have in common.

    Attributes:
        seed: of the run.
        pause_s: mean time between two rounds of a connection.
        report: told of what is wrong that ends no connection.
        gate: bounds the rounds that run at once.
        counts: what was done.
        outlives_fabric: whether memory may have to be kept when the Fabric has gone.
        releases: memory that is being let go.
        kept: memory that a peer may still write into, since it fell silent.
        released: memory that has been: nothing may write to it any more.
    """

    seed: int
    pause_s: float
    report: Callable[[Exception], None]
    gate: asyncio.Semaphore
    outlives_fabric: bool
    counts: Counter[str] = field(default_factory=Counter)
    releases: set[asyncio.Task[None]] = field(default_factory=set)
    kept: set[asyncio.Task[None]] = field(default_factory=set)
    released: deque[Bytes] = field(default_factory=deque)

    def release(self, memory: Bytes, region: MemoryRegion) -> None:
        """Deregister, then take the memory for something else; not waited for."""
        task = asyncio.get_running_loop().create_task(self._release(memory, region))
        self.releases.add(task)
        task.add_done_callback(self.releases.discard)

    async def _release(self, memory: Bytes, region: MemoryRegion) -> None:
        try:
            async with asyncio.timeout(QUIET_LIMIT_S):
                await region.deregister()
        except CompletionError as error:
            if error.quiesced:
                self.report(error)
                return
            self.counts["regions kept for a silent peer"] += 1
            task = asyncio.get_running_loop().create_task(self._keep(memory, error))
            self.kept.add(task)
            task.add_done_callback(self.kept.discard)
        except TimeoutError:
            text = f"memory is not quiet after {QUIET_LIMIT_S:.0f} s: {region!r}"
            self.report(Wrong(text))
        except Exception as error:  # (whatever it is, the run must hear of it)
            self.report(error)
        else:
            self._let_go(memory)

    async def _keep(self, memory: Bytes, error: CompletionError) -> None:
        """Wait for as long as it takes."""
        try:
            await error.drained()
        except Exception as failure:
            self.report(failure)
        else:
            self._let_go(memory)

    def _let_go(self, memory: Bytes) -> None:
        self.counts["regions let go"] += 1
        memory[:] = RELEASED
        self.released.append(memory)
        if len(self.released) > RELEASED_COUNT:
            self.check_released()

    async def finish(self, limit_s: float) -> None:
        """Wait until all memory is let go, and look at what was written to it since.

        Call it once all Fabrics of the process are closed. On shm the memory is kept for as long
        as the other process is there, so that this is not waited for.
        """
        while self.releases:
            await asyncio.wait(self.releases)
        for task in self.kept if self.outlives_fabric else ():
            task.cancel()
        if self.kept:
            _, waiting = await asyncio.wait(self.kept, timeout=limit_s)
            if waiting:
                self.report(Wrong(f"{len(waiting)} regions are kept though the Fabric is closed"))
        self.check_released(0)

    def check_released(self, left: int = RELEASED_COUNT) -> None:
        """See that nobody has written to the oldest released memory; keep `left` of it."""
        while len(self.released) > left:
            if (self.released.popleft() != RELEASED).any():
                self.report(Wrong("memory has changed after deregister() had let it go"))


class Link:
    """One end of a connection.

    Attributes:
        endpoint: of it.
        met: set once the peer has said its tag.
    """

    def __init__(self, endpoint: Endpoint, fabric: Fabric, tag: int, shared: Shared) -> None:
        self.endpoint = endpoint
        self.met = asyncio.Event()
        self._fabric = fabric
        self._tag = tag
        self._peer_tag = -1
        self._shared = shared
        self._random = Random(f"{shared.seed} {tag} {endpoint.peer}")
        self._sent = itertools.count()
        self._received = itertools.count()
        self._replies: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._granted: dict[int, tuple[Bytes, MemoryRegion]] = {}

    async def run(self) -> list[Exception]:
        """Work until the endpoint ends, or anything is wrong.

        Returns: why, in the words of each of the tasks that worked here.
        """
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._receive()), loop.create_task(self._drive())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        await self.endpoint.aclose()
        for memory, region in self._granted.values():
            self._shared.release(memory, region)
        return [outcome for outcome in outcomes if isinstance(outcome, Exception)]

    async def _send(self, kind: str, **content: object) -> None:
        await self.endpoint.send({"kind": kind, "number": next(self._sent), **content})

    async def _receive(self) -> None:
        await self._send("hello", tag=self._tag)
        while True:
            message: Any = await self.endpoint.recv()
            expected = next(self._received)
            if message["number"] != expected:
                raise Wrong(f"message {message['number']} came in place of {expected}")
            self._shared.counts["messages"] += 1
            await self._take(message)

    async def _take(self, message: dict[str, Any]) -> None:
        match message:
            case {"kind": "hello", "tag": tag}:
                self._peer_tag = tag
                self.met.set()
            case {"kind": "note", "number": number, "body": body}:
                if body != self._pattern(len(body), self._peer_tag, self._tag, number).tobytes():
                    raise Wrong(f"the {len(body)} bytes of message {number} are not what was sent")
            case {"kind": "ask", "round": number}:
                memory = np.full(REGION_BYTES, UNTOUCHED, np.uint8)
                region = await self._fabric.register(memory)
                self._granted[number] = memory, region
                await self._send("grant", round=number, region=region.share("rw"))
            case {"kind": "written", "round": number}:
                memory = self._granted[number][0]
                self._check_written(memory, message)
                memory[:] = self._pattern(REGION_BYTES, self._tag, self._peer_tag, number)
                await self._send("checked", round=number)
            case {"kind": "done", "round": number}:
                self._shared.release(*self._granted.pop(number))
            case {"kind": "grant" | "checked"}:
                self._replies.put_nowait(message)
            case _:
                raise Wrong(f"no message of ours: {message!r}")

    def _check_written(self, memory: Bytes, message: dict[str, Any]) -> None:
        data = self._pattern(REGION_BYTES, self._peer_tag, self._tag, message["round"])
        pages = data.reshape(-1, message["page_bytes"])
        expected = np.full_like(pages, UNTOUCHED)
        expected[message["remote"]] = pages[message["local"]]
        wrong = np.flatnonzero(memory != expected.ravel())
        if wrong.size:
            raise Wrong(
                f"after a write {wrong.size} bytes are wrong, from byte {wrong[0]} on, in round "
                f"{message['round']} of {self._peer_tag} to {self._tag}"
            )

    async def _drive(self) -> None:
        await self.met.wait()
        for number in itertools.count():
            # Load, not synchronisation: all connections together are to leave the cores some rest.
            await asyncio.sleep(self._random.expovariate(1 / self._shared.pause_s))
            async with self._shared.gate, asyncio.timeout(ROUND_LIMIT_S):
                await self._round(number)
            self._shared.counts["rounds"] += 1

    async def _round(self, number: int) -> None:
        length_bytes = self._random.randrange(MAX_NOTE_BYTES)
        if not self._random.randrange(LONG_NOTE_EVERY):
            length_bytes = LONG_NOTE_BYTES
        message_number = next(self._sent)
        body = self._pattern(length_bytes, self._tag, self._peer_tag, message_number).tobytes()
        await self.endpoint.send({"kind": "note", "number": message_number, "body": body})
        memory = self._pattern(REGION_BYTES, self._tag, self._peer_tag, number)
        region = await self._fabric.register(memory)
        self._shared.counts["regions registered"] += 1
        try:
            await self._send("ask", round=number)
            remote = (await self._reply("grant", number))["region"]
            assert isinstance(remote, RemoteRegion)
            await self._write(region, remote, number)
            await self._reply("checked", number)
            await self._read(memory, region, remote, number)
            await self._send("done", round=number)
        finally:
            self._shared.release(memory, region)

    async def _reply(self, kind: str, number: int) -> dict[str, Any]:
        reply = await self._replies.get()
        if reply["kind"] != kind or reply["round"] != number:
            raise Wrong(f"{reply['kind']} of round {reply['round']} came for {kind} of {number}")
        return reply

    def _pages(self) -> dict[str, Any]:
        page_bytes = self._random.choice(PAGE_BYTES)
        count = REGION_BYTES // page_bytes
        chosen = self._random.randint(1, count)
        local, remote = (self._random.sample(range(count), chosen) for _ in range(2))
        return {"page_bytes": page_bytes, "local": local, "remote": remote}

    async def _write(self, region: MemoryRegion, remote: RemoteRegion, number: int) -> None:
        pages = self._pages()
        notification = {"kind": "written", "number": next(self._sent), "round": number, **pages}
        self._shared.counts["bytes written"] += await self.endpoint.write_pages(
            region,
            pages["local"],
            remote,
            pages["remote"],
            page_bytes=pages["page_bytes"],
            notify=notification,
        )

    async def _read(
        self, memory: Bytes, region: MemoryRegion, remote: RemoteRegion, number: int
    ) -> None:
        pages = self._pages()
        page_bytes = pages["page_bytes"]
        expected = memory.copy().reshape(-1, page_bytes)
        source = self._pattern(REGION_BYTES, self._peer_tag, self._tag, number)
        expected[pages["local"]] = source.reshape(-1, page_bytes)[pages["remote"]]
        self._shared.counts["bytes read"] += await self.endpoint.read_pages(
            region, pages["local"], remote, pages["remote"], page_bytes=page_bytes
        )
        wrong = np.flatnonzero(memory != expected.ravel())
        if wrong.size:
            raise Wrong(
                f"after a read {wrong.size} bytes are wrong, from byte {wrong[0]} on, in round "
                f"{number} of {self._tag} from {self._peer_tag}"
            )

    def _pattern(self, length_bytes: int, sender: int, receiver: int, number: int) -> Bytes:
        generator = np.random.default_rng([self._shared.seed, sender, receiver, number])
        return generator.integers(256, size=length_bytes, dtype=np.uint8)
