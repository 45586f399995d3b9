"""Messages between two endpoints, as frames: no socket, no clock, no event loop.

Sending: `send` queues a message, `next_frame` gives the frames that may leave now. Receiving:
`receive` takes one frame and returns events. Call `next_frame` until it returns None after each
`send`, `receive`, `consumed`, `flush`, `revoke`, `let_go`, `rewind`, `close` and `fail`.

Frames (frames.py) may come late, out of order or twice; messages come out once and in order.

Window: a message costs `max(encoded bytes, 256)`, its charge, from its first frame on until the
peer's application has taken it (`consumed`). M1 to M6 are the rules; each has a test.

- M1 A message may start when its full charge fits into what is left of the window; once started,
  its other frames are not held up. Messages never overtake each other.
- M2 The window holds at least max_message_bytes + 256, so an empty window lets any message start.
- M3 Each frame carries the total charge consumed so far. A CREDIT frame goes when
  `min(window // 4, window - largest charge)` is owed and no other frame is there to carry it. So
  while none goes, the sender has room for the largest charge, once all else was consumed: a
  message never waits for credit that the receiver holds back.
- M4 All frames but DATA cost nothing and never wait for the window. They are few: at most one FLUSH
  and one REVOKE are unanswered (control.py), and CREDIT frames are as rare as M3 says.
- M5 Every frame but the last of a message carries at least 512 bytes of it, so no more than
  window / 256 data frames can be under way: the room for reordering is bounded by that.
- M6 A receiver holds at most one window of unread messages (one of them in parts) and one window
  of frames that came too early. Who makes it exceed this breaks the protocol.
- M7 Where several paths lead to the peer, a sender keeps its frames until the peer has said that
  it received them, and sends them again when a path failed (replay.py). By M3 and M5 that is no
  more than a window, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fabricio.codec import Bytes, ValueCodec
from fabricio.control import QUESTIONS, Control
from fabricio.errors import ClosedResourceError, RemoteProtocolError
from fabricio.events import PeerClosed, PeerError, WindowOpened
from fabricio.frames import (
    CLOSE,
    CREDIT,
    DATA,
    ERROR,
    FIRST,
    HEADER,
    LAST,
    MAX_ERROR_BYTES,
    MIN_CHARGE_BYTES,
    MIN_FRAME_BYTES,
    EarlyFrames,
    Frame,
    refuse,
)
from fabricio.incoming import Incoming, credit_threshold
from fabricio.outgoing import Outgoing
from fabricio.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricio.events import Event


class MessageStream:
    """Both directions of messages with one peer.

    Thread: one at a time; nothing here waits.   Source: fi_msg(3) for what frames travel on.
    """

    def __init__(
        self,
        *,
        frame_bytes: int,
        max_message_bytes: int,
        send_window_bytes: int,
        receive_window_bytes: int,
        several_paths: bool = False,
        pack_default: Callable[[Any], Any] | None = None,
        ext_hook: Callable[[int, bytes], Any] | None = None,
    ) -> None:
        """Start at sequence 0 in both directions.

        Args:
            frame_bytes: longest frame either way, header included: the smaller of both sides'.
            max_message_bytes: longest encoded message either way: the smaller of both sides'.
            send_window_bytes: the peer's receive window.
            receive_window_bytes: this side's.
            several_paths: whether more than one path leads to the peer (M7).
            pack_default: see `ValueCodec`.
            ext_hook: see `ValueCodec`.

        Raises:
            ValueError: a frame or a window is too small (M2, M5).
        """
        if frame_bytes < MIN_FRAME_BYTES:
            raise ValueError(f"frame_bytes={frame_bytes} is less than {MIN_FRAME_BYTES}")
        least = max_message_bytes + MIN_CHARGE_BYTES
        if min(send_window_bytes, receive_window_bytes) < least:
            raise ValueError(
                f"send_window_bytes={send_window_bytes} or receive_window_bytes="
                f"{receive_window_bytes} is less than {least}, the longest message and "
                f"{MIN_CHARGE_BYTES}"
            )
        self._codec = ValueCodec(
            max_message_bytes=max_message_bytes, pack_default=pack_default, ext_hook=ext_hook
        )
        self._frame_bytes = frame_bytes
        # Sending.
        self._out = Outgoing(frame_bytes=frame_bytes, window_bytes=send_window_bytes)
        self._sequence = 0
        self._control = Control()
        self._replay = Replay() if several_paths else None
        self._close_due = False
        self._error_due: bytes | None = None
        self._closed = False
        self._failed = False
        # Receiving.
        self._in = Incoming(
            self._codec, max_message_bytes=max_message_bytes, window_bytes=receive_window_bytes
        )
        self._expected = 0
        self._early = EarlyFrames(
            # DATA by M5, CREDIT by M3, then the other six types, one of each by M4.
            limit_count=receive_window_bytes // MIN_CHARGE_BYTES
            + send_window_bytes // credit_threshold(send_window_bytes, max_message_bytes)
            + 6,
            limit_bytes=receive_window_bytes + MAX_ERROR_BYTES,
        )
        self._peer_failed = False
        self._broken: str | None = None

    def __repr__(self) -> str:
        """Say what is queued, under way and unread."""
        return (
            f"<MessageStream {self._out!r} {self._in!r} early={len(self._early)} "
            f"duplicates={self.duplicate_count}>"
        )

    @property
    def queued_bytes(self) -> int:
        """Encoded bytes that `next_frame` has not handed out yet."""
        return self._out.queued_bytes

    @property
    def sent_count(self) -> int:
        """Messages handed out entirely or withdrawn, up to the first of which neither is true."""
        return self._out.sent_count

    @property
    def duplicate_count(self) -> int:
        """Frames that came again and were dropped."""
        return self._early.duplicate_count

    @property
    def pending(self) -> bool:
        """Whether the next message waits for the window (M1)."""
        return self._out.blocked

    def send(self, value: object, transfer: int | None = None) -> int:
        """Queue one message.

        Args:
            value: see `ValueCodec`.
            transfer: 64-bit sequence number of the transfer that it is the notification of.

        Returns:
            Its number, counted from 1: all of it has been handed out when `sent_count` has reached
            it.

        Raises:
            LocalProtocolError: unencodable or too large; nothing was queued.
            ClosedResourceError: after `close` or `fail`.
        """
        if self._closed:
            raise ClosedResourceError("no message can be sent on a closed endpoint")
        if transfer is not None and not 0 <= transfer < 1 << 64:
            raise ValueError(f"transfer={transfer} does not fit into 64 bits")
        return self._out.put(self._codec.encode(value), transfer)

    def express(self, value: object) -> Frame | int:
        """Send one message in one go where that is possible; else queue it as `send` does.

        Returns:
            Its only frame, to be sent at once, if no message is queued before it, it fits into
            one frame and the window allows it; else its number.

        Raises:
            LocalProtocolError, ClosedResourceError: as `send`.
        """
        if self._closed:
            raise ClosedResourceError("no message can be sent on a closed endpoint")
        body = self._codec.encode(value)
        if self._out.pass_through(body):
            frame = self._header(DATA, FIRST | LAST, len(body), 0), body
            if self._replay is not None:
                self._replay.keep(frame)
            return frame
        return self._out.put(body, None)

    @property
    def idle(self) -> bool:
        """Whether `next_frame` would return None, as far as can be told at a glance."""
        return not (
            self._out.queue
            or self._control.active
            or self._closed
            or self._credit_due()
            or (self._replay is not None and not self._replay.idle)
        )

    def withdraw(self, number: int) -> bool:
        """Take a queued message back.

        Args:
            number: what `send` returned.

        Returns:
            Whether it is gone; False if some or all of it has been handed out, or it was withdrawn
            before.
        """
        return self._out.withdraw(number)

    def next_frame(self) -> Frame | None:
        """Take the next frame that may leave now, in the order in which frames must leave.

        Returns:
            Header and slice of a message, both valid for as long as they are held; None: nothing
            may leave until something else happens.
        """
        replay = self._replay
        if replay is None:
            return self._new_frame()
        frame = replay.next_frame()
        if frame is None:
            frame = self._new_frame()
            if frame is not None:
                replay.keep(frame)
        return frame

    def _new_frame(self) -> Frame | None:
        if self._failed:
            text, self._error_due = self._error_due, None
            return None if text is None else (self._header(ERROR, 0, len(text), 0), text)
        if self._control.active:
            question = self._control.take(self._out.sent_count)
            if question is not None:
                return self._header(question[0], 0, 0, question[1]), b""
        fragment = self._out.take()
        if fragment is not None:
            flags, total, transfer, body = fragment
            return self._header(DATA, flags, total, transfer), body
        if self._credit_due():
            return self._header(CREDIT, 0, 0, 0), b""
        if self._close_due and self._out.empty:
            self._close_due = False
            return self._header(CLOSE, 0, 0, 0), b""
        return None

    def receive(self, data: Bytes) -> list[Event]:
        """Take one frame from the peer.

        Args:
            data: header and slice; not used after this returns.

        Returns:
            What became known, in order: of this frame and of those that had come too early.

        Raises:
            RemoteProtocolError: the peer broke a rule. The stream is broken then: give up the
                endpoint; each further call raises the same again.
        """
        if self._broken is not None:
            raise RemoteProtocolError(self._broken)
        events: list[Event] = []
        try:
            if not HEADER.size <= len(data) <= self._frame_bytes:
                refuse(f"a frame of {len(data)} bytes, not of {HEADER.size} to {self._frame_bytes}")
            header = HEADER.unpack_from(data)
            if header[4] != self._expected:
                self._early.keep(header[4], self._expected, data)
                return events
            self._process(header, data, events)
            if self._early:
                while (early := self._early.take(self._expected)) is not None:
                    self._process(HEADER.unpack_from(early), early, events)
        except RemoteProtocolError as error:
            self._broken = str(error)
            raise
        return events

    def consumed(self, charge: int) -> bool:
        """Give a message's charge back, since the application has taken the message.

        Args:
            charge: that of its `MessageReceived`.

        Returns:
            Whether `next_frame` now has a frame to tell the peer.

        Raises:
            ValueError: more than what was received.
        """
        self._in.consume(charge)
        return self._credit_due()

    def flush(self) -> int:
        """Ask the peer to confirm that it has received all messages queued so far.

        Returns:
            A token, counted from 1; `FlushAcknowledged` with it comes once.

        Raises:
            ClosedResourceError: after `close` or `fail`.
        """
        if self._closed:
            raise ClosedResourceError("a closed endpoint cannot be flushed")
        return self._control.flush(self._out.queued_count)

    def revoke(self, region: int) -> None:
        """Tell the peer to use a region of ours no more, behind all messages queued so far.

        May be called after `close`; dropped after `fail`.

        Args:
            region: the number in its descriptors; `RevokeAcknowledged` with it comes once.
        """
        self._control.revoke(region, self._out.queued_count)

    def let_go(self, region: int) -> None:
        """Answer the peer's revocation: nothing here uses its region, or ever will again.

        May be called after `close`; dropped after `fail`.

        Args:
            region: that of its `RegionRevoked`.

        Raises:
            ValueError: the peer does not wait for that.
        """
        self._control.let_go(region)

    def rewind(self) -> None:
        """Have every frame leave once more that the peer has not said it received (M7)."""
        if self._replay is not None:
            self._replay.rewind()

    def close(self) -> None:
        """Queue the end of this direction, after all messages. Idempotent."""
        if not self._closed:
            self._closed = True
            self._close_due = True

    def fail(self, text: str) -> None:
        """Drop all that is queued and tell the peer why the endpoint is given up. Idempotent.

        One ERROR frame leaves, and nothing after it.

        Args:
            text: for the peer's user; cut after 512 bytes.
        """
        if self._failed:
            return
        self._closed = self._failed = True
        self._out.clear()
        self._error_due = text.encode("utf-8", "replace")[:MAX_ERROR_BYTES]

    def _credit_due(self) -> bool:
        return self._in.credit_due and not self._failed

    def _header(self, kind: int, flags: int, total: int, transfer: int) -> bytes:
        sequence = self._sequence
        self._sequence = sequence + 1
        incoming = self._in
        incoming.announced_charge = consumed = incoming.consumed_charge
        return HEADER.pack(kind, flags, 0, total, sequence, consumed, transfer, self._expected)

    def _process(self, header: tuple[int, ...], data: Bytes, events: list[Event]) -> None:
        kind, flags, reserved, total, _, consumed, transfer, received = header
        self._expected += 1
        if received > self._sequence:
            refuse(f"the word that it has received {received} frames of {self._sequence}")
        if self._replay is not None:
            self._replay.received(received)
        out = self._out
        if consumed != out.consumed_charge:
            if not out.consumed_charge <= consumed <= out.completed_charge:
                refuse(
                    f"credit for {consumed} bytes, not for {out.consumed_charge} to "
                    f"{out.completed_charge}"
                )
            if out.credit(consumed):
                events.append(WindowOpened())
        if self._peer_failed or reserved:
            refuse(f"a frame with {reserved} in its reserved field, or one after its ERROR frame")
        body = memoryview(data)[HEADER.size :]
        if kind == DATA:
            self._in.take(flags, total, transfer, body, events)
        elif flags or total != len(body) or (total and kind != ERROR):
            refuse(f"a frame of type {kind} with flags {flags} and {len(body)} bytes")
        elif kind in QUESTIONS:
            self._control.receive(kind, transfer, events)
        elif transfer:
            refuse(f"a frame of type {kind} with transfer {transfer}")
        elif kind == CLOSE:
            self._in.end()
            events.append(PeerClosed())
        elif kind == ERROR:
            if total > MAX_ERROR_BYTES:
                refuse(f"an ERROR frame of {total} bytes")
            self._peer_failed = True
            events.append(PeerError(bytes(body).decode("utf-8", "replace")))
        elif kind != CREDIT:
            refuse(f"a frame of unknown type {kind}")
