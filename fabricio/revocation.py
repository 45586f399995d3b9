"""`Revocation`: asks all who may use a region to let go of it, and waits, but not for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from fabricio.engine import Engine


class Holder(Protocol):
    """A channel whose peer may have got a descriptor of a region."""

    @property
    def engine(self) -> Engine:
        """The engine that it sends with."""

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

    __slots__ = ("_left", "_loop", "_on_done", "_patience_s", "_timer")

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
        self._timer: asyncio.TimerHandle | None = None

    def start(self, region: int, holders: Sequence[Holder], on_done: Callable[[], object]) -> None:
        """Ask all of them; called once at most.

        Args:
            region: the number in its descriptors.
            holders: whom to ask.
            on_done: called once, perhaps at once: all have let go, or the time is over.
        """
        self._on_done = on_done
        self._left = len(holders) + 1  # and this call itself
        for holder in holders:
            holder.revoke(region, self._count_down)
        self._count_down()
        if self._left:
            self._timer = self._loop.call_later(self._patience_s, self._finish)

    def cancel(self) -> None:
        """Wait no longer, and do nothing more. Idempotent."""
        self._on_done = None
        self._finish()

    def _count_down(self) -> None:
        self._left -= 1
        if not self._left:
            self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done()
