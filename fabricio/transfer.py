"""`Transfer`: pages on their way, as something to await."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fabricio.errors import CompletionError, FabricError, FabricioError, PeerLostError
from fabricio.waiting import Once

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from fabricio._ffi._native import Transfer as Handle
    from fabricio.completion import Completion
    from fabricio.engine import Engine
    from fabricio.memory import MemoryRegion
    from fabricio.remote import Grant


class Transfer:
    """One write or read. Made by the methods of `Endpoint`; it runs whether awaited or not.

    Await it any number of times, from any number of tasks: the value is the number of bytes
    moved. Awaiting raises what the transfer failed with: CompletionError or one of its subclasses
    (`PeerLostError`, `RemoteAccessError`), `ClosedResourceError` when the endpoint was closed
    under it, `BrokenResourceError` when the endpoint or the engine broke.

    Cancelling a task that awaits it cancels the transfer: it posts no more, and CancelledError is
    raised once the NIC holds none of its memory, or once that can no longer be known because the
    peer is gone; the region stays pinned until it is known. Other tasks that await it get
    CancelledError as well. The destination may then hold some, all or none of the data.

    Attributes:
        operation: "write" or "read".
        bytes_total: bytes to be moved.
        pages_total: pages to be moved.
        loss: set by the endpoint when the peer is lost, so that the failure says so.

    Thread: event loop only.   Source: fi_rma(3), fi_cq(3).
    """

    __slots__ = (
        "_bytes_done",
        "_cancelled",
        "_end_cause",
        "_engine",
        "_finished",
        "_grant",
        "_handle",
        "_on_end",
        "_pages_done",
        "_quiet",
        "_region",
        "_sent",
        "bytes_total",
        "loss",
        "operation",
        "pages_total",
    )

    def __init__(
        self,
        engine: Engine,
        operation: str,
        pages_total: int,
        page_bytes: int,
        on_end: Callable[[Transfer], object],
    ) -> None:
        """Begin as not started: `started` or `skip` follows.

        Args:
            engine: the engine it runs on.
            operation: "write" or "read".
            pages_total: pages to be moved.
            page_bytes: bytes of each.
            on_end: called with this once the outcome is known.
        """
        self.operation = operation
        self.pages_total = pages_total
        self.bytes_total = pages_total * page_bytes
        self.loss: PeerLostError | None = None
        self._engine = engine
        self._handle: Handle | None = None
        self._region: MemoryRegion | None = None
        self._grant: Grant | None = None
        self._on_end = on_end
        self._pages_done = 0
        self._bytes_done = 0
        self._cancelled = False
        self._end_cause: BaseException | None = None
        self._finished = Once(engine.loop)
        self._quiet = Once(engine.loop)
        self._sent: Once | None = None

    def __repr__(self) -> str:
        """Show how far it is."""
        state = "running"
        if self._finished.happened:
            state = type(self._finished.error).__name__ if self._finished.error else "done"
        return (
            f"<Transfer {self.operation} {self.bytes_done}/{self.bytes_total} bytes "
            f"{self.pages_done}/{self.pages_total} pages {state}>"
        )

    def __await__(self) -> Generator[object, None, int]:
        """Wait for the outcome; see the class."""
        return self._wait().__await__()

    @property
    def bytes_done(self) -> int:
        """Bytes whose local completions were seen so far."""
        if self._handle is not None and self._engine.has_workers:
            return self._engine.lib.fab_transfer_bytes_done(self._handle)
        return self._bytes_done

    @property
    def pages_done(self) -> int:
        """Pages whose local completions were seen so far."""
        if self._handle is not None and self._engine.has_workers:
            return self._engine.lib.fab_transfer_pages_done(self._handle)
        return self._pages_done

    def done(self) -> bool:
        """Return whether the outcome is known, good or bad."""
        return self._finished.happened

    async def drained(self) -> None:
        """Wait until it has ended, and the NIC holds none of its memory any more.

        That is as soon as the outcome is known, unless the peer is stopped or gone: then the
        memory stays pinned, and the end of the Fabric ends this wait at the latest.

        Raises: nothing of what the transfer failed with.
        Cancellation: nothing changes; the transfer goes on.
        """
        await self._quiet.happens()

    def cancel(self) -> bool:
        """Post no more of it. Awaiting it raises CancelledError, unless all was done already.

        Returns: False if the outcome was known before.
        Raises: FabricioError: called from another loop or thread.
        Thread: event loop only.   Source: fi_cancel(3), which is not used.
        """
        self._engine.check_loop()
        if self._finished.happened:
            return False
        self.end(asyncio.CancelledError())
        return True

    def end(self, cause: BaseException) -> None:
        """Stop it for a cause, which becomes its outcome unless all was done already.

        Args:
            cause: what awaiting raises; only the first one counts.
        """
        if self._end_cause is None and not self._finished.happened:
            self._end_cause = cause
            if self._handle is not None and self._engine.has_workers:
                # A failure here means that the worker is gone, which ends the transfer as well.
                self._engine.lib.fab_transfer_cancel(self._engine.handle, self._handle)

    def started(self, handle: Handle, region: MemoryRegion, grant: Grant) -> None:
        """Take what the engine made of it, before anything else can fail.

        Args:
            handle: the engine's, released by `on_completion`.
            region: kept alive until the NIC holds none of it.
            grant: of the peer's region; counts this as long.
        """
        self._handle = handle
        self._region = region
        self._grant = grant
        grant.begin()

    def notifies(self, sent: Once | None) -> None:
        """Wait for its notification as well.

        Args:
            sent: happens when the notification has left, or cannot; None: it has left.
        """
        self._sent = sent

    def skip(self) -> None:
        """End it well: it has nothing to move."""
        self._finished.set()
        self._quiet.set()

    def on_completion(self, completion: Completion) -> None:
        """Take FAB_TRANSFER_DONE, FAB_TRANSFER_QUIET or the engine's death."""
        engine = self._engine
        if completion.cause is not None:
            # The engine frees the handle when it is closed; until then the region is pinned.
            self._keep_counts()
            self._handle = None
            self._finish(completion.cause)
            engine.dependents.add(self)
            return
        if completion.kind == engine.lib.FAB_TRANSFER_DONE:
            self._keep_counts()
            self._finish(self._outcome(completion))
            if not completion.quiet:
                engine.dependents.add(self)
                return
        engine.dependents.discard(self)
        self._quiet.set()
        handle, self._handle, self._region = self._handle, None, None
        if handle is not None:
            engine.lib.fab_transfer_release(engine.handle, handle)
        grant, self._grant = self._grant, None
        if grant is not None:
            grant.end()

    def engine_failed(self, cause: Exception) -> None:
        """Do nothing: the memory is not quiet before the engine is closed."""

    def engine_closed(self) -> None:
        """Take the news that the NIC holds nothing any more."""
        if not self._engine.loop.is_closed():
            self._quiet.set()

    def _keep_counts(self) -> None:
        if self._handle is not None:
            self._bytes_done, self._pages_done = self.bytes_done, self.pages_done

    def _outcome(self, completion: Completion) -> BaseException | None:
        if not completion.status:
            return None
        if self._end_cause is not None:
            return self._end_cause
        error = self._engine.error(completion, self.operation)
        if self.loss is not None:
            error = lost(error)
            error.peer, error.since = self.loss.peer, self.loss.since
        if isinstance(error, CompletionError):
            error.pages_done = self._pages_done
            error.bytes_done = self._bytes_done
            error.quiesced = completion.quiet
            if not completion.quiet:
                error._drain = self.drained
        return error

    def _finish(self, error: BaseException | None) -> None:
        if not self._finished.happened:
            self._finished.set(error)
            self._on_end(self)

    async def _wait(self) -> int:
        if not self._finished.happened:
            self._engine.check_loop()  # a forked child would wait for ever
            await self._finished.outlast(self.cancel)
        self._finished.check()
        if self._sent is not None:
            # The data are there. A peer that takes no messages makes the sender wait here.
            await self._sent.wait()
        return self.bytes_total


def lost(error: FabricioError) -> PeerLostError:
    """Say that a peer is lost, whatever code it was that showed it."""
    if isinstance(error, PeerLostError):
        return error
    result = PeerLostError(f"the peer is lost: {error}")
    result.__cause__ = error
    if isinstance(error, (CompletionError, FabricError)):
        result.code, result.name, result.call = error.code, error.name, error.call
        result.provider, result.provider_code = error.provider, error.provider_code
        result.provider_text = error.provider_text
    if isinstance(error, CompletionError):
        result.operation = error.operation
    return result
