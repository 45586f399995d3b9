"""Encoded messages on their way out: order, window and fragments of one direction."""

from __future__ import annotations

from collections import deque

from fabricio.frames import FIRST, HEADER, LAST, MIN_CHARGE_BYTES, NOTIFY

# Flags, encoded bytes of the whole message, transfer sequence, slice of the message.
Fragment = tuple[int, int, int, bytes | memoryview]


class Outgoing:
    """The queue of one endpoint's messages, and what of the peer's window they take.

    Attributes:
        queue: encoded message, charge and transfer of each that was not handed out entirely.
        queued_bytes: encoded bytes that have not been handed out yet.
        queued_count: messages put in since the beginning.
        sent_count: of these, messages handed out entirely or withdrawn, up to the first of which
            neither is true.
        completed_charge: total charge of the messages handed out entirely.
        consumed_charge: what of it the peer's application has taken.

    Thread: one at a time.
    """

    def __init__(self, *, frame_bytes: int, window_bytes: int) -> None:
        """Begin with an empty queue and an unused window.

        Args:
            frame_bytes: longest frame, header included.
            window_bytes: charge that may be under way to the peer or unread there.
        """
        self._payload_bytes = frame_bytes - HEADER.size
        self._window_bytes = window_bytes
        # Message sent_count + 1 is queue[0]. One without bytes was withdrawn; it is never queue[0].
        self.queue: deque[tuple[bytes, int, int | None]] = deque()
        self._offset = 0  # what of queue[0] has been handed out
        self._started_charge = 0
        self.queued_bytes = 0
        self.queued_count = 0
        self.sent_count = 0
        self.completed_charge = 0
        self.consumed_charge = 0

    def __repr__(self) -> str:
        """Say what is queued and under way."""
        return (
            f"<Outgoing queued={len(self.queue)} ({self.queued_bytes} bytes) outstanding="
            f"{self._started_charge - self.consumed_charge}/{self._window_bytes}>"
        )

    @property
    def empty(self) -> bool:
        """Whether everything has been handed out."""
        return not self.queue

    @property
    def blocked(self) -> bool:
        """Whether the next message must wait for the window."""
        return bool(self.queue) and not self._offset and not self._fits(self.queue[0][1])

    def put(self, body: bytes, transfer: int | None) -> int:
        """Queue one encoded message behind the others; its number, from 1, is returned."""
        size = len(body)
        charge = size if size > MIN_CHARGE_BYTES else MIN_CHARGE_BYTES  # noqa: FURB136  # max() is slow
        self.queue.append((body, charge, transfer))
        self.queued_bytes += size
        self.queued_count += 1
        return self.queued_count

    def pass_through(self, body: bytes) -> bool:
        """Account for a message that leaves at once and whole, if it may; True if it does."""
        size = len(body)
        charge = size if size > MIN_CHARGE_BYTES else MIN_CHARGE_BYTES  # noqa: FURB136  # max() is slow
        started = self._started_charge + charge
        if (
            self.queue
            or size > self._payload_bytes
            or started - self.consumed_charge > self._window_bytes
        ):
            return False
        self._started_charge = started
        self.queued_count += 1
        self.sent_count += 1
        self.completed_charge += charge
        return True

    def withdraw(self, number: int) -> bool:
        """Take message `number` back; False if any of it was handed out, or it is gone already."""
        place = number - self.sent_count - 1
        if not (1 if self._offset else 0) <= place < len(self.queue):
            return False
        size = len(self.queue[place][0])
        if not size:
            return False
        self.queue[place] = (b"", 0, None)
        self.queued_bytes -= size
        self._skip_withdrawn()
        return True

    def take(self) -> Fragment | None:
        """Hand out the next slice; None if there is none, or the window does not allow it."""
        if not self.queue:
            return None
        body, charge, transfer = self.queue[0]
        start = self._offset
        flags = 0
        if not start:
            if not self._fits(charge):
                return None
            self._started_charge += charge
            flags = FIRST
        if transfer is None:
            transfer = 0
        else:
            flags |= NOTIFY
        size = len(body)
        end = start + self._payload_bytes
        if end < size:
            self._offset = end
            self.queued_bytes -= self._payload_bytes
            return flags, size, transfer, memoryview(body)[start:end]
        self.queue.popleft()
        self._offset = 0
        self.queued_bytes -= size - start
        self.sent_count += 1
        self.completed_charge += charge
        if self.queue:
            self._skip_withdrawn()
        return flags | LAST, size, transfer, memoryview(body)[start:] if start else body

    def credit(self, consumed_charge: int) -> bool:
        """Note the peer's total; True if a message that was blocked may start now."""
        if not self.queue:
            self.consumed_charge = consumed_charge
            return False
        blocked = self.blocked
        self.consumed_charge = consumed_charge
        return blocked and not self.blocked

    def clear(self) -> None:
        """Drop all that is queued."""
        self.queue.clear()
        self._offset = 0
        self.queued_bytes = 0

    def _fits(self, charge: int) -> bool:
        return self._started_charge + charge - self.consumed_charge <= self._window_bytes

    def _skip_withdrawn(self) -> None:
        while self.queue and not self.queue[0][0]:
            self.queue.popleft()
            self.sent_count += 1
