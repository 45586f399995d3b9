"""Programs that end, in whatever way, while transfers run.

    python -m tests.two_process.endings PROGRAM LOOP PROVIDER [ADDRESS]

Each says "under way" when transfers move that would take longer than any test. With the address of
a peer (peer.py) they are with that one, else between two Fabrics of the program. It then goes on
when it reads a line.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from array import array
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Self

from fabricio import Fabric, FabricioError
from tests.loopback.programs import KEPT, OPTIONS, new_loop, run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fabricio import Endpoint

SLOW: dict[str, Any] = {"inflight_count": 1, "segments": 1, "merge": False}
PAGES, PAGE_BYTES = 1 << 20, 8
ALL_PAGES = array("q", range(PAGES))  # taken as it is, where a range takes a tenth of a second


class Mine(Exception):
    """What a program ends by."""


class Busy:
    """Transfers between two Fabrics: two writes, a read and a notification."""

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        timeout_s = 1.0 if sys.argv[4:] else 10.0  # of a peer that will be stopped, or will not
        near = Fabric(**OPTIONS, **SLOW, peer_timeout_s=timeout_s)
        await self._stack.enter_async_context(near)
        page = await near.register(bytearray(PAGES * PAGE_BYTES))
        if sys.argv[4:]:
            self.a: Endpoint = await near.connect(sys.argv[4])
            await self.a.send({"op": "region", "bytes": PAGES * PAGE_BYTES, "seed": None})
            answer: Any = await self.a.recv()
            remote = answer["region"]
        else:
            far = await self._stack.enter_async_context(Fabric(**OPTIONS, **SLOW))
            async with far.listen() as listener:
                self.a = await near.connect(far.address)
                b = await listener.accept()
            row = await far.register(bytearray(PAGES * PAGE_BYTES))
            await b.send(row.share("rw"))
            remote = await self.a.recv()
        where = (page, ALL_PAGES, remote, ALL_PAGES)
        write, read = self.a.write_pages, self.a.read_pages
        self.transfers = [
            write(*where, page_bytes=PAGE_BYTES, notify={"op": "notified"}),
            write(*where, page_bytes=PAGE_BYTES),
            read(*where, page_bytes=PAGE_BYTES),
        ]
        while not all(transfer.pages_done for transfer in self.transfers):
            await self.a.flush()
        sys.stdout.write("under way\n")
        sys.stdout.flush()
        sys.stdin.readline()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    def drop(self) -> None:
        """Let go of the Fabrics without closing them."""
        self._stack.pop_all()

    async def wait(self) -> None:
        """Wait for everything that does not come."""
        async with asyncio.TaskGroup() as group:
            for transfer in self.transfers:
                group.create_task(_wait_for(transfer))
            group.create_task(_wait_for(self.a.recv()))


async def _wait_for(awaitable: Awaitable[object]) -> None:
    await awaitable


def raises() -> None:
    """An exception leaves the block."""

    async def main() -> None:
        async with Busy():
            raise Mine

    run(main())


def exits() -> None:
    """sys.exit within the block."""

    async def main() -> None:
        async with Busy():
            sys.exit(3)

    run(main())


def one_fails() -> None:
    """One of many tasks that wait fails, and takes the others with it."""

    async def fail() -> None:
        raise Mine

    async def main() -> None:
        async with Busy() as busy, asyncio.TaskGroup() as group:
            group.create_task(busy.wait())
            await asyncio.sleep(0)
            group.create_task(fail())

    try:
        run(main())
    except* Mine:
        sys.exit(3)


def waits() -> None:
    """All wait, until a signal comes."""

    async def main() -> None:
        async with Busy() as busy:
            await busy.wait()

    run(main())


def _left_open(end: Callable[[], object]) -> None:
    async def main() -> None:
        KEPT.append(await Busy().__aenter__())
        end()

    run(main())


def raises_open() -> None:
    """An exception, and nobody closes anything; the loop is closed."""

    def end() -> None:
        raise Mine

    _left_open(end)


def exits_open() -> None:
    """sys.exit, and nobody closes anything; the loop is closed."""

    def end() -> None:
        sys.exit(3)

    _left_open(end)


def loop_closed() -> None:
    """The loop is over, and nobody closes anything."""
    _left_open(lambda: None)


def loop_stopped() -> None:
    """The loop is stopped while tasks wait, and is never run again or closed."""
    loop = new_loop()
    KEPT.append(loop)

    async def main() -> None:
        busy = await Busy().__aenter__()
        KEPT.extend([busy, asyncio.create_task(busy.wait())])
        await asyncio.sleep(0)
        loop.stop()

    KEPT.append(loop.create_task(main()))
    loop.run_forever()


def daemon() -> None:
    """The loop runs in a daemon thread, with tasks that wait."""
    ready = threading.Event()

    async def main() -> None:
        busy = await Busy().__aenter__()
        KEPT.append(busy)
        ready.set()
        with suppress(BaseExceptionGroup):  # as the end of the process has it
            await busy.wait()

    threading.Thread(target=lambda: run(main()), daemon=True).start()
    ready.wait()


def dropped() -> None:
    """Nobody has the Fabrics any more, but tasks that wait have the transfers."""

    async def main() -> None:
        busy = await Busy().__aenter__()
        waiting = asyncio.create_task(busy.wait())
        await asyncio.sleep(0)
        busy.drop()
        await asyncio.wait([waiting])
        errors = waiting.exception()
        assert isinstance(errors, ExceptionGroup), errors
        assert errors.split(FabricioError)[1] is None

    run(main())


if __name__ == "__main__":
    globals()[sys.argv[1]]()
