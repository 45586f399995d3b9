"""`secret=` on real Fabrics: who shares it is connected, all others are refused, on both sides."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import secrets as random
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from fabricio import (
    AuthenticationError,
    Endpoint,
    Fabric,
    FabricioError,
    Listener,
    OptionsError,
    PeerUnreachableError,
    RemoteProtocolError,
)
from fabricio.acceptor import BACKLOG_COUNT
from fabricio.authentication import Connecting
from fabricio.channel import Channel
from fabricio.handshake import Hello, HelloAccepted, HelloProof, HelloRefused, Ticket, decode
from fabricio.introduction import add_peer, own_terms
from fabricio.outbox import Outbox
from fabricio.proofs import roots_of
from fabricio.testing import check_endpoint_pair
from tests.loopback.conftest import connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    OpenMeeting = Callable[..., AbstractAsyncContextManager["Meeting"]]

SECRET = b"a secret of thirty-two bytes ..."
NEW = b"the secret that comes after it ."
OTHER = b"what somebody else has made up ."


@dataclass
class Meeting:
    """Two Fabrics that may share a secret, and what the listening one has refused."""

    near: Fabric
    far: Fabric
    listener: Listener
    refused: list[FabricioError] = field(default_factory=list)

    async def pair(self) -> tuple[Endpoint, Endpoint]:
        """Connect, and check the pair."""
        a = await self.near.connect(self.far.address)
        b = await self.listener.accept()
        await check_endpoint_pair(a, b, page_count=4)
        return a, b

    async def pair_at_last(self) -> None:
        """Do so, however often `connect_timeout_s` is too short for it."""
        while True:
            try:
                a, b = await self.pair()
            except PeerUnreachableError:
                continue
            await a.aclose()
            await b.aclose()
            return

    def refused_as(self) -> set[type[FabricioError]]:
        """Which errors peers were refused with."""
        return {type(error) for error in self.refused}

    async def is_denied(self) -> None:
        """Connect: both sides have the same error, and neither has anything left of it."""
        before = self.far.statistics().authentication_failures
        with pytest.raises(AuthenticationError, match="secret=") as caught:
            await self.near.connect(self.far.address)
        await self.forgotten()
        # On a busy machine a hello may come again when the first is refused and forgotten.
        assert self.refused
        assert self.far.statistics().authentication_failures == before + len(self.refused)
        for error in self.refused:
            assert isinstance(error, AuthenticationError)
            assert "secret=" in str(error)
            assert self.near.address.incarnation.hex() in error.__notes__[0]
            for shown in (repr(error), str(error), repr(caught.value), *error.__notes__):
                assert not any(one.decode() in shown for one in (SECRET, NEW, OTHER))
        self.refused.clear()

    async def forgotten(self) -> None:
        """Wait until neither side knows any peer."""
        for fabric in (self.near, self.far):
            assert fabric._engine is not None
            while fabric._engine.channels:  # noqa: ASYNC110  (engine threads set no event)
                await asyncio.sleep(0.001)


@pytest.fixture
def open_meeting(options: dict[str, Any]) -> OpenMeeting:
    """Open two Fabrics with secrets of their own, as a context; the far one listens."""

    @asynccontextmanager
    async def open_one(
        near_secret: object,
        far_secret: object,
        **overrides: Any,  # noqa: ANN401
    ) -> AsyncIterator[Meeting]:
        refused: list[FabricioError] = []
        async with (
            Fabric(**options, **overrides, secret=near_secret) as near,
            Fabric(**options, **overrides, secret=far_secret) as far,
            far.listen(on_refused=refused.append) as listener,
        ):
            yield Meeting(near, far, listener, refused)

    return open_one


def role_of(body: bytes) -> str:
    return str(msgpack.unpackb(body)["role"])


def interpose(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[str, bytes], bytes | None]
) -> list[str]:
    """Have every frame of the handshake changed, or dropped; return the roles of all of them."""
    roles: list[str] = []
    send = Outbox.hello

    def hello(self: Outbox, body: bytes, *, last: bool = False) -> None:
        roles.append(role_of(body))
        changed = change(roles[-1], body)
        if changed is not None:
            send(self, changed, last=last)

    monkeypatch.setattr(Outbox, "hello", hello)
    return roles


@pytest.mark.parametrize(
    ("near_secret", "far_secret"),
    [
        (SECRET, SECRET),
        (lambda: SECRET, [SECRET]),
        ((SECRET, NEW), SECRET),
        (lambda: [NEW, SECRET], SECRET),
        (SECRET, lambda: (NEW, SECRET)),
        ((NEW, SECRET), (SECRET, NEW)),
    ],
    ids=["bytes", "callable", "near has both", "near gets both", "far gets both", "crossed"],
)
async def test_who_shares_it_is_connected(
    open_meeting: OpenMeeting, near_secret: object, far_secret: object
) -> None:
    async with open_meeting(near_secret, far_secret) as meeting:
        for _ in range(2):
            await meeting.pair()
        assert meeting.refused == []
        assert meeting.far.statistics().authentication_failures == 0


@pytest.mark.parametrize(
    ("near_secret", "far_secret"),
    [(SECRET, OTHER), (SECRET, None), (None, SECRET), ((SECRET, NEW), OTHER)],
    ids=["different", "near alone", "far alone", "neither of two"],
)
async def test_a_mismatch_is_the_same_error_on_both_sides(
    open_meeting: OpenMeeting,
    near_secret: object,
    far_secret: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_meeting(near_secret, far_secret) as meeting:
        roles = interpose(monkeypatch, lambda _, body: body)
        await meeting.is_denied()
        assert set(roles) == {"hello", "deny"}  # nothing more is said


async def test_a_listener_goes_on_serving_those_who_are_right(
    open_meeting: OpenMeeting, options: dict[str, Any]
) -> None:
    async with (
        open_meeting(SECRET, SECRET) as meeting,
        Fabric(**options, secret=OTHER) as wrong,
        Fabric(**options) as bare,
    ):
        a, b = await meeting.pair()
        attempts = [wrong.connect(meeting.far.address) for _ in range(20)]
        attempts += [bare.connect(meeting.far.address) for _ in range(20)]
        rights = [meeting.near.connect(meeting.far.address) for _ in range(4)]
        results = await asyncio.gather(*attempts, *rights, return_exceptions=True)
        assert [type(result) for result in results[:40]] == [AuthenticationError] * 40
        assert [type(result) for result in results[40:]] == [Endpoint] * 4
        others = [await meeting.listener.accept() for _ in range(4)]
        assert {other.peer.incarnation for other in others} == {meeting.near.address.incarnation}
        assert meeting.refused_as() == {AuthenticationError}
        assert len(meeting.refused) >= 40
        await check_endpoint_pair(a, b, page_count=4)


async def test_the_secret_changes_while_both_are_open(open_meeting: OpenMeeting) -> None:
    near: list[list[bytes]] = [[SECRET]]
    far: list[list[bytes]] = [[SECRET]]
    async with open_meeting(lambda: near[0], lambda: far[0]) as meeting:
        old = await meeting.pair()
        for side, now in (
            (far, [SECRET, NEW]),
            (near, [NEW, SECRET]),
            (far, [NEW]),
            (near, [NEW]),
        ):
            side[0] = now
            await meeting.pair()
        near[0] = [SECRET]
        before = meeting.far.statistics().authentication_failures
        with pytest.raises(AuthenticationError):
            await meeting.near.connect(meeting.far.address)
        assert meeting.far.statistics().authentication_failures > before
        await check_endpoint_pair(*old, page_count=4)  # who is connected stays so


async def test_each_handshake_reads_the_secret_once(open_meeting: OpenMeeting) -> None:
    calls = {"near": 0, "far": 0}

    def reader(side: str) -> Callable[[], bytes]:
        def read() -> bytes:
            calls[side] += 1
            return SECRET

        return read

    async with open_meeting(reader("near"), reader("far")) as meeting:
        assert calls == {"near": 0, "far": 0}
        await meeting.pair()
        await meeting.pair()
        assert calls == {"near": 2, "far": 2}


class Unreliable:
    """A function that gives a secret, or does what the test says."""

    def __init__(self) -> None:
        self.does: Callable[[], object] = lambda: SECRET

    def __call__(self) -> object:
        return self.does()


def fail() -> bytes:
    raise KeyError(OTHER.decode())


@pytest.mark.parametrize("does", [fail, lambda: None, lambda: b"short", list])
async def test_a_callable_that_fails_fails_one_connection(
    open_meeting: OpenMeeting, does: Callable[[], object]
) -> None:
    near, far = Unreliable(), Unreliable()
    async with open_meeting(near, far) as meeting:
        pair = await meeting.pair()
        near.does = does
        with pytest.raises(OptionsError, match="the callable given as secret= r"):
            await meeting.near.connect(meeting.far.address)
        near.does, far.does = far.does, does
        with pytest.raises(RemoteProtocolError, match="a fault of its own") as caught:
            await meeting.near.connect(meeting.far.address)
        assert OTHER.decode() not in str(caught.value)
        assert meeting.refused_as() == {OptionsError}
        error = meeting.refused[0]
        assert OTHER.decode() not in str(error)
        assert isinstance(error.__cause__, KeyError | None)
        far.does = near.does
        await meeting.pair()
        await check_endpoint_pair(*pair, page_count=4)


async def test_both_connect_to_each_other_at_once(options: dict[str, Any]) -> None:
    async with (
        Fabric(**options, secret=SECRET) as one,
        Fabric(**options, secret=SECRET) as other,
        one.listen() as at_one,
        other.listen() as at_other,
    ):
        a, c = await asyncio.gather(one.connect(other.address), other.connect(one.address))
        b, d = await asyncio.gather(at_other.accept(), at_one.accept())
        await asyncio.gather(
            check_endpoint_pair(a, b, page_count=4), check_endpoint_pair(c, d, page_count=4)
        )


async def test_a_fabric_connects_to_itself(options: dict[str, Any]) -> None:
    async with Fabric(**options, secret=SECRET) as fabric:
        await check_endpoint_pair(*await connect(fabric, fabric), page_count=4)


async def test_a_peer_that_starts_again(options: dict[str, Any]) -> None:
    async with Fabric(**options, secret=SECRET, connect_timeout_s=30) as near:
        async with Fabric(**options, secret=SECRET) as far:
            a, b = await connect(near, far)
            await check_endpoint_pair(a, b, page_count=4)
            await a.aclose()
        async with Fabric(**options, secret=SECRET) as far:
            await check_endpoint_pair(*await connect(near, far), page_count=4)
            # Whoever has the address of before finds that this is another incarnation.
            stale = dataclasses.replace(far.address, incarnation=random.token_bytes(16))
            async with far.listen():
                with pytest.raises(PeerUnreachableError, match="another process"):
                    await near.connect(stale)


async def test_by_way_of_a_rendezvous(options: dict[str, Any]) -> None:
    async with (
        Fabric(**options, secret=SECRET) as near,
        Fabric(**options, secret=OTHER, connect_timeout_s=3600) as wrong,
        Fabric(**options, secret=SECRET) as far,
        far.listen("127.0.0.1:0") as listener,
    ):
        assert listener.host_port is not None
        with pytest.raises(AuthenticationError):  # at once: it would be so again
            await wrong.connect(listener.host_port)
        a = await near.connect(listener.host_port)
        await check_endpoint_pair(a, await listener.accept(), page_count=4)


async def test_an_address_with_other_lanes(open_meeting: OpenMeeting) -> None:
    async with open_meeting(SECRET, SECRET) as meeting:
        address = meeting.far.address
        doubled = dataclasses.replace(
            address,
            lanes=address.lanes * 2,
            lane_counts=(*address.lane_counts, *address.lane_counts),
        )
        with pytest.raises(AuthenticationError, match="other addresses"):
            await meeting.near.connect(doubled)
        await meeting.forgotten()
        assert meeting.refused_as() == {AuthenticationError}
        await meeting.pair()


@pytest.mark.parametrize("role", ["prove", "accept"])
@pytest.mark.parametrize(
    "change",
    [
        lambda body: body[:-1] + bytes([body[-1] ^ 1]),
        lambda body: body[:-32] + bytes(32),
    ],
    ids=["one bit", "zeros"],
)
async def test_a_forged_proof_is_the_same_error_on_both_sides(
    open_meeting: OpenMeeting,
    monkeypatch: pytest.MonkeyPatch,
    role: str,
    change: Callable[[bytes], bytes],
) -> None:
    async with open_meeting(SECRET, SECRET) as meeting:
        with monkeypatch.context() as patch:
            roles = interpose(patch, lambda of, body: change(body) if of == role else body)
            await meeting.is_denied()
        assert "deny" in roles
        await meeting.pair()


async def test_who_was_denied_is_answered_no_more(
    open_meeting: OpenMeeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: dict[str, bytes] = {}

    async with open_meeting(SECRET, SECRET) as meeting:
        acceptor = meeting.far._acceptor

        def change(of: str, body: bytes) -> bytes:
            said.setdefault(of, body)
            return body[:-32] + bytes(32) if of == "prove" else body

        roles = interpose(monkeypatch, change)
        dismiss = Channel.dismiss

        def dismissed(self: Channel, body: bytes, *, heard: bool) -> None:
            dismiss(self, body, heard=heard)
            hello, proof = decode(said["hello"]), decode(said["prove"])
            assert isinstance(hello, Hello)
            assert isinstance(proof, HelloProof)
            acceptor.hello(hello, said["hello"])
            acceptor.proof(proof, said["prove"])  # the right one

        monkeypatch.setattr(Channel, "dismiss", dismissed)
        await meeting.is_denied()
        assert "challenge" not in roles[roles.index("deny") :]
        assert "accept" not in roles


@pytest.mark.parametrize("role", ["hello", "challenge"])
async def test_changed_terms_are_the_same_error_on_both_sides(
    open_meeting: OpenMeeting, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    def change(of: str, body: bytes) -> bytes:
        if of != role:
            return body
        packed: bytes = msgpack.packb(msgpack.unpackb(body) | {"peer_timeout_ms": 1})
        return packed

    async with open_meeting(SECRET, SECRET) as meeting:
        with monkeypatch.context() as patch:
            interpose(patch, change)
            await meeting.is_denied()
        await meeting.pair()


@pytest.mark.parametrize("role", ["hello", "challenge", "prove", "accept"])
async def test_who_stops_midway_is_waited_for_no_longer_than_said(
    open_meeting: OpenMeeting, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    async with open_meeting(SECRET, SECRET, connect_timeout_s=0.3) as meeting:
        with monkeypatch.context() as patch:
            # Who gives up is not heard either.
            interpose(patch, lambda of, body: None if of in (role, "refuse") else body)
            with pytest.raises(PeerUnreachableError, match=r"connect_timeout_s=0\.3"):
                await meeting.near.connect(meeting.far.address)
            await meeting.forgotten()
        assert meeting.refused == []
        await meeting.pair_at_last()


@pytest.mark.parametrize("role", ["hello", "challenge", "prove", "accept"])
async def test_what_comes_twice_or_never_at_first_changes_nothing(
    open_meeting: OpenMeeting, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    lost: list[bytes] = []

    def change(of: str, body: bytes) -> bytes | None:
        if of == role and not lost:
            lost.append(body)
            return None
        return body

    async with open_meeting(SECRET, SECRET) as meeting:
        with monkeypatch.context() as patch:
            interpose(patch, change)
            await meeting.pair()
        send = Outbox.hello

        def twice(self: Outbox, body: bytes, *, last: bool = False) -> None:
            for _ in range(1 + (role_of(body) == role)):
                send(self, body, last=last)

        monkeypatch.setattr(Outbox, "hello", twice)
        await meeting.pair()
        assert meeting.refused == []


async def test_a_challenge_that_is_stripped_is_waited_for(
    open_meeting: OpenMeeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strip(of: str, body: bytes) -> bytes:
        if of != "challenge":
            return body
        attempt = msgpack.unpackb(body)["attempt"]
        return HelloAccepted(attempt=attempt, slots=(0,), cookie=1, proof=bytes(32)).encode()

    async with open_meeting(SECRET, None, connect_timeout_s=0.3) as meeting:
        with monkeypatch.context() as patch:
            # The far side has no secret, and somebody makes it say that none is needed.
            patch.setattr("fabricio.acceptor.read_secrets", lambda _: (SECRET,))
            interpose(patch, strip)
            with pytest.raises(PeerUnreachableError):
                await meeting.near.connect(meeting.far.address)


async def test_a_hello_of_the_version_before_is_refused_by_name(
    open_meeting: OpenMeeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def older(of: str, body: bytes) -> bytes:
        if of != "hello":
            return body
        packed: bytes = msgpack.packb(msgpack.unpackb(body) | {"version": 3})
        return packed

    async with open_meeting(SECRET, SECRET) as meeting:
        interpose(monkeypatch, older)
        with pytest.raises(RemoteProtocolError, match="protocol version 4 and the peer 3"):
            await meeting.near.connect(meeting.far.address)
        assert meeting.refused_as() == {RemoteProtocolError}


async def test_the_engine_takes_nothing_before_the_proof(
    open_meeting: OpenMeeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No ticket is said before the proof, and frames without one go nowhere."""
    tickets: dict[str, list[bytes]] = {}

    def watch(of: str, body: bytes) -> bytes:
        tickets.setdefault(of, []).append(body)
        return body

    async with open_meeting(SECRET, SECRET) as meeting:
        interpose(monkeypatch, watch)
        a, _ = await meeting.pair()
        assert set(tickets) == {"hello", "challenge", "prove", "accept"}
        acceptor = meeting.far._acceptor
        (accepted,) = acceptor._attempts.values()
        cookie = accepted.cookie.to_bytes(8, "big")
        for role, bodies in tickets.items():
            assert (cookie in bodies[0]) == (role == "accept")
        assert a.peer == meeting.far.address


