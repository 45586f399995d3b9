"""A process of the soak: `python -m tests.soak.worker`, with its settings as JSON.

It reads a command a line from its standard input, and writes an event a line to its standard
output. A peer is a Fabric that is connected to all others; its tag is the supervisor's number.

    {"op": "join", "tag": t}              opens a peer: {"event": "joined", "tag": t, "address": a}
    {"op": "connect", "tag": t, "to": [[tag, address], ...]}
                                          keeps it connected to those, until they are gone
    {"op": "gone", "tag": t}              that peer is none any more
    {"op": "leave", "tag": t}             closes the peer as it is: {"event": "left", "tag": t}
    {"op": "status"}                      {"event": "status", "links": {t: n}}
    {"op": "sample"}                      {"event": "sample", "held": {what: how much}}
    {"op": "end"}                         closes all and ends: {"event": "ended", "counts": {...}}

What goes wrong is an event of its own, "trouble"; whether that was to be expected is the
supervisor's to say.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import resource
import signal
import sys
import time
from collections import Counter
from dataclasses import asdict
from typing import Any

import uvloop

from fabricio import Address, Endpoint, Fabric
from tests.soak.link import Link, Shared

PR_SET_PDEATHSIG = 1
CONNECTS_AT_ONCE = 8
ROUNDS_AT_ONCE = 32
RETRY_S = 0.2
END_LIMIT_S = 20.0


def say(event: str, **content: object) -> None:
    """Write an event for the supervisor."""
    line = json.dumps({"event": event, "at": time.monotonic(), **content})
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Peer:
    """One Fabric and its connections."""

    def __init__(self, tag: int, settings: dict[str, Any], shared: Shared) -> None:
        self.tag = tag
        self.fabric = Fabric(**settings)
        self.links: set[Link] = set()
        self.wanted: set[int] = set()
        self._joined = asyncio.Event()
        self._shared = shared
        self._connects = asyncio.Semaphore(CONNECTS_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    async def join(self) -> None:
        """Open the Fabric and take whoever connects."""
        try:
            await self.fabric.__aenter__()
            self._listener = self.fabric.listen()
            await self._listener.__aenter__()
        finally:
            self._joined.set()
        self._start(self._serve())
        say("joined", tag=self.tag, address=str(self.fabric.address))

    def connect(self, targets: list[tuple[int, str]]) -> None:
        """Keep connected to these."""
        for tag, address in targets:
            self.wanted.add(tag)
            self._start(self._keep_connected(tag, address))

    async def leave(self) -> None:
        """Close the Fabric in the midst of all that runs."""
        self.wanted.clear()
        await self._joined.wait()
        self._shared.counts.update(
            {
                f"fabric: {name}": count
                for name, count in asdict(self.fabric.statistics()).items()
                if count
            }
        )
        await self.fabric.aclose()
        while self._tasks:
            await asyncio.wait(self._tasks)
        say("left", tag=self.tag)

    def _start(self, work: Any) -> None:  # noqa: ANN401  (a coroutine)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self) -> None:
        async for endpoint in self._listener:
            self._start(self._work(endpoint))

    async def _keep_connected(self, tag: int, address: str) -> None:
        incarnation = Address.parse(address).incarnation.hex()
        while tag in self.wanted:
            try:
                async with self._connects:
                    endpoint = await self.fabric.connect(address)
            except Exception as error:
                self._trouble("connect", incarnation, error)
            else:
                await self._work(endpoint)
            await asyncio.sleep(RETRY_S)

    async def _work(self, endpoint: Endpoint) -> None:
        link = Link(endpoint, self.fabric, self.tag, self._shared)
        self.links.add(link)
        try:
            reasons = await link.run()
        except Exception as error:
            reasons = [error]
        finally:
            self.links.discard(link)
        for reason in reasons:
            self._trouble("work", endpoint.peer.incarnation.hex(), reason)

    def _trouble(self, doing: str, incarnation: str, error: Exception) -> None:
        say(
            "trouble",
            doing=doing,
            tag=self.tag,
            about=incarnation,
            kind=type(error).__name__,
            text=str(error),
        )


class Worker:
    """Does what the supervisor says."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._fabric_settings = settings["fabric"]
        self._peers: dict[int, Peer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._shared = Shared(
            seed=settings["seed"],
            pause_s=settings["pause_s"],
            report=self._report,
            gate=asyncio.Semaphore(ROUNDS_AT_ONCE),
            outlives_fabric=self._fabric_settings["provider"] == "shm",
        )

    async def run(self) -> None:
        """Obey until told to end, or until nobody is left to tell."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        loop.set_exception_handler(self._meet)
        while line := await reader.readline():
            command = json.loads(line)
            if command["op"] == "end":
                break
            self._obey(command)
        await asyncio.gather(*self._tasks, *(self._leave(tag) for tag in list(self._peers)))
        await self._shared.finish(END_LIMIT_S)
        say("ended", counts=dict(self._shared.counts))

    def _obey(self, command: dict[str, Any]) -> None:
        match command:
            case {"op": "join", "tag": tag}:
                self._peers[tag] = Peer(tag, self._fabric_settings, self._shared)
                self._start(self._peers[tag].join())
            case {"op": "connect", "tag": tag, "to": targets}:
                self._peers[tag].connect(targets)
            case {"op": "gone", "tag": tag}:
                for peer in self._peers.values():
                    peer.wanted.discard(tag)
            case {"op": "leave", "tag": tag}:
                self._start(self._leave(tag))
            case {"op": "status"}:
                links = {
                    tag: sum(link.met.is_set() for link in peer.links)
                    for tag, peer in self._peers.items()
                }
                say("status", links=links)
            case {"op": "sample"}:
                say("sample", held=self._sample())
            case _:
                raise AssertionError(f"no command: {command!r}")

    def _start(self, work: Any) -> None:  # noqa: ANN401  (a coroutine)
        task = asyncio.get_running_loop().create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Any) -> None:  # noqa: ANN401  (a coroutine)
        try:
            await work
        except Exception as error:
            self._report(error)

    async def _leave(self, tag: int) -> None:
        await self._peers[tag].leave()
        del self._peers[tag]

    def _sample(self) -> dict[str, int]:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what is held counts, not what once was
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[1])
        held: Counter[str] = Counter(
            {
                "RSS in bytes": pages * resource.getpagesize(),
                "descriptors": len(os.listdir("/proc/self/fd")),
                "threads": len(os.listdir("/proc/self/task")),
                "objects of Python": len(gc.get_objects()),
                "regions kept for silent peers": len(self._shared.kept),
            }
        )
        for peer in self._peers.values():
            engine = peer.fabric._running()
            held["channels"] += len(engine.channels)
        return dict(held)

    def _meet(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._report(context.get("exception") or RuntimeError(context["message"]))

    def _report(self, error: BaseException) -> None:
        say(
            "trouble", doing="run", tag=None, about=None, kind=type(error).__name__, text=str(error)
        )


def main() -> None:
    """Run a worker, with as many descriptors as it may have; die with the supervisor."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    settings = json.loads(sys.argv[1])
    factory = uvloop.new_event_loop if settings["uvloop"] else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.get_loop().slow_callback_duration = 3600.0
        runner.run(Worker(settings).run())


if __name__ == "__main__":
    main()
