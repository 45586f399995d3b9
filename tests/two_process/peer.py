"""The other process of these tests: `peer.py PROVIDER LOOP [SECRET]`, which prints its address.
PROVIDER may be "tcp@SOURCE".

It serves everyone who connects, until its standard input ends. Each message is a question:

    {"op": "region", "bytes": n, "seed": s}   makes its memory: random bytes, or zeros where the
                                              seed is None; answers {"region": ...}
    {"op": "hash", "start": a, "stop": b}     answers {"sha256": of that part of its memory}
    {"op": "write" or "read", ...}            moves pages of our region to or from its memory
    {"op": "echo", "value": v}                answers {"value": v}
    {"op": "notified"}                        answers the same; meant as a notification
    {"op": "wait", "how": h}                  says {"waits": True}, and then keeps its loop from
                                              running until it reads a byte; then {"waits": False}
    {"op": "fork"}                            has a child try to use the Fabric and die; answers
                                              {"status": of the child}
    {"op": "sigactions"}                      answers {"before": ..., "after": opening the Fabric}
    {"op": "close"}                           closes the endpoint
"""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import mmap
import os
import select
import signal
import sys
import time
from typing import Any

import numpy as np
import uvloop

from fabricio import Endpoint, Fabric, FabricioError, MemoryRegion

MAP_NORESERVE = 0x4000  # mmap names it from Python 3.13 on
SA_RESTORER = 0x04000000  # the C library's own business
INTERRUPTED = 7  # exit status after SIGINT


def map_memory(length_bytes: int) -> mmap.mmap:
    """Zeros that take no memory until they are touched."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    return mmap.mmap(-1, length_bytes, flags=flags)


class Sigaction(ctypes.Structure):
    """`struct sigaction` of glibc; the kernel knows the first word of the mask."""

    _fields_ = [
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    ]


def sigactions() -> list[list[int]]:
    """What the kernel does at each signal: number, handler, mask and flags."""
    libc = ctypes.CDLL(None)
    action = Sigaction()
    return [
        [number, action.handler or 0, action.mask[0], action.flags & ~SA_RESTORER]
        for number in map(int, sorted(signal.valid_signals()))
        if libc.sigaction(number, None, ctypes.byref(action)) == 0
    ]


def wait_for_a_byte(how: str) -> None:
    """Keep the loop from running: asleep, or computing with the GIL held."""
    while not select.select([sys.stdin], [], [], 0)[0]:
        if how == "sleep":
            time.sleep(0.02)
        else:
            sum(range(100_000))
    os.read(sys.stdin.fileno(), 1)


class Peer:
    """Answers the questions of one endpoint."""

    def __init__(self, fabric: Fabric, endpoint: Endpoint, before: list[list[int]]) -> None:
        self.fabric = fabric
        self.endpoint = endpoint
        self.before = before
        self.after = sigactions()
        self.memory: mmap.mmap | None = None
        self.region: MemoryRegion | None = None

    async def serve(self) -> None:
        try:
            async with self.endpoint:
                async for question in self.endpoint:
                    await self.answer(question)
        except FabricioError as error:
            sys.stderr.write(f"peer: {error}\n")  # the endpoint is over, the process is not

    async def answer(self, question: Any) -> None:  # noqa: ANN401  (any message)
        send = self.endpoint.send
        match question:
            case {"op": "region", "bytes": length_bytes, "seed": seed}:
                self.memory = map_memory(length_bytes)
                if seed is not None:
                    self.memory[:] = np.random.default_rng(seed).bytes(length_bytes)
                self.region = await self.fabric.register(self.memory)
                await send({"region": self.region.share("rw")})
            case {"op": "hash", "start": start, "stop": stop}:
                assert self.memory is not None
                await send({"sha256": hashlib.sha256(self.memory[start:stop]).hexdigest()})
            case {"op": "write" | "read" as op, "region": remote, "notify": notify}:
                assert self.region is not None
                writes = op == "write"
                move = self.endpoint.write_pages if writes else self.endpoint.read_pages
                local, far = question["local"], question["remote"]
                page_bytes = question["page_bytes"]
                await move(self.region, local, remote, far, page_bytes=page_bytes, notify=notify)
            case {"op": "echo", "value": value}:
                await send({"value": value})
            case {"op": "wait", "how": how}:
                await send({"waits": True})
                await self.endpoint.flush()
                wait_for_a_byte(how)
                await send({"waits": False})
            case {"op": "fork"}:
                await send({"status": fork_and_use(self.fabric)})
            case {"op": "sigactions"}:
                await send({"before": self.before, "after": self.after})
            case {"op": "notified"} as notification:
                await send(notification)
            case {"op": "close"}:
                await self.endpoint.aclose()
            case _:
                raise AssertionError(f"no question: {question!r}")


def fork_and_use(fabric: Fabric) -> int:
    """Let a child use the Fabric and then die by a signal, or exit if it was allowed to."""
    child = os.fork()
    if not child:
        try:
            fabric.listen()
        except FabricioError:
            os.kill(os.getpid(), signal.SIGTERM)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


async def main(provider: str, source: str | None, secret: bytes | None) -> None:
    before = sigactions()
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()

    def read_input() -> None:
        if not os.read(sys.stdin.fileno(), 1):
            ended.set()

    async with Fabric(
        provider=provider, source=source, peer_timeout_s=2.0, secret=secret
    ) as fabric:

        async def serve_all() -> None:
            async for endpoint in listener:
                tasks.add(loop.create_task(Peer(fabric, endpoint, before).serve()))

        async with fabric.listen() as listener:
            tasks.add(loop.create_task(serve_all()))
            loop.add_reader(sys.stdin, read_input)
            sys.stdout.write(f"{fabric.address}\n")
            sys.stdout.flush()
            await ended.wait()
            loop.remove_reader(sys.stdin)
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    factory = uvloop.new_event_loop if sys.argv[2] == "uvloop" else asyncio.new_event_loop
    provider, _, source = sys.argv[1].partition("@")
    if provider == "tcp" and not source:
        source = "127.0.0.1"
    secret = sys.argv[3].encode() if sys.argv[3:] else None
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main(provider, source or None, secret))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
