"""`Acceptor`: the side that is connected to.

A hello is answered at once if somebody listens, else kept until somebody does. An endpoint is made
when the connecting side has proven itself, and handed out when it has shown that the answer reached
it; so nobody is given an endpoint whose other end gave up in the meantime. All that is not handed
out yet is bounded, in number and in time.
"""

from __future__ import annotations

import secrets as random
from functools import partial
from typing import TYPE_CHECKING, Protocol

from fabricio.address import Address
from fabricio.authentication import Listening, denied
from fabricio.errors import AuthenticationError, FabricioError, RemoteProtocolError
from fabricio.handshake import Hello, HelloDenied, HelloRefused, Ticket, check_version
from fabricio.introduction import add_peer, introduce, own_terms
from fabricio.proofs import roots_of
from fabricio.refusals import Refusals
from fabricio.secret import read_secrets

if TYPE_CHECKING:
    import asyncio

    from fabricio.channel import Channel
    from fabricio.endpoint import Endpoint
    from fabricio.engine import Engine
    from fabricio.handshake import End, ForeignHello, HelloProof

BACKLOG_COUNT = 128

# A connecting side that still lives repeats its hello every second.
_KEPT_S = 3.0


class Accepted:
    """A hello that is being answered, until its endpoint is closed."""

    def __init__(self, hello: Hello | ForeignHello, body: bytes) -> None:
        """Begin without channel and endpoint."""
        self.hello = hello
        self.hello_body = body
        self.cookie = random.randbits(64)
        self.side: Listening | None = None  # until it is over, well or not
        self.channel: Channel | None = None
        self.endpoint: Endpoint | None = None
        self.challenge = b""
        self.proof_body = b""
        self.reply = b""
        self.given_up = False  # by the connecting side
        self.timer: asyncio.TimerHandle | None = None


class Taker(Protocol):
    """Somebody who takes endpoints: a listener."""

    def take(self, accepted: Accepted) -> None:
        """Take one; `Acceptor.handed_out` follows when the application has it."""

    def refused(self, error: FabricioError) -> None:
        """Take the news that a peer was refused, or refuses this side."""

    async def aclose(self) -> None:
        """Take no more."""


