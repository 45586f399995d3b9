"""`Connector`: the side that connects."""

from __future__ import annotations

import asyncio
import errno
import secrets as random
from typing import TYPE_CHECKING, TypeVar

from fabricio.address import Address, is_host_port, split_host_port
from fabricio.authentication import Connecting, denied
from fabricio.errors import (
    AuthenticationError,
    ClosedResourceError,
    FabricioError,
    OptionsError,
    PeerLostError,
    PeerUnreachableError,
    RemoteProtocolError,
)
from fabricio.handshake import (
    Answer,
    End,
    HelloAccepted,
    HelloChallenge,
    HelloDenied,
    HelloRefused,
    Ticket,
    provider_family,
)
from fabricio.introduction import add_peer, introduce, own_terms
from fabricio.proofs import roots_of
from fabricio.rendezvous import fetch_address
from fabricio.secret import read_secrets
from fabricio.waiting import Once

if TYPE_CHECKING:
    from fabricio.channel import Channel
    from fabricio.endpoint import Endpoint
    from fabricio.engine import Engine

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.0

_Kind = TypeVar("_Kind", HelloChallenge, HelloAccepted)


class _Attempt:
    """What one attempt to connect waits for: the answer to its latest frame.

    Attributes:
        answer: which came; None: none yet.
        body: the same as it came.
        over: happens with the answer, or with why there will be none.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._kinds: tuple[type[Answer | End], ...] = ()
        self.answer: Answer | End | None = None
        self.body = b""
        self.over = Once(loop)

    def expect(self, kind: type[Answer]) -> None:
        """Wait for an answer of this kind from now on; all others are dropped."""
        self._kinds = kind, HelloRefused, HelloDenied
        self.over = Once(self._loop)

    def answered(self, answer: Answer | End, body: bytes) -> None:
        if isinstance(answer, self._kinds) and not self.over.happened:
            self.answer, self.body = answer, body
            self.over.set()

    def failed(self, error: Exception) -> None:
        self.over.set(error)


class Connector:
    """Connects, again and again until `connect_timeout_s`.

    Thread: event loop only.
    """

    def __init__(self, engine: Engine) -> None:
        """Begin with no attempt."""
        self._engine = engine
        self._attempts: dict[bytes, _Attempt] = {}
        self._over = Once(engine.loop)

    def close(self) -> None:
        """Connect no more; attempts under way fail."""
        self._over.set(ClosedResourceError("this Fabric is closed: open another"))

    def answered(self, answer: Answer | End, body: bytes) -> None:
        """Take a peer's answer; one to an attempt that is over is dropped."""
        attempt = self._attempts.get(answer.attempt)
        if attempt is not None:
            attempt.answered(answer, body)

    async def connect(self, target: Address | str) -> Endpoint:
        """Connect; see `Fabric.connect`."""
        limit_s = self._engine.options.connect_timeout_s
        last: FabricioError | None = None
        host_port = target if isinstance(target, str) and is_host_port(target) else None
        address = self._known(target) if host_port is None else None
        try:
            async with asyncio.timeout(limit_s):
                pause_s = FIRST_PAUSE_S
                while True:
                    self._over.check()
                    try:
                        if host_port is not None:
                            address = self._known(await fetch_address(*split_host_port(host_port)))
                        assert address is not None
                        return await self._attempt(address)
                    except PeerUnreachableError as error:
                        if host_port is None:
                            raise
                        last = error  # a new process there may answer
                    except PeerLostError as error:
                        last = error
                    pause_s = await _pause(self._over, pause_s)
        except TimeoutError as error:
            what = f": {last}" if last is not None else ", which did not answer"
            raise PeerUnreachableError(
                f"no connection to {target!s:.200} within connect_timeout_s={limit_s:g}{what}. "
                f"{_cure(last)}",
                provider=self._engine.provider,
            ) from (last or error)

    def _known(self, target: Address | str) -> Address:
        """Return the address, if this Fabric can speak to it at all."""
        address = target if isinstance(target, Address) else Address.parse(target)
        mine = self._engine.attributes.provider
        if provider_family(address.provider) != provider_family(mine):
            raise OptionsError(
                f"the address is of provider {address.provider!r} and this Fabric uses {mine!r}: "
                f"open one with provider={address.provider!r}, or have the peer use {mine!r}"
            )
        return address

    async def _attempt(self, address: Address) -> Endpoint:
        engine = self._engine
        roots = roots_of(read_secrets(engine.options.secret))
        cookie = random.randbits(64)
        channel = await self._add(address, cookie)
        side = Connecting(roots, own_terms(engine), Ticket(channel.slots(), cookie))
        name = side.hello.attempt
        attempt = self._attempts[name] = _Attempt(engine.loop)
        channel.on_failure = attempt.failed
        try:
            challenge = await self._ask(channel, side.hello_body, attempt, HelloChallenge)
            proof = side.prove(challenge, attempt.body, address)
            accepted = await self._ask(channel, proof, attempt, HelloAccepted)
            ticket = side.admit(accepted, attempt.body)
            endpoint = introduce(channel, challenge, ticket)
            # Shows the peer that its answer has come, so that it hands out its endpoint.
            channel.flush()
        except BaseException as error:
            self._give_up(channel, name, attempt, error)
            raise
        finally:
            channel.on_failure = None
            del self._attempts[name]
        return endpoint

    def _give_up(
        self, channel: Channel, name: bytes, attempt: _Attempt, error: BaseException
    ) -> None:
        """Tell the peer, which may hold an endpoint ready, unless it was the one who refused."""
        if isinstance(attempt.answer, End):
            channel.remove()
            return
        if isinstance(error, AuthenticationError):
            body = HelloDenied(attempt=name).encode()
        else:
            body = HelloRefused.because(name, "the connecting side gave up").encode()
        channel.dismiss(body, heard=attempt.answer is not None)

    async def _add(self, address: Address, cookie: int) -> Channel:
        added = Once(self._engine.loop)
        channels: list[Channel] = []
        abandoned = False

        def on_added(channel: Channel | None, error: FabricioError | None) -> None:
            if channel is not None:
                channels.append(channel)
                if abandoned:
                    channel.remove()
            added.set(error)

        add_peer(self._engine, address.lanes, address.lane_counts, cookie, on_added)
        try:
            await added.wait()
        except BaseException:
            abandoned = True
            for channel in channels:
                channel.remove()
            raise
        return channels[0]

    async def _ask(
        self, channel: Channel, body: bytes, attempt: _Attempt, kind: type[_Kind]
    ) -> _Kind:
        """Say something until there is an answer; the peer knows a repetition by its attempt."""
        channel.check()
        attempt.expect(kind)
        pause_s = FIRST_PAUSE_S
        while not attempt.over.happened:
            channel.hello(body)
            pause_s = await _pause(attempt.over, pause_s)
        attempt.over.check()
        answer = attempt.answer
        if isinstance(answer, HelloDenied):
            raise denied()
        if isinstance(answer, HelloRefused):
            raise RemoteProtocolError(f"the peer refuses the connection: {answer.reason!r}")
        assert isinstance(answer, kind)
        return answer


def _cure(last: FabricioError | None) -> str:
    if isinstance(last, PeerLostError) and last.code == errno.EADDRNOTAVAIL:
        return (
            "Nothing can be sent from this Fabric's own address: if this host does not have it any "
            "more, open another Fabric"
        )
    return "Check that the peer runs, that it listens and that its address is current"


async def _pause(event: Once, pause_s: float) -> float:
    """Wait for `event`, `pause_s` at most; return how long the next pause is to be.

    Raises: what the event was set with.
    """
    try:
        async with asyncio.timeout(pause_s):
            await event.wait()
    except TimeoutError:
        pass
    return min(2 * pause_s, LONGEST_PAUSE_S)
