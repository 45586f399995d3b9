"""The frames that two Fabrics exchange before they are peers: sans-IO.

Each is one msgpack map. The connecting side sends `Hello`, is answered by `HelloChallenge`, sends
`HelloProof`, and is answered by `HelloAccepted`; what they prove, and to whom, says
`fabricio/authentication.py`. Either side may end it by `HelloRefused`, which says why, or by
`HelloDenied`, which says nothing. A frame may come again, since nobody confirms it but by the
answer: `attempt` tells a repetition from a new one.

What is needed to refuse a hello by name is the same in all versions of the protocol: see
`ForeignHello` and `HelloRefused`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, Self, TypedDict

import msgpack

from fabricio.address import (
    INCARNATION_BYTES,
    are_lane_counts,
    are_lanes,
    is_provider,
)
from fabricio.codec import check_elements
from fabricio.errors import RemoteProtocolError
from fabricio.frames import MIN_CHARGE_BYTES, MIN_FRAME_BYTES
from fabricio.options import (
    MAX_FRAME_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_WINDOW_BYTES,
    MAX_WORKER_COUNT,
)
from fabricio.secret import MAX_SECRET_COUNT

MAGIC = "fabricio"
PROTOCOL_VERSION = 4
ATTEMPT_BYTES = 16
NONCE_BYTES = 32
HINT_BYTES = 8
PROOF_BYTES = 32
MAX_REASON_CHARACTERS = 500

_MAX_IMMEDIATE_BYTES = 64

# Field name -> least and greatest value.
_RANGES = {
    "version": (0, (1 << 32) - 1),
    "chosen": (0, MAX_SECRET_COUNT - 1),
    "cookie": (0, (1 << 64) - 1),
    "immediate_bytes": (0, _MAX_IMMEDIATE_BYTES),
    "max_message_bytes": (1, MAX_MESSAGE_BYTES),
    "receive_window_bytes": (1, MAX_WINDOW_BYTES),
    "frame_bytes": (MIN_FRAME_BYTES, MAX_FRAME_BYTES),
    "peer_timeout_ms": (1, (1 << 40) - 1),
}
_BYTES = {
    "incarnation": INCARNATION_BYTES,
    "attempt": ATTEMPT_BYTES,
    "nonce": NONCE_BYTES,
    "proof": PROOF_BYTES,
}
_MAX_SEALED_BYTES = 1024
# One for each of the peer's workers, or of ours.
MAX_PATH_COUNT = MAX_WORKER_COUNT


class Ticket(NamedTuple):
    """What every frame to one side must bear after the handshake, so that its engine takes it.

    Attributes:
        slots: what that side calls the sender, on each path.
        cookie: random number of 64 bits.
    """

    slots: tuple[int, ...]
    cookie: int


class OwnTerms(TypedDict):
    """The fields of `Terms` that one side says to all, filled by this side."""

    provider: str
    incarnation: bytes
    lanes: tuple[bytes, ...]
    lane_counts: tuple[int, ...]
    immediate_bytes: int
    max_message_bytes: int
    receive_window_bytes: int
    frame_bytes: int
    peer_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Greeting:
    """What every hello frame has: a role, fields, and one way to be written."""

    role: ClassVar[str]
    version: int = PROTOCOL_VERSION

    def __post_init__(self) -> None:
        """Check every field; ValueError names the first that is wrong."""
        for field in fields(self):
            _check_field(field.name, getattr(self, field.name))

    def encode(self) -> bytes:
        """Return the body of the hello frame."""
        content: dict[str, Any] = {"magic": MAGIC, "role": self.role}
        for field in fields(self):
            content[field.name] = getattr(self, field.name)
        body: bytes = msgpack.packb(content)
        return body

    @classmethod
    def from_content(cls, content: dict[str, Any]) -> Self:
        """Make one from a decoded map; ValueError names what is wrong."""
        names = [field.name for field in fields(cls)]
        for name in names:
            if name not in content:
                raise ValueError(f"it has no {name}")
        if content["version"] == PROTOCOL_VERSION and len(content) != len(names) + 2:
            unknown = sorted(map(str, content.keys() - {*names, "magic", "role"}))
            raise ValueError(f"it has unknown fields {', '.join(unknown)!r:.100}")
        return cls(**{name: content[name] for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms(_Greeting):
    """What either side tells of itself.

    Attributes:
        version: of the protocol.
        provider: name of the opened provider.
        incarnation: 16 bytes of this start of the Fabric.
        lanes: raw fabric address of each lane, worker by worker.
        lane_counts: how many lanes each worker has.
        immediate_bytes: size of immediate data that the provider carries.
        max_message_bytes: longest message that it takes.
        receive_window_bytes: what may be under way to it or unread there.
        frame_bytes: longest frame that it takes.
        peer_timeout_ms: after so much silence it gives this peer up.
        attempt: 16 random bytes of this attempt to connect, chosen by the connecting side.
        nonce: 32 random bytes of the sender, never used again.
    """

    provider: str
    incarnation: bytes
    lanes: tuple[bytes, ...]
    lane_counts: tuple[int, ...]
    immediate_bytes: int
    max_message_bytes: int
    receive_window_bytes: int
    frame_bytes: int
    peer_timeout_ms: int
    attempt: bytes
    nonce: bytes

    def __post_init__(self) -> None:
        """Check every field, then those that depend on each other."""
        # slots=True makes a new class, which the zero-argument super() does not know.
        _Greeting.__post_init__(self)
        _check_lane_counts(self.lane_counts, self.lanes)
        least = self.max_message_bytes + MIN_CHARGE_BYTES
        if self.receive_window_bytes < least:
            raise ValueError(
                f"receive_window_bytes is {self.receive_window_bytes}, less than {least} for the "
                "longest message"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello(Terms):
    """The first word of a connecting Fabric.

    Attributes:
        hints: one for each secret that it has, of 8 bytes; who knows the secret knows the hint.
            All others as in `Terms`.
    """

    role: ClassVar[str] = "hello"
    hints: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HelloChallenge(Terms):
    """The answer of a Fabric that may take the peer, if it proves what it must.

    Attributes:
        chosen: place of the hint whose secret both sides are to prove. All others as in `Terms`.
    """

    role: ClassVar[str] = "challenge"
    chosen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proving(_Greeting):
    """A frame whose last bytes prove it: its version is ours, since nobody could answer another."""

    def __post_init__(self) -> None:
        _Greeting.__post_init__(self)
        if self.version != PROTOCOL_VERSION:
            raise ValueError(f"it is of version {self.version}, and belongs to no hello of ours")


@dataclass(frozen=True, slots=True, kw_only=True)
class HelloProof(_Proving):
    """The connecting side's proof.

    Attributes:
        version: of the protocol.
        attempt: that of the `Hello`.
        sealed: its `Ticket`, which only who knows the secret can read.
        proof: over all that was said before, and over this frame up to here.
    """

    role: ClassVar[str] = "prove"
    attempt: bytes
    sealed: bytes
    proof: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HelloAccepted(_Proving):
    """The answer of a Fabric that takes the peer, and its proof.

    Attributes:
        version: of the protocol.
        attempt: that of the `Hello`.
        slots: as in `Ticket`, of the answering side.
        cookie: likewise.
        proof: over all that was said before, and over this frame up to here.
    """

    role: ClassVar[str] = "accept"
    attempt: bytes
    slots: tuple[int, ...]
    cookie: int
    proof: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignHello(_Greeting):
    """A hello of another version of the protocol, as far as refusing it needs.

    Attributes:
        version: of the protocol.
        attempt: as in `Terms`.
        lanes: likewise.
        lane_counts: likewise.
    """

    role: ClassVar[str] = "hello"
    attempt: bytes
    lanes: tuple[bytes, ...]
    lane_counts: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check every field."""
        _Greeting.__post_init__(self)
        _check_lane_counts(self.lane_counts, self.lanes)


