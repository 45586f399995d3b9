"""The handshake without a network: who shares the secret passes, and nobody and nothing else."""

from __future__ import annotations

import dataclasses
import traceback
from dataclasses import dataclass, field
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricio import proofs
from fabricio.address import Address
from fabricio.authentication import Connecting, Listening
from fabricio.errors import (
    AuthenticationError,
    FabricioError,
    PeerUnreachableError,
    RemoteProtocolError,
)
from fabricio.handshake import (
    Hello,
    HelloAccepted,
    HelloChallenge,
    HelloDenied,
    HelloProof,
    OwnTerms,
    Ticket,
    decode,
)
from fabricio.proofs import Purpose, Root, roots_of

SECRET = b"a secret of thirty-two bytes ..."
NEW = b"the secret that comes after it ."
OTHER = b"what somebody else has made up ."

ROOTS = roots_of((SECRET,))
NEAR, FAR = Ticket((3,), 1 << 63), Ticket((7,), 12345)
STEPS = (Hello, HelloChallenge, HelloProof, HelloAccepted)

Secrets = tuple[bytes, ...]


def terms(name: int, **changes: Any) -> OwnTerms:  # noqa: ANN401  (fields of OwnTerms)
    """Terms of a Fabric that differs from others by its name."""
    made = OwnTerms(
        provider="tcp",
        incarnation=bytes([name]) * 16,
        lanes=(bytes([name]) * 16, bytes([name + 1]) * 16),
        lane_counts=(1, 1),
        immediate_bytes=8,
        max_message_bytes=1 << 24,
        receive_window_bytes=1 << 25,
        frame_bytes=65600,
        peer_timeout_ms=10_000,
    )
    return made | changes  # type: ignore[return-value]  # the same keys


def address_of(of: OwnTerms) -> Address:
    return Address(of["provider"], of["incarnation"], of["lanes"], of["lane_counts"])


@dataclass
class Meeting:
    """One handshake, frame by frame, with somebody between the two who may change each.

    Attributes:
        frames: as they were received.
        near: ticket that the listening side has got; None: it has not found the other good.
        far: the same of the connecting side.
        errors: which each side met.
    """

    connecting: Secrets = (SECRET,)
    listening: Secrets = (SECRET,)
    near_terms: OwnTerms = field(default_factory=lambda: terms(1))
    far_terms: OwnTerms = field(default_factory=lambda: terms(101))
    expected: Address | None = None
    frames: list[bytes] = field(default_factory=list)
    near: Ticket | None = None
    far: Ticket | None = None
    errors: list[FabricioError] = field(default_factory=list)

    def between(self, step: int, body: bytes) -> bytes:
        """What becomes of a frame; to be replaced."""
        return body

    def carry(self, step: int, body: bytes) -> tuple[Any, bytes]:
        """Bring a frame to the other side, which drops what is none."""
        body = self.between(step, body)
        self.frames.append(body)
        frame = decode(body)
        if not isinstance(frame, STEPS[step]):
            raise RemoteProtocolError("not the frame that is waited for")
        return frame, body

    def run(self) -> Meeting:
        """Go through it, as far as it goes."""
        try:
            c = Connecting(roots_of(self.connecting), self.near_terms, NEAR)
            listener = Listening(roots_of(self.listening), *self.carry(0, c.hello_body))
            challenge, body = self.carry(1, listener.challenge(self.far_terms))
            expected = self.expected or address_of(self.far_terms)
            proof, proof_body = self.carry(2, c.prove(challenge, body, expected))
            self.near = listener.admit(proof, proof_body)
            self.far = c.admit(*self.carry(3, listener.accept(FAR)))
        except FabricioError as error:
            self.errors.append(error)
        return self


@dataclass
class Changed(Meeting):
    """A handshake with one frame replaced."""

    at: int = 0
    by: bytes = b""

    def between(self, step: int, body: bytes) -> bytes:
        return self.by if step == self.at else body


@pytest.mark.parametrize("secrets", [(), (SECRET,), (SECRET, NEW)])
def test_both_share_it(secrets: Secrets) -> None:
    meeting = Meeting(secrets, secrets).run()
    assert (meeting.near, meeting.far, meeting.errors) == (NEAR, FAR, [])


@pytest.mark.parametrize(
    ("connecting", "listening"),
    [
        ((NEW, SECRET), (SECRET,)),
        ((SECRET,), (NEW, SECRET)),
        ((NEW, SECRET), (SECRET, NEW)),
        ((OTHER, NEW, SECRET), (SECRET,)),
        ((NEW, SECRET), (OTHER, NEW)),
        ((NEW,), (OTHER, NEW)),
        ((SECRET, NEW), (NEW,)),
    ],
)
def test_one_of_several(connecting: Secrets, listening: Secrets) -> None:
    meeting = Meeting(connecting, listening).run()
    assert (meeting.near, meeting.far, meeting.errors) == (NEAR, FAR, [])


