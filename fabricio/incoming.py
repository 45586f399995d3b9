"""Messages on their way in: parts, window and credit of one direction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricio.events import MessageReceived
from fabricio.frames import (
    FIRST,
    LAST,
    MIN_CHARGE_BYTES,
    MIN_FRAGMENT_BYTES,
    NOTIFY,
    refuse,
)

if TYPE_CHECKING:
    from fabricio.codec import ValueCodec
    from fabricio.events import Event

_ALL_FLAGS = FIRST | LAST | NOTIFY


class Incoming:
    """Puts the peer's messages together, and knows what of our window they take.

    Attributes:
        consumed_charge: total charge of the messages that the application has taken.
        announced_charge: what of it the peer was told.
        ended: whether the peer has said that it sends no more.

    Thread: one at a time.
    """

    def __init__(self, codec: ValueCodec, *, max_message_bytes: int, window_bytes: int) -> None:
        """Begin with nothing received.

        Args:
            codec: decodes the messages.
            max_message_bytes: longest encoded message.
            window_bytes: charge that may be unread.
        """
        self._codec = codec
        self._max_message_bytes = max_message_bytes
        self._window_bytes = window_bytes
        self._threshold = credit_threshold(window_bytes, max_message_bytes)
        self._parts: bytearray | None = None  # of a message whose last frame is still to come
        self._parts_announced: tuple[int, int | None] = (0, None)  # total bytes and transfer
        self._received_charge = 0
        self.consumed_charge = 0
        self.announced_charge = 0
        self.ended = False

    def __repr__(self) -> str:
        """Say what is unread."""
        return (
            f"<Incoming unread={self._received_charge - self.consumed_charge}/{self._window_bytes}>"
        )

    @property
    def credit_due(self) -> bool:
        """Whether so much is owed to the peer that a frame must carry it (M3)."""
        return self.consumed_charge - self.announced_charge >= self._threshold and not self.ended

    def consume(self, charge: int) -> None:
        """Give a message's charge back.

        Raises: ValueError: more than what was received.
        """
        if not 0 <= charge <= self._received_charge - self.consumed_charge:
            raise ValueError(f"charge={charge} was not received, or was consumed before")
        self.consumed_charge += charge

    def take(
        self, flags: int, total: int, transfer: int, body: memoryview, events: list[Event]
    ) -> None:
        """Take one DATA frame.

        Args:
            flags: of its header.
            total: encoded bytes of the whole message.
            transfer: of its header.
            body: slice of the message.
            events: a message that is whole is appended.

        Raises: RemoteProtocolError: the peer broke a rule.
        """
        notify = transfer if flags & NOTIFY else None
        if flags > _ALL_FLAGS or (transfer and notify is None):
            refuse(f"a data frame with flags {flags} and transfer {transfer}")
        if flags & FIRST:
            charge = self._begin(total)
            if flags & LAST:
                if len(body) != total:
                    refuse(f"{len(body)} bytes of a message announced with {total}")
                events.append(MessageReceived(self._codec.decode(body), charge, notify))
                return
            self._parts = bytearray()
            self._parts_announced = total, notify
        parts = self._parts
        if parts is None:
            refuse("the continuation of a message that has not begun")
        if (total, notify) != self._parts_announced:
            refuse("a continuation that contradicts the beginning of its message")
        parts += body
        if flags & LAST:
            if len(parts) != total:
                refuse(f"{len(parts)} bytes of a message announced with {total}")
            self._parts = None
            charge = max(total, MIN_CHARGE_BYTES)
            events.append(MessageReceived(self._codec.decode(parts), charge, notify))
        elif len(parts) >= total or len(body) < MIN_FRAGMENT_BYTES:
            refuse(f"{len(parts)} of {total} bytes of a message in frames of a wrong size")

    def end(self) -> None:
        """Take the CLOSE frame.

        Raises: RemoteProtocolError: it comes again, or too early.
        """
        if self.ended or self._parts is not None:
            refuse("a CLOSE frame twice or within a message")
        self.ended = True

    def _begin(self, total: int) -> int:
        """Take a message's charge out of the window, and return it."""
        if self._parts is not None or self.ended:
            refuse("the beginning of a message within another, or after its CLOSE frame")
        if not 0 < total <= self._max_message_bytes:
            refuse(f"a message of {total} bytes, not of 1 to {self._max_message_bytes}")
        charge = total if total > MIN_CHARGE_BYTES else MIN_CHARGE_BYTES  # noqa: FURB136  # max() is slow
        self._received_charge += charge
        unread = self._received_charge - self.consumed_charge
        if unread > self._window_bytes:
            refuse(f"{unread} bytes of messages into a window of {self._window_bytes}")
        return charge


def credit_threshold(window_bytes: int, max_message_bytes: int) -> int:
    """Charge at which a receiver with this window owes a CREDIT frame (M3)."""
    return min(window_bytes // 4, window_bytes - max(max_message_bytes, MIN_CHARGE_BYTES))
