"""`Acceptor`: the side that is connected to.

A hello is answered at once if somebody listens, else kept until somebody does. An endpoint is
handed out when the connecting side has shown that the answer reached it; so nobody is given an
endpoint whose other end gave up in the meantime. All that is not handed out yet is bounded.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Protocol

from fabricio.errors import FabricioError, RemoteProtocolError
from fabricio.handshake import HelloAccepted, HelloRefused, check_compatible
from fabricio.introduction import add_peer, introduce, own_terms

if TYPE_CHECKING:
    import asyncio

    from fabricio.channel import Channel
    from fabricio.endpoint import Endpoint
    from fabricio.engine import Engine
    from fabricio.handshake import Hello

BACKLOG_COUNT = 128

# A connecting side that still lives repeats its hello every second.
_KEPT_S = 3.0


class Accepted:
    """A hello that is being answered, until its endpoint is closed."""

    def __init__(self, hello: Hello, cookie: int) -> None:
        """Begin without channel and endpoint."""
        self.hello = hello
        self.cookie = cookie
        self.channel: Channel | None = None
        self.endpoint: Endpoint | None = None
        self.reply = b""
        self.given_up = False  # by the connecting side
        self.timer: asyncio.TimerHandle | None = None


class Taker(Protocol):
    """Somebody who takes endpoints: a listener."""

    def take(self, accepted: Accepted) -> None:
        """Take one; `Acceptor.handed_out` follows when the application has it."""

    async def aclose(self) -> None:
        """Take no more."""


class Acceptor:
    """Answers hellos and hands endpoints to the first of its takers.

    Attributes:
        takers: in the order in which they came.
        refused_count: hellos that were refused, dropped or not understood.

    Thread: event loop only.
    """

    def __init__(self, engine: Engine) -> None:
        """Begin without takers."""
        self._engine = engine
        self.takers: list[Taker] = []
        self._attempts: dict[bytes, Accepted] = {}
        self._waiting: set[bytes] = set()  # attempts whose endpoint nobody has yet
        self._kept: dict[bytes, tuple[Hello, float]] = {}
        self._ready: list[Accepted] = []  # for the next taker
        self._closed = False
        self.refused_count = 0

    def close(self) -> None:
        """Answer no new hello any more."""
        self._closed = True

    def add(self, taker: Taker) -> None:
        """Begin to hand endpoints to `taker`, those that waited first."""
        self.takers.append(taker)
        ready, self._ready = self._ready, []
        for accepted in ready:
            taker.take(accepted)
        kept, self._kept = self._kept, {}
        now = self._engine.loop.time()
        for hello, seen in kept.values():
            if now - seen < _KEPT_S:
                self.hello(hello)

    def discard(self, taker: Taker) -> None:
        """Hand nothing more to `taker`."""
        if taker in self.takers:
            self.takers.remove(taker)

    def handed_out(self, accepted: Accepted) -> None:
        """Note that the application has the endpoint."""
        self._waiting.discard(accepted.hello.attempt)

    def hello(self, hello: Hello) -> None:
        """Take a peer's hello, for the first time or again."""
        accepted = self._attempts.get(hello.attempt)
        if accepted is not None:
            if accepted.channel is not None and accepted.reply and not accepted.channel.removed:
                accepted.channel.hello(accepted.reply)
        elif not self.takers and not self._closed:
            self._keep(hello)
        elif self._closed or len(self._waiting) >= BACKLOG_COUNT:
            self.refused_count += 1  # it will come again
        else:
            self._begin(hello)

    def refused(self, refusal: HelloRefused) -> None:
        """Take the connecting side's word that it gives an attempt up: nobody will be there."""
        self._kept.pop(refusal.attempt, None)
        accepted = self._attempts.get(refusal.attempt)
        if accepted is None:
            return
        accepted.given_up = True
        if accepted.channel is not None and accepted.channel.on_first_frame is not None:
            accepted.channel.remove()  # once it has shown that it knows us, its end is another

    def _keep(self, hello: Hello) -> None:
        now = self._engine.loop.time()
        self._kept.pop(hello.attempt, None)
        if len(self._kept) >= BACKLOG_COUNT:
            oldest, (_, seen) = next(iter(self._kept.items()))
            if now - seen < _KEPT_S:
                self.refused_count += 1
                return
            del self._kept[oldest]
        self._kept[hello.attempt] = (hello, now)

    def _begin(self, hello: Hello) -> None:
        accepted = Accepted(hello, secrets.randbits(64))
        self._attempts[hello.attempt] = accepted
        self._waiting.add(hello.attempt)
        try:
            added = partial(self._added, accepted)
            add_peer(self._engine, hello.lanes, hello.lane_counts, accepted.cookie, added)
        except FabricioError:
            self._forget(accepted)
            self.refused_count += 1

    def _added(
        self, accepted: Accepted, channel: Channel | None, error: FabricioError | None
    ) -> None:
        if channel is None:
            self._forget(accepted)
            self.refused_count += 1
            return
        accepted.channel = channel
        channel.on_removed = partial(self._forget, accepted)
        if accepted.given_up:
            channel.remove()
            return
        channel.on_failure = partial(_forget_lost, channel)
        try:
            self._answer(accepted, channel)
        except FabricioError:
            self.refused_count += 1
            channel.remove()

    def _answer(self, accepted: Accepted, channel: Channel) -> None:
        engine = self._engine
        hello = accepted.hello
        terms = own_terms(channel, accepted.cookie)
        mine = HelloAccepted(attempt=hello.attempt, **terms)
        try:
            check_compatible(mine, hello)
        except RemoteProtocolError as error:
            self.refused_count += 1
            refusal = HelloRefused.because(hello.attempt, str(error))
            channel.dismiss(refusal.encode(), heard=True)
            return
        accepted.timer = engine.loop.call_later(engine.options.connect_timeout_s, channel.remove)
        channel.on_first_frame = partial(self._known, accepted)
        accepted.endpoint = introduce(channel, hello)
        accepted.reply = mine.encode()
        channel.hello(accepted.reply)

    def _known(self, accepted: Accepted) -> None:
        """Hand the endpoint out: the peer has shown that it knows us."""
        if accepted.timer is not None:
            accepted.timer.cancel()
        if accepted.channel is not None:
            accepted.channel.on_failure = None
        if self.takers:
            self.takers[0].take(accepted)
        else:
            self._ready.append(accepted)

    def _forget(self, accepted: Accepted) -> None:
        if accepted.timer is not None:
            accepted.timer.cancel()
        self._attempts.pop(accepted.hello.attempt, None)
        self._waiting.discard(accepted.hello.attempt)
        if accepted in self._ready:
            self._ready.remove(accepted)


def _forget_lost(channel: Channel, error: Exception) -> None:
    """Forget a peer that is lost before it was handed out; one that we part from is told so."""
    if not channel.closing:
        channel.remove()
