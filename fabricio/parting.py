"""`Parting`: how this side takes leave of a peer, so that its last frames still arrive.

In order: CLOSE is the last word, and the peer has taken in all before it. After an error: ERROR is
the last word, and it is enough that the provider has sent it; so it is with a hello that refuses.
Either way the wait is bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricio.waiting import Once

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from fabricio.completion import Completion
    from fabricio.engine import Engine
    from fabricio.outbox import Outbox
    from fabricio.sharing import Sharing

# The peer is leaving, or may have given up connecting, or need not answer: it is waited for no
# longer than this.
PARTING_S = 1.0


class Parting:
    """What must have happened before the engine may forget a peer.

    Attributes:
        peer_closed: whether the peer has said that it sends no more.
        given_up: whether the time was over before the peer had answered.

    Thread: event loop only.
    """

    def __init__(self, engine: Engine, outbox: Outbox, sharing: Sharing) -> None:
        """Begin with nothing said.

        Args:
            engine: the engine.
            outbox: sends the last word.
            sharing: knows which regions the peer may still use.
        """
        self._loop = engine.loop
        self._patience_s = engine.options.peer_timeout_s
        self._brief_s = min(self._patience_s, PARTING_S)
        self._outbox = outbox
        self._sharing = sharing
        self._flush = 0  # token of the flush that goes before CLOSE, until it is answered
        self._said = Once(engine.loop)
        self._drained = Once(engine.loop)
        self._leave: Callable[[], object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.peer_closed = False
        self.given_up = False
        outbox.on_last_sent = self._on_last_sent

    async def in_order(self, *, known: bool) -> None:
        """Send CLOSE, and wait (bounded) until the peer has taken in all that was sent.

        Args:
            known: whether the peer has shown that it knows us.

        Raises: FabricError: the engine refuses.
        """
        outbox = self._outbox
        if not self.peer_closed:
            self._flush = outbox.stream.flush()
        outbox.stream.close()
        outbox.pump()
        await self._wait(self._drained, brief=self.peer_closed or not known)

    async def last_word(self) -> None:
        """Wait (bounded) until the provider has sent what was to be the last frame, if any was."""
        if self._outbox.last_under_way:
            await self._wait(self._said, brief=True)

    def then(self, leave: Callable[[], object]) -> None:
        """Have `leave` called when `last_word` would return, without waiting here."""
        if self._outbox.last_under_way:
            self._leave = leave
            self._timer = self._loop.call_later(self._brief_s, self._on_said)
        else:
            leave()

    def flushed(self, token: int) -> None:
        """Take the peer's answer to a flush."""
        if token == self._flush:
            self._flush = 0
            self.check()

    def check(self) -> None:
        """Look whether the peer has taken in all; called where that may have become true."""
        sharing = self._sharing
        if not self._said.happened or sharing.revoking:
            return
        # A peer that has closed has stopped its transfers first: regions that it has may be closed.
        if self.peer_closed or not (self._flush or sharing.lent):
            self._drained.set()

    def give_up(self) -> None:
        """Wait for no answer: none will come. A last word may still be under way."""
        self._drained.set()

    def end(self) -> None:
        """Wait for nothing: the peer is lost or removed."""
        self._on_said()
        self._drained.set()

    def _on_last_sent(self, completion: Completion) -> None:
        self._on_said()
        self.check()

    def _on_said(self) -> None:
        self._said.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()

    def _expire(self, event: Once) -> None:
        self.given_up = not (event.happened or self.peer_closed)
        event.set()

    async def _wait(self, event: Once, *, brief: bool) -> None:
        patience_s = self._brief_s if brief else self._patience_s
        timer = self._loop.call_later(patience_s, self._expire, event)
        try:
            await event.wait()
        finally:
            timer.cancel()
