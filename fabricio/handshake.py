"""The hello that two Fabrics exchange before they are peers: sans-IO.

A hello frame is one msgpack map. The connecting side sends `Hello`; the other answers with
`HelloAccepted` or `HelloRefused`. A `Hello` may come again, since nobody confirms it but by the
answer: `attempt` tells a repetition from a new one. A connecting side that gives up, perhaps since
it cannot use the answer, says so by a `HelloRefused` of its own.

The fields of a hello are the same in all versions of the protocol as far as an answer needs them;
a hello of another version may have more, which are ignored, so that it can be refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import msgpack

from fabricio.address import (
    INCARNATION_BYTES,
    are_lane_counts,
    are_lanes,
    is_provider,
)
from fabricio.errors import RemoteProtocolError
from fabricio.frames import MIN_CHARGE_BYTES, MIN_FRAME_BYTES
from fabricio.options import (
    MAX_FRAME_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_WINDOW_BYTES,
    MAX_WORKER_COUNT,
)

MAGIC = "fabricio"
PROTOCOL_VERSION = 2
ATTEMPT_BYTES = 16
MAX_REASON_CHARACTERS = 500

_MAX_IMMEDIATE_BYTES = 64

# Field name -> least and greatest value.
_RANGES = {
    "version": (0, (1 << 32) - 1),
    "cookie": (0, (1 << 64) - 1),
    "immediate_bytes": (0, _MAX_IMMEDIATE_BYTES),
    "max_message_bytes": (1, MAX_MESSAGE_BYTES),
    "receive_window_bytes": (1, MAX_WINDOW_BYTES),
    "frame_bytes": (MIN_FRAME_BYTES, MAX_FRAME_BYTES),
    "peer_timeout_ms": (1, (1 << 40) - 1),
}
_BYTES = {"incarnation": INCARNATION_BYTES, "attempt": ATTEMPT_BYTES}


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
        slots: what the sender calls this peer on each path, to be put into every frame to it.
        cookie: random number, likewise.
        immediate_bytes: size of immediate data that the provider carries.
        max_message_bytes: longest message that it takes.
        receive_window_bytes: what may be under way to it or unread there.
        frame_bytes: longest frame that it takes.
        peer_timeout_ms: after so much silence it gives this peer up.
    """

    provider: str
    incarnation: bytes
    lanes: tuple[bytes, ...]
    lane_counts: tuple[int, ...]
    slots: tuple[int, ...]
    cookie: int
    immediate_bytes: int
    max_message_bytes: int
    receive_window_bytes: int
    frame_bytes: int
    peer_timeout_ms: int

    def __post_init__(self) -> None:
        """Check every field, then those that depend on each other."""
        # slots=True makes a new class, which the zero-argument super() does not know.
        _Greeting.__post_init__(self)
        if not are_lane_counts(self.lane_counts, len(self.lanes)):
            raise ValueError(f"lane_counts do not make {len(self.lanes)} lanes")
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
        attempt: 16 random bytes of this attempt to connect; all others as in `Terms`.
    """

    role: ClassVar[str] = "hello"
    attempt: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HelloAccepted(Terms):
    """The answer of a Fabric that takes the peer.

    Attributes:
        attempt: that of the `Hello` answered; all others as in `Terms`, of the answering side.
    """

    role: ClassVar[str] = "accept"
    attempt: bytes


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


_ROLES: dict[str, type[Hello | HelloAccepted | HelloRefused]] = {
    kind.role: kind for kind in (Hello, HelloAccepted, HelloRefused)
}


def decode(body: bytes | bytearray | memoryview) -> Hello | HelloAccepted | HelloRefused:
    """Read the body of a hello frame.

    Args:
        body: from anybody.

    Returns:
        The hello; its version may be another than ours, see `check_compatible`.

    Raises:
        RemoteProtocolError: anything missing, unknown, of the wrong type or out of range.
    """
    try:
        content = msgpack.unpackb(body, use_list=False)
        if not isinstance(content, dict) or content.get("magic") != MAGIC:
            raise ValueError("it does not begin as one of fabricio's")
        role = content.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise ValueError(f"it has the unknown role {role!r:.40}")
        return _ROLES[role].from_content(content)
    # Whatever msgpack or a check meets in foreign bytes is the sender's doing.
    except Exception as error:
        raise RemoteProtocolError(
            f"a hello of {len(body)} bytes is malformed: {error or type(error).__name__}; it comes "
            "from another program or version"
        ) from error


def check_compatible(mine: Terms, theirs: Terms) -> None:
    """Check that two sides can work together.

    Args:
        mine: what this side says or would say.
        theirs: what the peer says.

    Raises:
        RemoteProtocolError: names both values of the first difference.
    """
    if mine.version != theirs.version:
        raise RemoteProtocolError(
            f"this side speaks protocol version {mine.version} and the peer {theirs.version}: "
            "install the same release of fabricio on both"
        )
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
    elif name == "slots":
        if not _are_slots(value):
            raise ValueError("slots are not a list of numbers below 65536")
    elif not isinstance(value, str) or len(value) > MAX_REASON_CHARACTERS:
        raise ValueError(f"{name} is not a text of at most {MAX_REASON_CHARACTERS} characters")


def _are_slots(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and 0 < len(value) <= MAX_WORKER_COUNT
        and all(type(slot) is int and 0 <= slot < 1 << 16 for slot in value)
    )
