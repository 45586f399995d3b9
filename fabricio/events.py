"""What a `MessageStream` tells about what came in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class MessageReceived(NamedTuple):
    """A whole message. A tuple, since there is one for each message and tuples are made fast.

    Attributes:
        value: what was sent.
        charge: to be given to `consumed` when the application has taken the message.
        transfer: sequence number of the peer's transfer that it must wait for; None: none.
    """

    value: object
    charge: int
    transfer: int | None


@dataclass(frozen=True, slots=True)
class PeerClosed:
    """The peer sends no more messages; all it sent has been received."""


@dataclass(frozen=True, slots=True)
class PeerError:
    """The peer gave up this endpoint, for the reason in `text`; nothing more comes."""

    text: str


@dataclass(frozen=True, slots=True)
class FlushAcknowledged:
    """The peer has received all messages that were queued before `flush` returned `token`."""

    token: int


@dataclass(frozen=True, slots=True)
class RegionRevoked:
    """The peer is about to deregister its `region`: answer by `let_go` once nothing uses it."""

    region: int


@dataclass(frozen=True, slots=True)
class RevokeAcknowledged:
    """The peer uses our `region` no more, and never will again."""

    region: int


@dataclass(frozen=True, slots=True)
class WindowOpened:
    """A message that had to wait may start: call `next_frame`."""


Event = (
    MessageReceived
    | PeerClosed
    | PeerError
    | FlushAcknowledged
    | RegionRevoked
    | RevokeAcknowledged
    | WindowOpened
)