@pytest.mark.parametrize(
    ("connecting", "listening"),
    [
        ((SECRET,), (OTHER,)),
        ((SECRET,), ()),
        ((), (SECRET,)),
        ((SECRET, NEW), (OTHER,)),
        ((OTHER,), (SECRET, NEW)),
        ((SECRET,), (SECRET + b"\n",)),
        ((SECRET,), (SECRET + b"\0",)),
    ],
)
def test_no_secret_in_common(connecting: Secrets, listening: Secrets) -> None:
    meeting = Meeting(connecting, listening).run()
    assert len(meeting.frames) == 1  # the listening side has said nothing about itself
    assert (meeting.near, meeting.far) == (None, None)
    (error,) = meeting.errors
    assert isinstance(error, AuthenticationError)
    assert "secret=" in str(error)


@given(st.lists(st.sampled_from([SECRET, NEW, OTHER]), min_size=1, max_size=4), st.data())
def test_any_rotation(connecting: list[bytes], data: st.DataObject) -> None:
    listening = data.draw(st.lists(st.sampled_from([SECRET, NEW, OTHER]), min_size=1, max_size=4))
    meeting = Meeting(tuple(connecting), tuple(listening)).run()
    assert (meeting.far is not None) == bool(set(connecting) & set(listening))


def replace_random(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every handshake use the same nonces: then replays must be the same to the byte."""
    monkeypatch.setattr("fabricio.authentication.random.token_bytes", lambda count: b"n" * count)


def flipped(body: bytes, bit: int) -> bytes:
    changed = bytearray(body)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("secrets", [(SECRET,), (SECRET, NEW)], ids=["one", "two"])
@pytest.mark.parametrize("step", range(4))
def test_every_single_bit_counts(
    step: int, secrets: Secrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_random(monkeypatch)
    whole = Meeting(secrets, secrets).run()
    assert whole.far == FAR
    body = whole.frames[step]
    for bit in range(8 * len(body)):
        changed = Changed(secrets, secrets, at=step, by=flipped(body, bit)).run()
        assert changed.far is None, bit
        assert changed.errors, bit
        # Only the last frame is said to somebody who was found good.
        assert changed.near == (NEAR if step == 3 else None), bit


@given(st.integers(0, 3), st.data())
def test_any_change_counts(step: int, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        replace_random(monkeypatch)
        body = Meeting().run().frames[step]
        changed = bytearray(body)
        for _ in range(data.draw(st.integers(1, 8))):
            place = data.draw(st.integers(0, len(changed)))
            changed[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
        if bytes(changed) != body:
            meeting = Changed(at=step, by=bytes(changed)).run()
            assert meeting.far is None


@pytest.mark.parametrize("step", range(4))
def test_what_is_cut_off_counts(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_random(monkeypatch)
    body = Meeting().run().frames[step]
    for length in range(len(body)):
        assert Changed(at=step, by=body[:length]).run().far is None
    assert Changed(at=step, by=body + b"\0").run().far is None


def repacked(body: bytes, **changes: object) -> bytes:
    """The same frame with other values, and its fields in the same order."""
    content: dict[str, Any] = msgpack.unpackb(body)
    packed: bytes = msgpack.packb(content | changes)
    return packed


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize(
    "changes",
    [
        {"nonce": bytes(32)},
        {"attempt": bytes(16)},
        {"incarnation": bytes(16)},
        {"lanes": [b"m" * 16, b"n" * 16]},
        {"lanes": [b"m" * 16], "lane_counts": [1]},
        {"lane_counts": [2]},
        {"provider": "TCP"},
        {"max_message_bytes": 1},
        {"receive_window_bytes": (1 << 24) + 256},
        {"frame_bytes": 2048},
        {"peer_timeout_ms": 1},
    ],
    ids=lambda changes: "+".join(changes),
)
def test_terms_are_bound(
    step: int, changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_random(monkeypatch)
    body = repacked(Meeting().run().frames[step], **changes)
    meeting = Changed(at=step, by=body).run()
    assert (meeting.near, meeting.far) == (None, None)
    assert isinstance(meeting.errors[0], AuthenticationError | PeerUnreachableError)


def test_the_same_values_written_otherwise_are_not_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replace_random(monkeypatch)
    for step, body in enumerate(Meeting().run().frames):
        content: dict[str, Any] = msgpack.unpackb(body)
        backwards = dict(reversed(content.items()))
        assert Changed(at=step, by=msgpack.packb(backwards)).run().far is None
        # A map of the long form, with the same entries.
        long = b"\xdf" + len(content).to_bytes(4, "big") + body[1 if body[0] != 0xDE else 3 :]
        assert decode(long) == decode(body)
        assert Changed(at=step, by=long).run().far is None


@pytest.mark.parametrize("step", range(4))
def test_a_replayed_frame_is_refused(step: int) -> None:
    earlier = Meeting().run()
    replayed = Changed(at=step, by=earlier.frames[step]).run()
    assert replayed.far is None
    assert replayed.near == (NEAR if step == 3 else None)
    assert isinstance(replayed.errors[0], AuthenticationError)


def test_a_replayed_connecting_side_is_refused() -> None:
    hello, _, proof, _ = Meeting().run().frames
    first, again = decode(hello), decode(proof)
    assert isinstance(first, Hello)
    assert isinstance(again, HelloProof)
    listener = Listening(ROOTS, first, hello)  # the hint is as good as it was
    listener.challenge(terms(101))
    with pytest.raises(AuthenticationError):
        listener.admit(again, proof)


def test_a_replayed_listening_side_is_refused() -> None:
    _, challenge, _, accept = Meeting().run().frames
    c = Connecting(ROOTS, terms(1), NEAR)
    asked, said = decode(challenge), decode(accept)
    assert isinstance(asked, HelloChallenge)
    assert isinstance(said, HelloAccepted)
    c.prove(asked, challenge, address_of(terms(101)))
    with pytest.raises(AuthenticationError):
        c.admit(said, accept)


def as_accepted(proof_body: bytes) -> tuple[HelloAccepted, bytes]:
    """A connecting side's own proof, dressed as the listening side's."""
    proof = decode(proof_body)
    assert isinstance(proof, HelloProof)
    frame = HelloAccepted(attempt=proof.attempt, slots=(1,), cookie=1, proof=proof.proof)
    return frame, frame.encode()


def test_a_reflected_proof_is_refused() -> None:
    c = Connecting(ROOTS, terms(1), NEAR)
    listener = Listening(ROOTS, c.hello, c.hello_body)
    body = listener.challenge(terms(101))
    challenge = decode(body)
    assert isinstance(challenge, HelloChallenge)
    proof = c.prove(challenge, body, address_of(terms(101)))
    with pytest.raises(AuthenticationError):
        c.admit(*as_accepted(proof))


def test_one_fabric_is_not_played_against_itself() -> None:
    # Somebody without the secret has a Fabric connect to him, and connects to that same Fabric, so
    # that it answers its own challenge.
    victim = terms(1)
    c = Connecting(ROOTS, victim, NEAR)
    listener = Listening(ROOTS, c.hello, c.hello_body)
    body = listener.challenge(victim)
    for claim in (body, repacked(body, incarnation=terms(101)["incarnation"])):
        challenge = decode(claim)
        assert isinstance(challenge, HelloChallenge)
        with pytest.raises((AuthenticationError, PeerUnreachableError)):
            c.prove(challenge, claim, address_of(terms(101)))
    lied = repacked(body, incarnation=terms(101)["incarnation"], lanes=list(terms(101)["lanes"]))
    challenge = decode(lied)
    assert isinstance(challenge, HelloChallenge)
    proof_body = c.prove(challenge, lied, address_of(terms(101)))
    proof = decode(proof_body)
    assert isinstance(proof, HelloProof)
    with pytest.raises(AuthenticationError):
        listener.admit(proof, proof_body)


def test_roles_and_purposes_have_keys_of_their_own() -> None:
    root, said = Root(SECRET), (b"the same", b"words")
    made = {root.proof(purpose, *said) for purpose in Purpose}
    assert len(made) == len(Purpose)
    assert not root.proves(Purpose.LISTENING, root.proof(Purpose.CONNECTING, *said), *said)
    assert root.proves(Purpose.LISTENING, root.proof(Purpose.LISTENING, *said), *said)


@given(st.lists(st.binary(max_size=5), max_size=4), st.lists(st.binary(max_size=5), max_size=4))
def test_no_byte_moves_between_two_parts(one: list[bytes], other: list[bytes]) -> None:
    root = Root(SECRET)
    same = root.proof(Purpose.LISTENING, *one) == root.proof(Purpose.LISTENING, *other)
    assert same == (one == other)


@given(
    st.lists(st.integers(0, 65535), min_size=1, max_size=64),
    st.integers(0, (1 << 64) - 1),
    st.binary(),
)
def test_the_seal(slots: list[int], cookie: int, context: bytes) -> None:
    ticket, root = Ticket(tuple(slots), cookie), Root(SECRET)
    sealed = root.seal(ticket, context)
    assert root.unseal(sealed, context) == ticket
    assert Root(OTHER).unseal(sealed, context) != ticket
    assert root.unseal(sealed, context, b"") != ticket


def test_the_seal_never_repeats_itself() -> None:
    sealed = Root(SECRET).seal(Ticket((0,) * 64, 0), b"context")
    assert len({sealed[start : start + 8] for start in range(len(sealed) - 8)}) == len(sealed) - 8


def test_the_ticket_is_not_said_in_clear() -> None:
    for frame in Meeting().run().frames[:3]:
        assert NEAR.cookie.to_bytes(8, "big") not in frame


@pytest.mark.parametrize("length", [0, 8, 9, 11, 8 + 2 * 65])
def test_a_sealed_ticket_of_no_length(length: int) -> None:
    c = Connecting(ROOTS, terms(1), NEAR)
    listener = Listening(ROOTS, c.hello, c.hello_body)
    body = listener.challenge(terms(101))
    frame = HelloProof(attempt=c.hello.attempt, sealed=bytes(length), proof=bytes(32))
    start = frame.encode()[:-32]
    proof = Root(SECRET).proof(Purpose.CONNECTING, c.hello_body, body, start)
    with pytest.raises(RemoteProtocolError, match=f"sealed ticket of {length} bytes"):
        listener.admit(dataclasses.replace(frame, proof=proof), start + proof)


def test_nonces_and_attempts_are_never_the_same() -> None:
    sides = [Connecting(ROOTS, terms(1), NEAR) for _ in range(100)]
    assert len({side.hello.nonce for side in sides}) == 100
    assert len({side.hello.attempt for side in sides}) == 100
    assert len({side.hello.hints for side in sides}) == 100
    challenges = [
        decode(Listening(ROOTS, side.hello, side.hello_body).challenge(terms(101)))
        for side in sides[:1] * 100
    ]
    assert (
        len(
            {
                challenge.nonce
                for challenge in challenges
                if isinstance(challenge, Hello | HelloChallenge)
            }
        )
        == 100
    )


def test_another_incarnation_answers() -> None:
    expected = dataclasses.replace(address_of(terms(101)), incarnation=bytes(16))
    (error,) = Meeting(expected=expected).run().errors
    assert isinstance(error, PeerUnreachableError)


@pytest.mark.parametrize(
    "changes", [{"lanes": (b"m" * 16, b"n" * 16)}, {"lane_counts": (2,)}], ids=["lanes", "counts"]
)
def test_the_peer_has_other_lanes_than_its_address(changes: dict[str, Any]) -> None:
    expected = dataclasses.replace(address_of(terms(101)), **changes)
    meeting = Meeting(expected=expected).run()
    assert meeting.near is None
    assert isinstance(meeting.errors[0], AuthenticationError)
    # Without a secret nobody claims to be anybody.
    assert Meeting((), (), expected=expected).run().far == FAR


def test_a_hint_that_was_not_given_is_chosen() -> None:
    c = Connecting(ROOTS, terms(1), NEAR)
    body = repacked(Listening(ROOTS, c.hello, c.hello_body).challenge(terms(101)), chosen=1)
    challenge = decode(body)
    assert isinstance(challenge, HelloChallenge)
    with pytest.raises(AuthenticationError):
        c.prove(challenge, body, address_of(terms(101)))


def test_sides_that_do_not_fit_are_told_so_after_the_hint() -> None:
    near = terms(1, immediate_bytes=4)
    (error,) = Meeting(near_terms=near).run().errors
    assert isinstance(error, RemoteProtocolError)
    assert "4" in str(error)
    meeting = Meeting((OTHER,), near_terms=near).run()
    assert isinstance(meeting.errors[0], AuthenticationError)


def test_who_is_denied_learns_nothing_else() -> None:
    content: dict[str, Any] = msgpack.unpackb(HelloDenied(attempt=bytes(16)).encode())
    assert set(content) == {"magic", "role", "version", "attempt"}


@pytest.mark.parametrize("listening", [(OTHER,), (SECRET,)], ids=["denied", "forged"])
def test_no_traceback_shows_a_secret(listening: Secrets) -> None:
    meeting = Changed(listening=listening, at=2, by=Meeting().run().frames[2]).run()
    (error,) = meeting.errors
    shown = traceback.TracebackException.from_exception(error, capture_locals=True).stack[1:]
    assert shown
    for frame in shown:  # the first is this test's own
        assert not any(one.decode() in str(frame.locals) for one in (SECRET, OTHER))


def test_the_label_names_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Root(SECRET).proof(Purpose.HINT)
    monkeypatch.setattr(proofs, "_LABEL", proofs._LABEL.replace(b"handshake 4", b"handshake 5"))
    assert Root(SECRET).proof(Purpose.HINT) != before