async def stranger_to(near: Fabric, far: Fabric) -> Channel:
    """A channel of the near Fabric that only hellos leave by."""
    engine = near._engine
    assert engine is not None
    added: asyncio.Future[Channel | None] = engine.loop.create_future()
    address = far.address
    add_peer(
        engine, address.lanes, address.lane_counts, 1, lambda channel, _: added.set_result(channel)
    )
    channel = await added
    assert channel is not None
    return channel


@pytest.mark.parametrize("secret", [OTHER, SECRET], ids=["wrong", "never proven"])
async def test_a_flood_of_hellos_is_bounded_and_passes(
    open_meeting: OpenMeeting, secret: bytes
) -> None:
    async with open_meeting(SECRET, SECRET, connect_timeout_s=1.0) as meeting:
        engine, acceptor = meeting.near._engine, meeting.far._acceptor
        assert engine is not None
        channel = await stranger_to(meeting.near, meeting.far)
        before = meeting.far.statistics()
        for number in range(5 * BACKLOG_COUNT):
            side = Connecting(roots_of((secret,)), own_terms(engine), Ticket((0,), number))
            channel.hello(side.hello_body)
            if number % 16 == 0:
                await asyncio.sleep(0)
            assert len(acceptor._waiting) <= BACKLOG_COUNT
        if secret == OTHER:
            while not meeting.refused:  # noqa: ASYNC110  (engine threads set no event)
                await asyncio.sleep(0.001)
        channel.remove()
        # Those that wait in vain are forgotten; nobody else had to be.
        await meeting.pair_at_last()
        assert len(acceptor._waiting) <= BACKLOG_COUNT
        failures = meeting.far.statistics().authentication_failures
        assert (failures > before.authentication_failures) == (secret == OTHER)