@dataclass(frozen=True, slots=True, kw_only=True)
class HelloRefused(_Greeting):
    """The answer of a Fabric that does not, or the last word of one that connects no more.

    Attributes:
        version: of the protocol of who refuses.
        attempt: that of the `Hello`.
        reason: why, for the peer's user; at most 500 characters, see `because`.
    """

    role: ClassVar[str] = "refuse"
    attempt: bytes
    reason: str

    @classmethod
    def because(cls, attempt: bytes, reason: str) -> Self:
        """Make one whose reason fits, whatever its length."""
        return cls(attempt=attempt, reason=reason[:MAX_REASON_CHARACTERS])


@dataclass(frozen=True, slots=True, kw_only=True)
class HelloDenied(_Greeting):
    """The last word to a peer that does not share the secret: nothing more is said.

    Attributes:
        version: of the protocol of who denies.
        attempt: that of the `Hello`.
    """

    role: ClassVar[str] = "deny"
    attempt: bytes


Answer = HelloChallenge | HelloAccepted
End = HelloRefused | HelloDenied
Greeting = Hello | ForeignHello | HelloProof | Answer | End

_KINDS: tuple[type[Greeting], ...] = (
    Hello,
    HelloChallenge,
    HelloProof,
    HelloAccepted,
    HelloRefused,
    HelloDenied,
)
_ROLES = {kind.role: kind for kind in _KINDS}


