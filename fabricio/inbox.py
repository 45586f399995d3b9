"""`Inbox`: received messages in order, each handed to exactly one `recv`.

A notification waits here until the engine says that its transfer has arrived, and holds back the
messages behind it, since messages of one endpoint never overtake each other.

Who waits is woken, and takes the first message only when its task runs. So a task that is cancelled
in between has nothing to give back, and no message gets behind a later one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from fabricio.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable


class Entry(NamedTuple):
    """One message for the application: a value, or the error that stands in its place."""

    value: object
    charge: int
    error: Exception | None


class Inbox:
    """Messages between the reader, which puts, and tasks, which get, first come first served.

    Thread: event loop only.
    """

    __slots__ = (
        "_arrival_limit",
        "_arrivals",
        "_closed",
        "_consumed",
        "_end",
        "_held",
        "_loop",
        "_ready",
        "_waiters",
        "_woken_count",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        consumed: Callable[[int], object],
        arrival_limit: int,
    ) -> None:
        """Begin empty.

        Args:
            loop: where waiters wait.
            consumed: called with the charge of each message that the application has taken.
            arrival_limit: arrivals kept for messages that are not here yet; a peer that sends
                more is broken.
        """
        self._loop = loop
        self._consumed = consumed
        self._arrival_limit = arrival_limit
        self._ready: deque[Entry] = deque()
        self._held: deque[tuple[object, int, int | None]] = deque()
        self._arrivals: dict[int, Exception | None] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._woken_count = 0  # tasks that will run, each for one message of those that are ready
        self._end: Exception | None = None
        self._closed = False

    def put(self, value: object, charge: int, transfer: int | None) -> None:
        """Take the next message of the peer.

        Args:
            value: the message.
            charge: what it costs of the window.
            transfer: sequence number of the transfer that must have arrived first; None: none.
        """
        if transfer is None and not self._held:
            self._deliver(Entry(value, charge, None))
        else:
            self._held.append((value, charge, transfer))
            self._release()

    def arrived(self, sequence: int, error: Exception | None) -> None:
        """Take the news that a transfer is in place, or that it never will be.

        Args:
            sequence: the peer's number of it.
            error: raised by `get` in place of its notification; None: all is in place.

        Raises: RemoteProtocolError: too many of them without their messages.
        """
        if len(self._arrivals) >= self._arrival_limit:
            raise RemoteProtocolError(
                f"the peer announced {self._arrival_limit} transfers without their notifications"
            )
        self._arrivals[sequence] = error
        self._release()

    def finish(self, error: Exception) -> None:
        """Let `get` raise once everything that is here was taken: no more messages come."""
        if self._end is None:
            self._end = error
            self._wake_at_end()

    def cut(self, error: Exception) -> None:
        """Do as `finish`, and give up what waits for a transfer that will not arrive any more."""
        self._held.clear()
        self._end = error
        self._wake_at_end()

    def close(self, error: Exception) -> list[Entry]:
        """Let every `get`, waiting or to come, raise.

        Returns: what could have been taken, and is dropped now.
        """
        self._closed = True
        dropped = list(self._ready)
        self._ready.clear()
        self.cut(error)
        return dropped

    async def get(self) -> object:
        """Take the next message.

        Raises: RemoteTransferError in place of one notification; the error of `finish`, `cut` or
            `close`.
        Cancellation: no message is lost; it stays for the next call.
        """
        if len(self._ready) <= self._woken_count and not self._at_end():
            await self._wait()
            if self._closed:
                _excuse(asyncio.current_task(), self._end)
        if not self._ready:
            assert self._end is not None
            raise self._end.with_traceback(None)
        entry = self._ready.popleft()
        if self._end is not None:
            self._wake_at_end()
        self._consumed(entry.charge)
        if entry.error is not None:
            raise entry.error
        return entry.value

    async def _wait(self) -> None:
        """Wait until the first message is this task's to take, or none will come any more."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
            else:  # woken in the very turn of the loop in which it was cancelled: another's turn
                self._woken_count -= 1
                self._wake()
            raise
        self._woken_count -= 1

    def _wake(self) -> None:
        """Wake one task for each message that nobody was woken for, first come first served."""
        waiters = self._waiters
        while waiters and len(self._ready) > self._woken_count:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._woken_count += 1

    def _deliver(self, entry: Entry) -> None:
        self._ready.append(entry)
        if self._waiters:
            self._wake()

    def _release(self) -> None:
        held = self._held
        while held:
            value, charge, transfer = held[0]
            error = None
            if transfer is not None:
                if transfer not in self._arrivals:
                    return
                error = self._arrivals.pop(transfer)
            held.popleft()
            self._deliver(Entry(value, charge, error))
        self._wake_at_end()

    def _at_end(self) -> bool:
        return self._end is not None and not self._held and not self._ready

    def _wake_at_end(self) -> None:
        if self._at_end():
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
                    self._woken_count += 1
            self._waiters.clear()


def _excuse(task: asyncio.Task[object] | None, error: Exception | None) -> None:
    """Let a task that was left waiting end by our own close without a complaint by asyncio.

    Who awaits the task still gets the error. Any other exception that ends it is complained about
    as ever, so its exception is looked at without asking for it, which would count as taken.
    """

    def ended(task: asyncio.Task[object]) -> None:
        if getattr(task, "_exception", None) is error:
            task.exception()

    if task is not None:
        task.add_done_callback(ended)
