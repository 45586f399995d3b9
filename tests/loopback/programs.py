"""Programs that the tests of good manners run in processes of their own.

    python programs.py PROGRAM LOOP PROVIDER

A program that ends without a word and with status 0 behaved.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import uvloop

import fabricio
from fabricio import ClosedResourceError, Endpoint, Fabric, RemoteRegion, Transfer
from fabricio.testing import check_endpoint_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

LOOP, PROVIDER = sys.argv[2:4]
OPTIONS: dict[str, Any] = {"provider": PROVIDER}
if PROVIDER == "tcp":
    OPTIONS["source"] = "127.0.0.1"

KEPT: list[object] = []


def new_loop() -> asyncio.AbstractEventLoop:
    loop = uvloop.new_event_loop() if LOOP == "uvloop" else asyncio.SelectorEventLoop()
    loop.slow_callback_duration = 3600.0  # how busy the machine is does not matter here
    return loop


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(coroutine)


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[Fabric, Fabric, Endpoint, Endpoint]]:
    async with Fabric(**OPTIONS) as near, Fabric(**OPTIONS) as far:
        async with far.listen() as listener:
            a = await near.connect(far.address)
            b = await listener.accept()
        yield near, far, a, b


async def works(a: Endpoint, b: Endpoint) -> None:
    await check_endpoint_pair(a, b, page_count=4)


def dispositions() -> dict[str, int]:
    """Signals that are blocked, ignored and caught, as the kernel sees it."""
    with open("/proc/self/status") as status:
        lines = [line.split() for line in status if line.startswith(("SigB", "SigI", "SigC"))]
    # glibc catches 32 and 33 for itself once there are threads.
    return {name: int(mask, 16) & ~(3 << 31) for name, mask in lines}


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in signal.valid_signals()]


def signals() -> None:
    """What signals do stays what it was, and Python's own handlers are called."""

    async def main() -> None:
        caught = asyncio.Event()
        loop = asyncio.get_running_loop()
        signal.signal(signal.SIGTERM, lambda *_: loop.call_soon_threadsafe(caught.set))
        before = dispositions(), handlers()
        async with opened() as (_, _, a, b):
            assert (dispositions(), handlers()) == before
            await works(a, b)
            os.kill(os.getpid(), signal.SIGTERM)
            await caught.wait()
            await works(a, b)
            assert (dispositions(), handlers()) == before
        assert (dispositions(), handlers()) == before

    run(main())


class Forker:
    """Two connected Fabrics of a parent, and what a forked child may not do with them."""

    async def open(self) -> None:
        self._stack = AsyncExitStack()
        enter = self._stack.enter_async_context
        self._near, far, self._a, self._b = await enter(opened())
        # A child that exits with an open port on uvloop crashes there, with or without fabricio.
        self._listener = await enter(self._near.listen())
        self._prepared = self._near.listen()
        self._region = await self._near.register(bytearray(1 << 20))
        await self._b.send((await far.register(bytearray(1 << 20))).share("rw"))
        remote = await self._a.recv()
        assert isinstance(remote, RemoteRegion)
        self._remote = remote

    def child_is_refused(self, transfer: Transfer | None = None) -> None:
        near, a, region, remote = self._near, self._a, self._region, self._remote
        peer = str(self._b.peer)
        uses: list[Callable[[], object]] = [
            near.statistics,
            near.listen,
            lambda: near.address,
            lambda: near.attributes,
            lambda: region.share("r"),
            lambda: region[:8].share("r"),
            lambda: a.write(region, remote),
            lambda: a.read(region, remote),
            lambda: a.write_pages(region, [0], remote, [0], page_bytes=8),
            lambda: a.read_pages(region, [0], remote, [0], page_bytes=8),
        ]
        waits: list[Callable[[], Coroutine[Any, Any, object]]] = [
            lambda: a.send(1),
            a.recv,
            a.flush,
            a.__anext__,
            lambda: near.register(bytearray(8)),
            lambda: near.connect(peer),
            lambda: near.connect("127.0.0.1:1"),
            self._listener.accept,
            self._listener.__anext__,
            self._prepared.__aenter__,
        ]
        uses += [lambda wait=wait: wait().send(None) for wait in waits]  # type: ignore[misc]
        if transfer is not None:
            uses += [transfer.cancel, lambda: next(transfer.__await__())]
        for use in uses:
            try:
                use()
            except ClosedResourceError as error:
                if "fork" in str(error):
                    continue
                raise
            raise AssertionError("a forked child was not refused")
        listener, prepared = self._listener, self._prepared
        for leave in (
            *(a.aclose, region.deregister, near.aclose, listener.aclose, prepared.aclose),
        ):
            try:
                leave().send(None)
            except StopIteration:  # they are the parent's: nothing to do, and no error
                continue
            raise AssertionError("a forked child waited")

    async def fork(self, end: Callable[[], object]) -> None:
        """Fork with a message and a transfer under way; return the parent when the child is dead.

        Args:
            end: ends the child.
        """
        await self._b.send("under way")
        transfer = self._a.write(self._region, self._remote)
        child = os.fork()
        if child == 0:
            self.child_is_refused(transfer)
            end()
        # A child that unwinds takes away what wakes the parent's loop from other threads.
        while not (found := os.waitpid(child, os.WNOHANG))[0]:  # noqa: ASYNC110, ASYNC222  (as said)
            await asyncio.sleep(0.001)
        KEPT.append(found[1])
        assert await self._a.recv() == "under way"
        assert await transfer == self._region.length_bytes

    async def close(self) -> None:
        await works(self._a, self._b)
        await self._stack.aclose()


