"""Hellos: round trips, and nothing but RemoteProtocolError for foreign bytes."""

import dataclasses
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricio.errors import RemoteProtocolError
from fabricio.frames import MIN_FRAME_BYTES
from fabricio.handshake import (
    PROTOCOL_VERSION,
    ForeignHello,
    Greeting,
    Hello,
    HelloAccepted,
    HelloChallenge,
    HelloDenied,
    HelloProof,
    HelloRefused,
    check_compatible,
    check_version,
    decode,
    provider_family,
)
from fabricio.options import MIN_FRAME_BYTES as MIN_FRAME_BYTES_OPTION

ENGINE_HEADER_BYTES = 16

TERMS: dict[str, Any] = {
    "provider": "tcp",
    "incarnation": bytes(16),
    "lanes": (b"\x02\x00\x1f\x90\x7f\x00\x00\x01",),
    "lane_counts": (1,),
    "immediate_bytes": 8,
    "max_message_bytes": 1 << 24,
    "receive_window_bytes": 1 << 25,
    "frame_bytes": 65600,
    "peer_timeout_ms": 10_000,
    "attempt": bytes(range(16)),
    "nonce": bytes(range(32)),
}
HELLO = Hello(**TERMS, hints=(b"12345678",))
ACCEPTED: dict[str, Any] = {
    "attempt": bytes(range(16)),
    "slots": (3,),
    "cookie": 1 << 63,
    "proof": bytes(32),
}
PROOF: dict[str, Any] = {"attempt": bytes(range(16)), "sealed": bytes(10), "proof": bytes(32)}

ATTEMPTS = st.binary(min_size=16, max_size=16)
PROOFS = st.binary(min_size=32, max_size=32)
SLOTS = st.lists(st.integers(0, 65535), min_size=1, max_size=64).map(tuple)
HINTS = st.lists(st.binary(min_size=8, max_size=8), min_size=1, max_size=4).map(tuple)
MAX_MESSAGE = st.integers(1, (1 << 32) - 1)


@st.composite
def terms(draw: st.DrawFn) -> dict[str, Any]:
    max_message_bytes = draw(MAX_MESSAGE)
    counts = draw(st.lists(st.integers(1, 5), min_size=1, max_size=64))
    total = sum(counts)
    return {
        "provider": draw(st.sampled_from(["tcp", "shm", "efa", "tcp;ofi_rxm"])),
        "incarnation": draw(ATTEMPTS),
        "lanes": (draw(st.binary(min_size=1, max_size=64)),) * total,
        "lane_counts": tuple(counts),
        "immediate_bytes": draw(st.integers(0, 8)),
        "max_message_bytes": max_message_bytes,
        "receive_window_bytes": max_message_bytes + draw(st.integers(256, 1 << 30)),
        "frame_bytes": draw(st.integers(MIN_FRAME_BYTES, 1 << 24)),
        "peer_timeout_ms": draw(st.integers(1, 1 << 30)),
        "attempt": draw(ATTEMPTS),
        "nonce": draw(PROOFS),
    }


@st.composite
def foreign(draw: st.DrawFn) -> ForeignHello:
    fields = draw(terms())
    version = draw(st.integers(0, (1 << 32) - 1).filter(lambda number: number != PROTOCOL_VERSION))
    names = ("attempt", "lanes", "lane_counts")
    return ForeignHello(version=version, **{name: fields[name] for name in names})


HELLOS: st.SearchStrategy[Greeting] = st.one_of(
    st.builds(lambda fields, hints: Hello(**fields, hints=hints), terms(), HINTS),
    st.builds(
        lambda fields, chosen: HelloChallenge(**fields, chosen=chosen), terms(), st.integers(0, 3)
    ),
    foreign(),
    st.builds(HelloProof, attempt=ATTEMPTS, sealed=st.binary(max_size=136), proof=PROOFS),
    st.builds(
        HelloAccepted,
        attempt=ATTEMPTS,
        slots=SLOTS,
        cookie=st.integers(0, (1 << 64) - 1),
        proof=PROOFS,
    ),
    st.builds(HelloDenied, version=st.integers(0, 9), attempt=ATTEMPTS),
    st.builds(
        HelloRefused,
        version=st.integers(0, 9),
        attempt=ATTEMPTS,
        reason=st.text(st.characters(exclude_categories=["Cs"]), max_size=500),
    ),
)