def decode(body: bytes | bytearray | memoryview) -> Greeting:
    """Read the body of a frame of the handshake.

    Args:
        body: from anybody.

    Returns:
        The frame; only a `ForeignHello` and those that end the handshake are of other versions.

    Raises:
        RemoteProtocolError: anything missing, unknown, of the wrong type or out of range.
    """
    try:
        check_elements(body)
        content = msgpack.unpackb(body, use_list=False)
        if not isinstance(content, dict) or content.get("magic") != MAGIC:
            raise ValueError("it does not begin as one of fabricio's")
        role = content.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise ValueError(f"it has the unknown role {role!r:.40}")
        kind = _ROLES[role]
        if kind is Hello and content.get("version") != PROTOCOL_VERSION:
            kind = ForeignHello
        return kind.from_content(content)
    # Whatever msgpack or a check meets in foreign bytes is the sender's doing.
    except Exception as error:
        raise RemoteProtocolError(
            f"a hello of {len(body)} bytes is malformed: {error or type(error).__name__}; it comes "
            "from another program or version"
        ) from error


def check_version(theirs: ForeignHello | Terms) -> None:
    """Check that the peer speaks our version of the protocol.

    Raises:
        RemoteProtocolError: names both versions.
    """
    if theirs.version != PROTOCOL_VERSION:
        raise RemoteProtocolError(
            f"this side speaks protocol version {PROTOCOL_VERSION} and the peer "
            f"{theirs.version}: install the same release of fabricio on both"
        )


def check_compatible(mine: Terms, theirs: Terms) -> None:
    """Check that two sides can work together.

    Args:
        mine: what this side says or would say.
        theirs: what the peer says.

    Raises:
        RemoteProtocolError: names both values of the first difference.
    """
    check_version(theirs)
    if provider_family(mine.provider) != provider_family(theirs.provider):
        raise RemoteProtocolError(
            f"this side uses provider {mine.provider!r} and the peer {theirs.provider!r}: "
            "name the same provider on both, with provider= or FABRICIO_PROVIDER"
        )
    if mine.immediate_bytes != theirs.immediate_bytes:
        raise RemoteProtocolError(
            f"this side's provider carries {mine.immediate_bytes} bytes of immediate data and the "
            f"peer's {theirs.immediate_bytes}: use the same libfabric on both"
        )


def provider_family(provider: str) -> str:
    """Return what must be equal for two providers to understand each other.

    Args:
        provider: a name such as "tcp;ofi_rxm", whose layers libfabric may name in any order and
            with hooks ("ofi_hook_...") among them.
    """
    layers = {layer for layer in provider.lower().split(";") if layer}
    return ";".join(sorted(layer for layer in layers if not layer.startswith("ofi_hook_")))


def _check_field(name: str, value: object) -> None:
    if name in _RANGES:
        least, greatest = _RANGES[name]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= greatest:
            raise ValueError(f"{name} is {value!r:.40}, not an integer of {least} to {greatest}")
    elif name in _BYTES:
        if not isinstance(value, bytes) or len(value) != _BYTES[name]:
            raise ValueError(f"{name} is {value!r:.40}, not {_BYTES[name]} bytes")
    elif name == "provider":
        if not is_provider(value):
            raise ValueError(f"provider is {value!r:.40}, not a provider's name")
    elif name == "lanes":
        if not are_lanes(value):
            raise ValueError("lanes are not a list of addresses")
    elif name == "lane_counts":
        pass  # checked with the lanes
    elif name == "hints":
        if not _are_hints(value):
            raise ValueError(f"hints are not 1 to {MAX_SECRET_COUNT} times {HINT_BYTES} bytes")
    elif name == "sealed":
        if not isinstance(value, bytes) or len(value) > _MAX_SEALED_BYTES:
            raise ValueError(f"sealed is not of at most {_MAX_SEALED_BYTES} bytes")
    elif name == "slots":
        if not _are_slots(value):
            raise ValueError("slots are not a list of numbers below 65536")
    elif not isinstance(value, str) or len(value) > MAX_REASON_CHARACTERS:
        raise ValueError(f"{name} is not a text of at most {MAX_REASON_CHARACTERS} characters")


def _check_lane_counts(lane_counts: tuple[int, ...], lanes: tuple[bytes, ...]) -> None:
    if not are_lane_counts(lane_counts, len(lanes)):
        raise ValueError(f"lane_counts do not make {len(lanes)} lanes")


def _are_hints(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and 0 < len(value) <= MAX_SECRET_COUNT
        and all(isinstance(hint, bytes) and len(hint) == HINT_BYTES for hint in value)
    )


def _are_slots(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and 0 < len(value) <= MAX_PATH_COUNT
        and all(type(slot) is int and 0 <= slot < 1 << 16 for slot in value)
    )