def _fork_within(end: Callable[[], object]) -> None:
    async def main() -> None:
        forker = Forker()
        await forker.open()
        await forker.fork(end)
        await forker.close()

    run(main())


def fork_exit() -> None:
    """The child ends at once."""
    _fork_within(lambda: os._exit(0))
    assert KEPT == [0]


def fork_killed() -> None:
    """The child is killed by a signal that shm's provider would catch."""
    _fork_within(lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert KEPT == [signal.SIGTERM]


def fork_unwinds() -> None:
    """The child unwinds its copy of the running loop.

    Not on uvloop, which then takes the parent's descriptors out of the epoll that both share.
    """
    _fork_within(lambda: sys.exit(0))
    assert KEPT == [0]


def fork_sys_exit() -> None:
    """The child is forked while the loop does not run, and exits like any program."""
    loop = new_loop()
    forker = Forker()
    loop.run_until_complete(forker.open())
    child = os.fork()
    if child == 0:
        forker.child_is_refused()
        sys.exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    loop.run_until_complete(forker.close())
    loop.close()


def left_behind() -> None:
    """Twice in one process: tasks are left in recv when the Fabric, and then the loop, closes."""

    async def main() -> None:
        async with opened() as (_, far, a, b):
            await works(a, b)
            KEPT.extend(asyncio.create_task(b.recv()) for _ in range(2))
            listener = await far.listen().__aenter__()
            KEPT.append(asyncio.create_task(listener.accept()))
            await a.flush()

    for _ in range(2):
        run(main())
        assert len(os.listdir("/proc/self/task")) == 1
        assert threading.active_count() == 1
        KEPT.clear()


def cancelled() -> None:
    """The loop ends by an interruption while everything is in use."""

    async def main() -> None:
        async with opened() as (_, _, a, b):
            await works(a, b)
            KEPT.append(asyncio.create_task(b.recv()))
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
            await a.recv()

    for _ in range(2):
        try:
            run(main())
        except KeyboardInterrupt:
            KEPT.clear()
        else:
            raise AssertionError("it was not interrupted")


def without_numpy() -> None:
    """Everything but numpy's own arrays works without numpy."""
    sys.modules["numpy"] = None  # type: ignore[assignment]  # so that importing it fails

    async def main() -> None:
        async with opened() as (_, _, a, b):
            await works(a, b)

    run(main())


def import_alone() -> None:
    """Importing loads neither libfabric nor the engine nor numpy."""
    assert set(fabricio.__all__) <= set(dir(fabricio))
    assert "numpy" not in sys.modules
    assert "fabricio._ffi._native" not in sys.modules
    with open("/proc/self/maps") as maps:
        assert "libfabric" not in maps.read()


async def _leave_open() -> None:
    near, far = Fabric(**OPTIONS), Fabric(**OPTIONS)
    KEPT.extend([await near.__aenter__(), await far.__aenter__()])
    async with far.listen() as listener:
        a = await near.connect(far.address)
        b = await listener.accept()
    KEPT.extend([a, b, await near.register(bytearray(1 << 20))])
    await works(a, b)


def exit_open() -> None:
    """The interpreter exits with open Fabrics whose loop is closed."""
    run(_leave_open())


def exit_open_loop() -> None:
    """The interpreter exits with open Fabrics whose loop is open and idle."""
    loop = new_loop()
    KEPT.append(loop)
    loop.run_until_complete(_leave_open())


def exit_within() -> None:
    """The interpreter exits from within the loop."""

    async def main() -> None:
        await _leave_open()
        sys.exit(0)

    run(main())


def exit_thread() -> None:
    """The interpreter exits while the loop runs in a daemon thread."""
    ready = threading.Event()

    async def main() -> None:
        await _leave_open()
        ready.set()
        await asyncio.get_running_loop().create_future()

    threading.Thread(target=lambda: run(main()), daemon=True).start()
    ready.wait()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