class Acceptor:
    """Answers hellos and hands endpoints to the first of its takers.

    Attributes:
        takers: in the order in which they came.
        refusals: what was not taken.

    Thread: event loop only.
    """

    def __init__(self, engine: Engine) -> None:
        """Begin without takers."""
        self._engine = engine
        self.takers: list[Taker] = []
        self.refusals = Refusals(engine.loop)
        self._attempts: dict[bytes, Accepted] = {}
        self._waiting: set[bytes] = set()  # attempts whose endpoint nobody has yet
        self._kept: dict[bytes, tuple[Hello | ForeignHello, bytes, float]] = {}
        self._ready: list[Accepted] = []  # for the next taker
        self._closed = False

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
        for hello, body, seen in kept.values():
            if now - seen < _KEPT_S:
                self.hello(hello, body)

    def discard(self, taker: Taker) -> None:
        """Hand nothing more to `taker`."""
        if taker in self.takers:
            self.takers.remove(taker)

    def handed_out(self, accepted: Accepted) -> None:
        """Note that the application has the endpoint."""
        self._waiting.discard(accepted.hello.attempt)

    def hello(self, hello: Hello | ForeignHello, body: bytes) -> None:
        """Take a peer's hello, for the first time or again."""
        accepted = self._attempts.get(hello.attempt)
        if accepted is not None:
            self._say(accepted, accepted.challenge)
        elif not self.takers and not self._closed:
            self._keep(hello, body)
        elif self._closed or len(self._waiting) >= BACKLOG_COUNT:
            self.refusals.count += 1  # it will come again
        else:
            self._begin(Accepted(hello, body))

    def proof(self, proof: HelloProof, body: bytes) -> None:
        """Take a peer's proof, for the first time or again."""
        accepted = self._attempts.get(proof.attempt)
        if accepted is None:
            self.refusals.count += 1
        elif accepted.side is not None and accepted.challenge:
            accepted.proof_body = body
            self._answer(accepted, accepted.side, proof)
        elif accepted.proof_body == body:
            self._say(accepted, accepted.reply)

    def ended(self, end: End) -> None:
        """Take the connecting side's word that it gives an attempt up: nobody will be there."""
        self._kept.pop(end.attempt, None)
        accepted = self._attempts.get(end.attempt)
        if accepted is None or accepted.given_up:
            return
        accepted.given_up = True
        if accepted.channel is None:
            return
        if accepted.endpoint is not None and accepted.channel.on_first_frame is None:
            return  # once it has shown that it knows us, its end is another
        refused_before = accepted.side is None and accepted.endpoint is None
        accepted.side = None
        accepted.channel.remove()
        if isinstance(end, HelloDenied) and not refused_before:
            self._report(accepted, denied())

    def _keep(self, hello: Hello | ForeignHello, body: bytes) -> None:
        now = self._engine.loop.time()
        self._kept.pop(hello.attempt, None)
        if len(self._kept) >= BACKLOG_COUNT:
            oldest, (_, _, seen) = next(iter(self._kept.items()))
            if now - seen < _KEPT_S:
                self.refusals.count += 1
                return
            del self._kept[oldest]
        self._kept[hello.attempt] = (hello, body, now)

    def _begin(self, accepted: Accepted) -> None:
        hello = accepted.hello
        self._attempts[hello.attempt] = accepted
        self._waiting.add(hello.attempt)
        try:
            added = partial(self._added, accepted)
            add_peer(self._engine, hello.lanes, hello.lane_counts, accepted.cookie, added)
        except FabricioError:
            self._forget(accepted)
            self.refusals.count += 1

    def _added(
        self, accepted: Accepted, channel: Channel | None, error: FabricioError | None
    ) -> None:
        if channel is None:
            self._forget(accepted)
            self.refusals.count += 1
            return
        accepted.channel = channel
        channel.on_removed = partial(self._forget, accepted)
        if accepted.given_up:
            channel.remove()
            return
        channel.on_failure = partial(_forget_lost, channel)
        engine = self._engine
        accepted.timer = engine.loop.call_later(engine.options.connect_timeout_s, channel.remove)
        try:
            check_version(accepted.hello)
            assert isinstance(accepted.hello, Hello)
            roots = roots_of(read_secrets(engine.options.secret))
            accepted.side = Listening(roots, accepted.hello, accepted.hello_body)
            accepted.challenge = accepted.side.challenge(own_terms(engine))
            channel.hello(accepted.challenge)
        except FabricioError as error_here:
            self._refuse(accepted, channel, error_here)

    def _answer(self, accepted: Accepted, side: Listening, proof: HelloProof) -> None:
        """Take a proof: the peer is good from here on, or refused."""
        channel = accepted.channel
        assert channel is not None
        accepted.side = None
        try:
            theirs = side.admit(proof, accepted.proof_body)
            accepted.reply = side.accept(Ticket(channel.slots(), accepted.cookie))
            channel.on_first_frame = partial(self._known, accepted)
            accepted.endpoint = introduce(channel, side.hello, theirs)
            channel.hello(accepted.reply)
        except FabricioError as error:
            accepted.reply = b""
            self._refuse(accepted, channel, error)

    def _refuse(self, accepted: Accepted, channel: Channel, error: FabricioError) -> None:
        """Say no; that the peer's secret is wrong is all it is told then."""
        accepted.side, accepted.challenge = None, b""
        attempt = accepted.hello.attempt
        if isinstance(error, RemoteProtocolError):
            end: End = HelloRefused.because(attempt, str(error))
        elif isinstance(error, AuthenticationError):
            end = HelloDenied(attempt=attempt)
        else:
            end = HelloRefused.because(attempt, "the listening side has a fault of its own")
        channel.dismiss(end.encode(), heard=True)
        self._report(accepted, error)

    def _report(self, accepted: Accepted, error: FabricioError) -> None:
        hello = accepted.hello
        if isinstance(hello, Hello):
            address = Address(hello.provider, hello.incarnation, hello.lanes, hello.lane_counts)
            caller = f"{address!s:.200}"
        else:
            caller = f"a fabricio of protocol version {hello.version}"
        self.refusals.report(error, caller, self.takers[0].refused if self.takers else None)

    def _say(self, accepted: Accepted, body: bytes) -> None:
        """Say something again, unless the peer is gone or was refused."""
        channel = accepted.channel
        if channel is not None and body and not channel.removed:
            channel.hello(body)

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