def content(frame: Greeting = HELLO, /, **changes: object) -> bytes:
    body: dict[Any, Any] = msgpack.unpackb(frame.encode())
    body.update(changes)
    packed: bytes = msgpack.packb(body)
    return packed


@given(HELLOS)
def test_round_trip(hello: Greeting) -> None:
    decoded = decode(hello.encode())
    assert decoded == hello
    assert type(decoded) is type(hello)


def test_32_lanes_fit_the_smallest_frame() -> None:
    many: dict[str, Any] = TERMS | {
        "provider": "verbs;ofi_rxm",
        "lanes": (bytes(48),) * 32,
        "lane_counts": (1,) * 32,
        "max_message_bytes": (1 << 32) - 1,
        "receive_window_bytes": 1 << 40,
        "peer_timeout_ms": (1 << 40) - 1,
    }
    for frame in (
        Hello(**many, hints=(bytes(8),) * 4),
        HelloChallenge(**many, chosen=3),
        HelloProof(**PROOF | {"sealed": bytes(8 + 2 * 64)}),
        HelloAccepted(**ACCEPTED | {"slots": (65535,) * 64}),
    ):
        assert len(frame.encode()) <= MIN_FRAME_BYTES_OPTION - ENGINE_HEADER_BYTES


@given(st.binary())
def test_garbage(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="malformed"):
        decode(body)


@given(HELLOS, st.data())
def test_damaged_hello_is_a_hello_or_a_remote_protocol_error(
    hello: Greeting, data: st.DataObject
) -> None:
    body = bytearray(hello.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        if body:
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    del body[data.draw(st.integers(0, len(body))) :]
    try:
        decoded = decode(bytes(body))
    except RemoteProtocolError:
        return
    assert decode(decoded.encode()) == decoded


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 1 << 64 - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from([*sorted(TERMS), "hints"]), VALUES)
def test_any_value_in_any_field(name: str, value: object) -> None:
    try:
        decoded = decode(content(**{name: value}))
    except RemoteProtocolError as error:
        assert name in str(error) or "receive_window_bytes" in str(error)  # noqa: PT017  # may pass
        return
    assert isinstance(decoded, Hello)


@pytest.mark.parametrize("name", [*TERMS, "hints", "role", "magic"])
def test_missing_field(name: str) -> None:
    body: dict[Any, Any] = msgpack.unpackb(HELLO.encode())
    del body[name]
    with pytest.raises(RemoteProtocolError, match="malformed"):
        decode(msgpack.packb(body))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("magic", "fabric"),
        ("role", "greet"),
        ("role", ["hello"]),
        ("version", True),
        ("version", -1),
        ("provider", "t\n"),
        ("incarnation", bytes(15)),
        ("lanes", []),
        ("lanes", [b""]),
        ("lanes", ["text"]),
        ("lanes", {}),
        ("lanes", [b"x"] * 1025),
        ("lane_counts", []),
        ("lane_counts", [2]),
        ("lane_counts", [1, 0]),
        ("lane_counts", 1),
        ("immediate_bytes", 65),
        ("max_message_bytes", 0),
        ("receive_window_bytes", (1 << 24) + 255),
        ("frame_bytes", 543),
        ("peer_timeout_ms", 0),
        ("attempt", "text"),
        ("nonce", bytes(31)),
        ("nonce", None),
        ("hints", []),
        ("hints", [bytes(8)] * 5),
        ("hints", [bytes(7)]),
        ("hints", ["12345678"]),
        ("hints", bytes(8)),
    ],
)
def test_wrong_field_is_named(name: str, value: object) -> None:
    named = "begin" if name == "magic" else name
    with pytest.raises(RemoteProtocolError, match=named):
        decode(content(**{name: value}))


