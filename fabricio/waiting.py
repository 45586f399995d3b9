"""Waiting: for what happens once, and for several things that are being closed.

Unlike a future, `Once` may be cancelled by none of its waiters, does not complain about an error
that nobody asked for, and can be waited for *through* cancellations.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable


class Once:
    """An event that is set at most once, well or with an error.

    Attributes:
        happened: whether it was set.
        error: what every waiter is told; None if all is well, or nothing happened yet.

    Thread: event loop only.
    """

    __slots__ = ("_loop", "_waiters", "error", "happened")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin as not happened."""
        self._loop = loop
        self._waiters: list[asyncio.Future[None]] = []
        self.happened = False
        self.error: BaseException | None = None

    def set(self, error: BaseException | None = None) -> None:
        """Let it happen; only the first call counts.

        Args:
            error: raised from every wait; None: waits return.
        """
        if self.happened:
            return
        self.happened = True
        self.error = error
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Wait until it has happened.

        Raises: the error it was set with.
        Cancellation: nothing is lost; others keep waiting.
        """
        await self.happens()
        self.check()

    async def outlast(self, on_cancel: Callable[[], object] | None = None) -> None:
        """Wait until it has happened, whatever cancellations come meanwhile.

        Args:
            on_cancel: called at every cancellation, to hurry things up.

        Raises: CancelledError if one came, else the error it was set with.
        Cancellation: raised after it has happened, not before.
        """
        cancelled: asyncio.CancelledError | None = None
        while not self.happened:
            try:
                await self._turn()
            except asyncio.CancelledError as error:
                cancelled = error
                if on_cancel is not None:
                    on_cancel()
        if cancelled is not None:
            try:
                raise cancelled
            finally:
                del cancelled  # it leads to this frame: what both hold goes without the collector
        self.check()

    async def happens(self) -> None:
        """Wait until it has happened, well or not.

        Cancellation: nothing is lost; others keep waiting.
        """
        while not self.happened:
            await self._turn()

    def check(self) -> None:
        """Raise the error it was set with, if any."""
        if self.error is not None:
            # One exception for many waiters: each raise begins a traceback of its own.
            raise self.error.with_traceback(None)

    async def _turn(self) -> None:
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)


async def close_all(
    loop: asyncio.AbstractEventLoop, closings: Iterable[Coroutine[object, object, None]]
) -> None:
    """Run all of them at once, each to its end.

    Args:
        loop: the running one.
        closings: they free everything when cancelled, without grace.

    Raises: what the first failing one raised, after all have ended.
    Cancellation: they are cancelled, but only once they have begun; raised when all have ended.
    """
    tasks = [loop.create_task(closing) for closing in closings]
    cancelled: asyncio.CancelledError | None = None
    while pending := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError as error:
            cancelled = error
            for task in pending:
                task.cancel()
    failures = [cancelled, *(task.exception() for task in tasks if not task.cancelled())]
    try:
        for failure in failures:
            if failure is not None:
                raise failure
    finally:
        del failures, cancelled, failure, tasks, pending  # as in `Once.outlast`
