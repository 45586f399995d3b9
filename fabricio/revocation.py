"""`Revocation`: asks all who may use a region to let go of it, and waits, but not for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from fabricio.engine import Engine
    from fabricio.memory import MemoryRegion


class Holder(Protocol):
    """A channel whose peer may have got a descriptor of a region."""

    @property
    def engine(self) -> Engine:
        """The engine that it sends with."""

    def let_write(self, region: MemoryRegion) -> None:
        """Remember that the peer gets a region to write into.

        Args:
            region: told by `lose_writer` if the peer falls silent.
        """

    def revoke(self, region: int, on_let_go: Callable[[], object]) -> None:
        """Have the peer let go of a region.

        Args:
            region: the number in its descriptors.
            on_let_go: called once, perhaps at once: the peer has let go, or this has ended.
        """


class Revocation:
    """One region's way out of the hands of its peers.

    Thread: event loop only.
    """

    __slots__ = ("_left", "_loop", "_on_done", "_on_late", "_patience_s", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, patience_s: float) -> None:
        """Prepare.

        Args:
            loop: where the time is taken.
            patience_s: how long to wait for the slowest peer.
        """
        self._loop = loop
        self._patience_s = patience_s
        self._left = 0
        self._on_done: Callable[[], object] | None = None
        self._on_late: Callable[[], object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def overdue(self) -> bool:
        """Whether the time is over, and not all have let go."""
        return self._on_late is not None and self._left > 0

    def start(
        self,
        region: int,
        holders: Sequence[Holder],
        on_done: Callable[[], object],
        on_late: Callable[[], object],
    ) -> None:
        """Ask all of them; called once at most.

        Args:
            region: the number in its descriptors.
            holders: whom to ask.
            on_done: called once, perhaps at once: all have let go, or the time is over.
            on_late: called once, after that, if the last has let go when the time was over.
        """
        self._on_done = on_done
        self._left = len(holders) + 1  # and this call itself
        for holder in holders:
            holder.revoke(region, self._count_down)
        self._count_down()
        if self._left:
            self._timer = self._loop.call_later(self._patience_s, self._expire, on_late)

    def cancel(self) -> None:
        """Wait no longer, and do nothing more. Idempotent."""
        self._on_done = self._on_late = None
        self._finish()

    def _count_down(self) -> None:
        self._left -= 1
        if not self._left:
            on_late, self._on_late = self._on_late, None
            if on_late is not None:
                on_late()
            self._finish()

    def _expire(self, on_late: Callable[[], object]) -> None:
        self._on_late = on_late
        self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done()