@pytest.mark.parametrize(
    ("frame", "name", "value"),
    [
        *(
            (HelloAccepted(**ACCEPTED), "slots", value)
            for value in ([], [65536], [-1], [True], [1] * 65, 1)
        ),
        (HelloAccepted(**ACCEPTED), "cookie", -1),
        (HelloAccepted(**ACCEPTED), "proof", bytes(31)),
        (HelloAccepted(**ACCEPTED), "version", PROTOCOL_VERSION - 1),
        (HelloProof(**PROOF), "sealed", "text"),
        (HelloProof(**PROOF), "sealed", bytes(1025)),
        (HelloProof(**PROOF), "proof", bytes(33)),
        (HelloProof(**PROOF), "version", PROTOCOL_VERSION + 1),
        (HelloChallenge(**TERMS, chosen=0), "chosen", 4),
        (HelloChallenge(**TERMS, chosen=0), "lane_counts", [2]),
        (HelloDenied(attempt=bytes(16)), "attempt", bytes(17)),
    ],
)
def test_wrong_field_of_a_later_frame_is_named(frame: Greeting, name: str, value: object) -> None:
    with pytest.raises(RemoteProtocolError, match=name):
        decode(content(frame, **{name: value}))


def test_fields_are_checked_when_made_too() -> None:
    with pytest.raises(ValueError, match="slots are not"):
        HelloAccepted(**ACCEPTED | {"slots": (65536,)})


def test_unknown_field() -> None:
    with pytest.raises(RemoteProtocolError, match="shoe_size"):
        decode(content(shoe_size=43))


def test_nested_too_deep_and_trailing_bytes() -> None:
    for body in (b"\x91" * 5000, HELLO.encode() + b"\x00"):
        with pytest.raises(RemoteProtocolError):
            decode(body)


def test_another_version_can_be_read_and_is_refused_by_name() -> None:
    theirs = decode(content(version=PROTOCOL_VERSION + 1, shoe_size=43))
    assert theirs == ForeignHello(
        version=PROTOCOL_VERSION + 1,
        attempt=HELLO.attempt,
        lanes=HELLO.lanes,
        lane_counts=HELLO.lane_counts,
    )
    with pytest.raises(RemoteProtocolError, match=rf"version {PROTOCOL_VERSION} and the peer \d"):
        check_version(theirs)


@pytest.mark.parametrize("name", ["attempt", "lanes", "lane_counts"])
def test_another_version_must_say_whom_to_refuse(name: str) -> None:
    body: dict[Any, Any] = msgpack.unpackb(content(version=PROTOCOL_VERSION + 1))
    del body[name]
    with pytest.raises(RemoteProtocolError, match=name):
        decode(msgpack.packb(body))


def test_refusal_of_any_length_fits() -> None:
    refused = HelloRefused.because(TERMS["attempt"], "no " * 1000)
    assert decode(refused.encode()) == refused
    assert len(refused.reason) == 500


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"provider": "shm"}, "'tcp' and the peer 'shm'"),
        ({"provider": "tcp;ofi_rxm"}, "'tcp' and the peer 'tcp;ofi_rxm'"),
        ({"immediate_bytes": 4}, "8 bytes of immediate data and the peer's 4"),
    ],
)
def test_incompatible(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(RemoteProtocolError, match=text):
        check_compatible(HELLO, dataclasses.replace(HELLO, **changes))


def test_compatible() -> None:
    check_compatible(HELLO, HelloChallenge(**(TERMS | {"frame_bytes": 8192}), chosen=3))
    check_compatible(
        dataclasses.replace(HELLO, provider="verbs;ofi_rxm"),
        dataclasses.replace(HELLO, provider="ofi_rxm;verbs;ofi_hook_debug"),
    )
    assert provider_family("OFI_RXM;verbs") == "ofi_rxm;verbs"