async def test_the_log_says_who_and_does_not_fill(
    open_meeting: OpenMeeting, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabricio.refusals._LOG_EVERY_S", 3600.0)
    async with open_meeting(OTHER, SECRET) as meeting:
        with caplog.at_level(logging.DEBUG):
            for _ in range(5):
                await meeting.is_denied()
        (record,) = [each for each in caplog.records if each.name == "fabricio"]
        assert record.levelno == logging.WARNING
        assert meeting.near.address.incarnation.hex() in record.getMessage()
        assert not any(one.decode() in caplog.text for one in (SECRET, OTHER))


async def test_an_on_refused_that_raises_is_the_loops_to_report(
    options: dict[str, Any],
) -> None:
    reported: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()

    def on_refused(error: FabricioError) -> None:
        raise ValueError("the application's")

    loop.set_exception_handler(lambda _, context: reported.append(context))
    async with (
        Fabric(**options, secret=SECRET) as near,
        Fabric(**options) as bare,
        Fabric(**options, secret=SECRET) as far,
        far.listen(on_refused=on_refused) as listener,
    ):
        with pytest.raises(AuthenticationError):
            await bare.connect(far.address)
        a = await near.connect(far.address)
        await check_endpoint_pair(a, await listener.accept(), page_count=4)
    loop.set_exception_handler(before)
    assert {type(each["exception"]) for each in reported} == {ValueError}


async def test_who_waited_for_a_listener_is_refused_by_it(options: dict[str, Any]) -> None:
    refused: list[FabricioError] = []
    async with Fabric(**options, secret=OTHER) as near, Fabric(**options, secret=SECRET) as far:
        acceptor = far._acceptor
        connecting = asyncio.create_task(near.connect(far.address))
        while not acceptor._kept:  # noqa: ASYNC110  (the acceptor sets no event)
            await asyncio.sleep(0.001)
        async with far.listen(on_refused=refused.append):
            with pytest.raises(AuthenticationError):
                await connecting
        assert {type(error) for error in refused} == {AuthenticationError}


async def test_a_refusal_cannot_end_what_is_connected(open_meeting: OpenMeeting) -> None:
    async with open_meeting(SECRET, SECRET) as meeting:
        a, b = await meeting.pair()
        channel = await stranger_to(meeting.near, meeting.far)
        (attempt,) = meeting.far._acceptor._attempts
        channel.dismiss(HelloRefused.because(attempt, "no").encode(), heard=True)
        await meeting.pair()
        await check_endpoint_pair(a, b, page_count=4)
