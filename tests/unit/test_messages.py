"""Messages over frames that come late, out of order, twice or damaged.

Rules M1 to M6 are those at the top of messages.py.
"""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricio.errors import ClosedResourceError, LocalProtocolError, RemoteProtocolError
from fabricio.events import (
    Event,
    FlushAcknowledged,
    MessageReceived,
    PeerClosed,
    PeerError,
    RegionRevoked,
    RevokeAcknowledged,
    WindowOpened,
)
from fabricio.frames import (
    CLOSE,
    CREDIT,
    DATA,
    ERROR,
    FIRST,
    FLUSH,
    FLUSHED,
    HEADER,
    LAST,
    MIN_FRAME_BYTES,
    NOTIFY,
    REVOKE,
    REVOKED,
)
from fabricio.messages import MessageStream

MAX = 4096
WINDOW = 16384
FRAME = 1024


def make(**changes: int) -> MessageStream:
    arguments: dict[str, Any] = {
        "frame_bytes": FRAME,
        "max_message_bytes": MAX,
        "send_window_bytes": WINDOW,
        "receive_window_bytes": WINDOW,
        **changes,
    }
    return MessageStream(**arguments)


def frames_of(stream: MessageStream) -> list[bytes]:
    """All frames that may leave now."""
    frames = []
    while (frame := stream.next_frame()) is not None:
        frames.append(b"".join(frame))
    return frames


def kinds(frames: list[bytes]) -> list[int]:
    return [frame[0] for frame in frames]


def frame(
    kind: int = DATA,
    flags: int = FIRST | LAST,
    body: bytes = b"\x07",
    *,
    reserved: int = 0,
    total: int | None = None,
    sequence: int = 0,
    consumed: int = 0,
    transfer: int = 0,
    received: int = 0,
) -> bytes:
    total = len(body) if total is None else total
    fields = kind, flags, reserved, total, sequence, consumed, transfer, received
    return HEADER.pack(*fields) + body


def deliver(stream: MessageStream, frames: list[bytes]) -> list[Event]:
    return [event for data in frames for event in stream.receive(data)]


def values(events: list[Event]) -> list[object]:
    return [event.value for event in events if isinstance(event, MessageReceived)]


class Pair:
    """Two streams, and a network that may reorder and repeat, and lose where a path fails."""

    def __init__(self, a: MessageStream, b: MessageStream, window_a: int, window_b: int) -> None:
        self.streams = (a, b)
        self.windows = (window_a, window_b)
        self.wires: tuple[list[bytes], list[bytes]] = ([], [])  # towards a, towards b
        self.inboxes: tuple[list[MessageReceived], list[MessageReceived]] = ([], [])
        self.taken: tuple[list[object], list[object]] = ([], [])
        self.transfers: tuple[list[int | None], list[int | None]] = ([], [])
        self.events: tuple[list[Event], list[Event]] = ([], [])
        self.revoked: tuple[list[int], list[int]] = ([], [])  # not answered yet
        self.received_before: tuple[list[int], list[int]] = ([], [])  # each revocation

    def pump(self, side: int) -> None:
        self.wires[1 - side].extend(frames_of(self.streams[side]))

    def arrive(self, side: int, place: int, again: bool) -> None:
        wire = self.wires[side]
        if not wire:
            return
        data = wire[place % len(wire)]
        if not again:
            wire.remove(data)
        for event in self.streams[side].receive(data):
            if isinstance(event, MessageReceived):
                self.inboxes[side].append(event)
            else:
                self.events[side].append(event)
            if isinstance(event, RegionRevoked):
                received = len(self.inboxes[side]) + len(self.taken[side])
                self.received_before[side].append(received)
                self.revoked[side].append(event.region)
        assert len(self.revoked[side]) <= 1
        unread = sum(message.charge for message in self.inboxes[side])
        assert unread <= self.windows[side]
        self.pump(side)

    def lose_path(self, rng: random.Random) -> None:
        """Lose some of what is under way, and let both sides hear of it."""
        for wire in self.wires:
            wire[:] = [data for data in wire if rng.random() < 0.5]
        for side in (0, 1):
            self.streams[side].rewind()
            self.pump(side)

    def take(self, side: int) -> None:
        if self.inboxes[side]:
            message = self.inboxes[side].pop(0)
            self.taken[side].append(message.value)
            self.transfers[side].append(message.transfer)
            self.streams[side].consumed(message.charge)
            self.pump(side)

    def let_go(self, side: int) -> None:
        if self.revoked[side]:
            self.streams[side].let_go(self.revoked[side].pop())
            self.pump(side)

    def settle(self, rng: random.Random) -> None:
        """Let everything arrive, be taken and be answered."""
        while any(self.wires) or any(self.inboxes) or any(self.revoked):
            for side in (0, 1):
                self.arrive(side, rng.randrange(1 << 30), again=rng.random() < 0.2)
                self.take(side)
                self.let_go(side)


VALUES = st.recursive(
    st.none() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text(max_size=20) | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
) | st.integers(0, 2900).map(bytes)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 1), VALUES, st.none() | st.integers(0, 9)),
        st.tuples(st.just("arrive"), st.integers(0, 1), st.integers(0, 50), st.booleans()),
        st.tuples(st.just("take"), st.integers(0, 1)),
        st.tuples(st.just("flush"), st.integers(0, 1)),
        st.tuples(st.just("revoke"), st.integers(0, 1), st.integers(0, 3)),
        st.tuples(st.just("let go"), st.integers(0, 1)),
        st.tuples(st.just("lose path"), st.integers(0, 1)),
    ),
    max_size=60,
)


@given(
    steps=STEPS,
    frame_bytes=st.integers(MIN_FRAME_BYTES, 4000),
    room=st.tuples(st.integers(256, 6000), st.integers(256, 6000)),
    several_paths=st.booleans(),
    seed=st.integers(0, 1 << 30),
)
def test_delivered_once_and_in_order(
    steps: list[Any], frame_bytes: int, room: tuple[int, int], several_paths: bool, seed: int
) -> None:
    rng = random.Random(seed)
    windows = [3000 + more for more in room]
    a, b = (
        make(
            frame_bytes=frame_bytes,
            max_message_bytes=3000,
            receive_window_bytes=windows[side],
            send_window_bytes=windows[1 - side],
            several_paths=several_paths,
        )
        for side in (0, 1)
    )
    pair = Pair(a, b, *windows)
    sent: tuple[list[object], list[object]] = ([], [])
    transfers: tuple[list[int | None], list[int | None]] = ([], [])
    tokens: tuple[list[int], list[int]] = ([], [])
    revoked: tuple[list[int], list[int]] = ([], [])
    sent_before: tuple[list[int], list[int]] = ([], [])
    for name, side, *rest in steps:
        if name == "send":
            pair.streams[side].send(*rest)
            sent[side].append(rest[0])
            transfers[side].append(rest[1])
            pair.pump(side)
        elif name == "arrive":
            pair.arrive(side, *rest)
        elif name == "flush":
            tokens[side].append(pair.streams[side].flush())
            pair.pump(side)
        elif name == "revoke":
            pair.streams[side].revoke(*rest)
            revoked[side].extend(rest)
            sent_before[side].append(len(sent[side]))
            pair.pump(side)
        elif name == "let go":
            pair.let_go(side)
        elif name == "lose path":
            if several_paths:
                pair.lose_path(rng)
        else:
            pair.take(side)
    for side in (0, 1):
        pair.streams[side].close()
        pair.pump(side)
    pair.settle(rng)
    for side in (0, 1):
        assert pair.taken[side] == sent[1 - side]
        assert pair.transfers[side] == transfers[1 - side]
        flushed = [e.token for e in pair.events[side] if isinstance(e, FlushAcknowledged)]
        assert flushed == tokens[side]
        told = [e.region for e in pair.events[side] if isinstance(e, RegionRevoked)]
        assert told == revoked[1 - side]
        pairs = zip(pair.received_before[side], sent_before[1 - side], strict=True)
        assert all(received >= before for received, before in pairs)
        answered = [e.region for e in pair.events[side] if isinstance(e, RevokeAcknowledged)]
        assert answered == revoked[side]
        assert pair.events[side].count(PeerClosed()) == 1
        assert pair.streams[side].queued_bytes == 0
        assert not pair.streams[side].pending


@given(
    sizes=st.lists(st.integers(0, 2000), min_size=1, max_size=6),
    damage=st.sampled_from(["cut", "byte", "grow", "field"]),
    data=st.data(),
)
def test_damaged_frames_are_refused_or_dropped(
    sizes: list[int], damage: str, data: st.DataObject
) -> None:
    sender, receiver = make(), make()
    for size in sizes:
        sender.send(bytes(size), size % 3 or None)
    sender.flush()
    sender.close()
    frames = frames_of(sender)
    place = data.draw(st.integers(0, len(frames) - 1))
    broken = bytearray(frames[place])
    if damage == "cut":
        del broken[data.draw(st.integers(0, len(broken) - 1)) :]
    elif damage == "grow":
        broken += data.draw(st.binary(min_size=1, max_size=600))
    elif damage == "byte":
        broken[data.draw(st.integers(0, len(broken) - 1))] ^= data.draw(st.integers(1, 255))
    else:
        fields = list(HEADER.unpack_from(broken))
        chosen = data.draw(st.integers(0, len(fields) - 1))
        bits = (8, 8, 16, 32, 64, 64, 64, 64)[chosen]
        fields[chosen] = data.draw(st.integers(0, (1 << bits) - 1))
        broken[: HEADER.size] = HEADER.pack(*fields)
    frames[place] = bytes(broken)
    try:
        deliver(receiver, frames)
    except RemoteProtocolError as error:
        with pytest.raises(RemoteProtocolError, match=re.escape(str(error))):
            receiver.receive(frame())


@given(st.lists(st.binary(max_size=1200), max_size=5))
def test_garbage_is_refused_or_dropped(frames: list[bytes]) -> None:
    receiver = make()
    try:
        deliver(receiver, frames)
    except RemoteProtocolError:
        return


FIELD = st.integers(0, 5) | st.sampled_from([255, 256, 512, 1 << 14, (1 << 16) - 1])


@given(
    st.lists(
        st.tuples(st.integers(0, 10), st.integers(0, 9), FIELD, FIELD, FIELD, st.binary()),
        max_size=8,
    )
)
def test_hostile_headers_never_raise_anything_else(frames: list[Any]) -> None:
    receiver = make()
    receiver.send(1)
    frames_of(receiver)
    try:
        for sequence, (kind, flags, total, consumed, transfer, body) in enumerate(frames):
            receiver.receive(
                frame(
                    kind,
                    flags,
                    body,
                    total=total,
                    sequence=sequence,
                    consumed=consumed,
                    transfer=transfer,
                )
            )
            frames_of(receiver)
    except RemoteProtocolError:
        return


def test_one_small_message_is_one_frame_without_a_copy() -> None:
    sender, receiver = make(), make()
    assert sender.send(b"12345678") == 1
    assert sender.queued_bytes == 10
    header, body = sender.next_frame() or (b"", b"")
    assert (len(header), body) == (40, b"\xc4\x0812345678")
    assert sender.next_frame() is None
    assert (sender.queued_bytes, sender.sent_count) == (0, 1)
    assert receiver.receive(header + body) == [MessageReceived(b"12345678", 256, None)]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_bytes_are_taken_and_not_kept(kind: type) -> None:
    sender, receiver = make(), make()
    sender.send(bytes(range(256)) * 8)
    frames = frames_of(sender)
    buffers = [bytearray(data) for data in frames]
    for buffer in (buffers[1], buffers[2]):
        assert receiver.receive(kind(buffer)) == []
        buffer[:] = bytes(len(buffer))
    assert values(receiver.receive(kind(buffers[0]))) == [bytes(range(256)) * 8]


def test_m1_a_message_starts_when_its_charge_fits_and_never_overtakes() -> None:
    sender = make(send_window_bytes=MAX + 256)
    sender.send(bytes(MAX - 3 - 256))
    sender.send(bytes(600))
    sender.send(b"small")
    assert kinds(frames_of(sender)) == [DATA] * 4
    assert sender.pending
    assert sender.sent_count == 1
    assert sender.queued_bytes == 603 + 7
    # 512 left, 603 asked for: even the last, which would fit, waits for its turn.
    assert sender.receive(frame(CREDIT, 0, b"", consumed=0)) == []
    assert sender.receive(frame(CREDIT, 0, b"", sequence=1, consumed=MAX - 256)) == [WindowOpened()]
    assert not sender.pending
    assert kinds(frames_of(sender)) == [DATA, DATA]
    assert sender.sent_count == 3


def test_m1_a_started_message_is_not_held_up() -> None:
    sender = make(send_window_bytes=MAX + 256)
    sender.send(bytes(MAX - 3))
    first = sender.next_frame()
    assert first is not None
    assert not sender.pending
    assert len(frames_of(sender)) == 4


def test_m2_windows_that_are_too_small_are_refused() -> None:
    for changes in (
        {"send_window_bytes": MAX + 255},
        {"receive_window_bytes": MAX + 255},
        {"frame_bytes": MIN_FRAME_BYTES - 1},
    ):
        with pytest.raises(ValueError, match=r"is less than"):
            make(**changes)
    make(send_window_bytes=MAX + 256, receive_window_bytes=MAX + 256, frame_bytes=MIN_FRAME_BYTES)


@pytest.mark.parametrize("room", [256, 257, 500, 2000, 20000])
@pytest.mark.parametrize("limit", [1, 100, 256, 300, 5000])
def test_m3_no_message_waits_for_credit_that_is_held_back(limit: int, room: int) -> None:
    window = limit + room
    sizes = {"max_message_bytes": limit, "frame_bytes": MIN_FRAME_BYTES}
    a = make(send_window_bytes=window, **sizes)
    b = make(receive_window_bytes=window, **sizes)
    rng = random.Random(limit * room)
    largest = bytes(limit - 3) if limit > 258 else bytes(limit - 2) if limit > 1 else None
    for count in range(200):
        value = None if limit < 3 or rng.random() < 0.7 else largest
        number = a.send(value)
        for data in frames_of(a):
            for event in b.receive(data):
                assert isinstance(event, MessageReceived)
                b.consumed(event.charge)
        for data in frames_of(b):
            a.receive(data)
        # What had to wait goes now, since everything was taken.
        for data in frames_of(a):
            for event in b.receive(data):
                assert isinstance(event, MessageReceived)
                b.consumed(event.charge)
        assert a.sent_count == number == count + 1


def test_m3_credit_is_carried_by_data_and_else_sent_at_a_quarter() -> None:
    a, b = make(), make()
    for _ in range(16):
        a.send(1)
    events = deliver(b, frames_of(a))
    due = [b.consumed(event.charge) for event in events if isinstance(event, MessageReceived)]
    assert due == [False] * 15 + [True]
    assert kinds(frames_of(b)) == [CREDIT]
    assert frames_of(b) == []
    a.send(1)
    (event,) = deliver(b, frames_of(a))
    assert isinstance(event, MessageReceived)
    assert not b.consumed(event.charge)
    b.send("answer")
    (answer,) = frames_of(b)
    assert HEADER.unpack_from(answer)[5] == 17 * 256


def test_m4_control_frames_do_not_wait_for_the_window() -> None:
    a = make(send_window_bytes=MAX + 256)
    b = make(receive_window_bytes=MAX + 256, send_window_bytes=MAX + 256)
    a.send(bytes(MAX - 3))
    token = a.flush()
    a.send(bytes(MAX - 3))
    frames = frames_of(a)
    assert kinds(frames) == [DATA] * 5 + [FLUSH]
    assert a.pending
    b.send(bytes(MAX - 3))
    b.send(bytes(MAX - 3))
    frames_of(b)
    assert b.pending
    deliver(b, frames)
    b.consumed(MAX)
    answer = frames_of(b)
    assert kinds(answer) == [FLUSHED]
    assert HEADER.unpack_from(answer[0])[5] == MAX
    assert token == 1


def test_m4_flushes_are_answered_one_at_a_time_and_all() -> None:
    a, b = make(), make()
    tokens = [a.flush()]
    out = frames_of(a)
    a.send(1)
    tokens += [a.flush(), a.flush()]
    out += frames_of(a)
    assert kinds(out) == [FLUSH, DATA]
    deliver(b, out)
    events = deliver(a, frames_of(b))
    assert events == [FlushAcknowledged(1)]
    deliver(b, frames_of(a))
    assert deliver(a, frames_of(b)) == [FlushAcknowledged(2), FlushAcknowledged(3)]
    assert tokens == [1, 2, 3]


def test_m4_revocations_leave_one_at_a_time_and_behind_the_messages_before_them() -> None:
    a = make(send_window_bytes=MAX + 256)
    b = make(receive_window_bytes=MAX + 256)
    a.send(bytes(MAX - 3))
    a.send(bytes(MAX - 3))
    a.revoke(5)
    a.send("after")
    a.revoke(0)
    assert not a.idle
    frames = frames_of(a)
    assert kinds(frames) == [DATA] * 5  # the message before the revocation waits for the window
    deliver(b, frames)
    b.consumed(MAX)
    deliver(a, frames_of(b))
    frames = frames_of(a)
    assert kinds(frames) == [DATA] * 5 + [REVOKE, DATA]
    assert RegionRevoked(5) in deliver(b, frames)
    assert frames_of(a) == []  # the second one waits for the answer to the first
    b.let_go(5)
    assert not b.idle
    assert deliver(a, frames_of(b)) == [RevokeAcknowledged(5)]
    assert deliver(b, frames_of(a)) == [RegionRevoked(0)]
    b.let_go(0)
    assert deliver(a, frames_of(b)) == [RevokeAcknowledged(0)]
    assert a.idle


def test_m4_revocations_and_their_answers_may_follow_close() -> None:
    a, b = make(), make()
    a.revoke(1)
    deliver(b, frames_of(a))
    a.close()
    b.close()
    a.revoke(2)
    b.let_go(1)
    frames = frames_of(b)
    assert kinds(frames) == [REVOKED, CLOSE]
    assert deliver(a, frames[::-1]) == [RevokeAcknowledged(1), PeerClosed()]
    frames = frames_of(a)
    assert kinds(frames) == [REVOKE, CLOSE]
    assert deliver(b, frames) == [RegionRevoked(2), PeerClosed()]
    b.let_go(2)
    assert kinds(frames_of(b)) == [REVOKED]


def test_only_what_the_peer_waits_for_is_let_go() -> None:
    a = make()
    for region in (0, 3):
        with pytest.raises(ValueError, match="not being revoked"):
            a.let_go(region)
    a.receive(frame(REVOKE, 0, b"", transfer=3))
    with pytest.raises(ValueError, match="not being revoked"):
        a.let_go(4)
    a.let_go(3)
    with pytest.raises(ValueError, match="not being revoked"):
        a.let_go(3)
    with pytest.raises(RemoteProtocolError, match="region 3 before"):
        a.receive(frame(REVOKE, 0, b"", transfer=3, sequence=1))  # its answer has not left


def test_another_region_is_no_answer_to_a_revocation() -> None:
    a = make()
    a.revoke(7)
    assert kinds(frames_of(a)) == [REVOKE]
    with pytest.raises(RemoteProtocolError, match="region 8, where 7 is out"):
        a.receive(frame(REVOKED, 0, b"", transfer=8))


def test_a_failed_stream_revokes_nothing() -> None:
    a = make()
    a.receive(frame(REVOKE, 0, b"", transfer=3))
    a.revoke(7)
    a.fail("enough")
    a.let_go(3)
    a.revoke(8)
    assert kinds(frames_of(a)) == [ERROR]


def test_m5_small_fragments_are_refused() -> None:
    receiver = make()
    with pytest.raises(RemoteProtocolError, match="frames of a wrong size"):
        receiver.receive(frame(DATA, FIRST, bytes(511), total=2000))


def test_m6_window_is_enforced_in_bytes() -> None:
    body = b"\xc5" + (MAX - 3).to_bytes(2, "big") + bytes(MAX - 3)
    receiver = make(receive_window_bytes=MAX + 256, frame_bytes=2 * MAX)
    assert len(receiver.receive(frame(body=body))) == 1
    assert len(receiver.receive(frame(sequence=1))) == 1
    with pytest.raises(RemoteProtocolError, match="into a window of 4352"):
        receiver.receive(frame(sequence=2))


def test_m6_window_is_enforced_in_messages() -> None:
    receiver = make()
    for sequence in range(WINDOW // 256):
        receiver.receive(frame(sequence=sequence))
    with pytest.raises(RemoteProtocolError, match="into a window"):
        receiver.receive(frame(sequence=WINDOW // 256))


def test_m6_early_frames_are_bounded_in_count() -> None:
    receiver = make()
    limit = WINDOW // 256 + 4 + 6
    for sequence in range(1, limit):
        assert receiver.receive(frame(sequence=sequence)) == []
    with pytest.raises(RemoteProtocolError, match="frame 0 is missing"):
        receiver.receive(frame(sequence=limit))


def test_m6_early_frames_are_bounded_in_bytes() -> None:
    receiver = make(frame_bytes=4096)
    for sequence in range(1, 5):
        assert receiver.receive(frame(sequence=sequence, body=bytes(4000))) == []
    with pytest.raises(RemoteProtocolError, match="20000 bytes while frame 0 is missing"):
        receiver.receive(frame(sequence=5, body=bytes(4000)))


def test_m6_the_longest_disorder_that_the_window_allows_is_taken() -> None:
    a, b = make(), make()
    for place in range(WINDOW // 256):
        a.send(place)
    a.flush()
    a.revoke(1)
    a.close()
    frames = frames_of(a)
    events = deliver(b, frames[::-1])
    assert values(events) == list(range(WINDOW // 256))
    assert events[-1] == PeerClosed()


def test_m6_early_frames_that_were_taken_free_their_room() -> None:
    receiver = make(frame_bytes=4096)
    body = b"\xc5" + (3997).to_bytes(2, "big") + bytes(3997)
    for sequence in range(0, 20, 2):
        assert receiver.receive(frame(sequence=sequence + 1, body=body)) == []
        assert len(receiver.receive(frame(sequence=sequence))) == 2
        receiver.consumed(4256)


def test_m7_frames_are_kept_until_the_peer_has_them() -> None:
    a, b = make(several_paths=True), make(several_paths=True)
    for value in range(3):
        a.send(value)
    first, *others = frames_of(a)
    b.receive(first)
    b.send("answer")
    a.receive(frames_of(b)[0])
    assert a.idle
    a.rewind()
    assert not a.idle
    assert frames_of(a) == others
    frame = a.express(3)
    assert isinstance(frame, tuple)
    a.rewind()
    assert frames_of(a) == [*others, b"".join(frame)]
    assert a.idle


def test_m7_with_one_path_nothing_is_kept() -> None:
    a = make()
    a.send(1)
    frames_of(a)
    a.rewind()
    assert a.idle
    assert frames_of(a) == []


def test_frames_that_come_again_are_dropped_and_counted() -> None:
    a, b = make(), make()
    for place in range(3):
        a.send(place)
    frames = frames_of(a)
    assert deliver(b, [frames[1], frames[1]]) == []
    assert values(deliver(b, [frames[0], frames[0], frames[1], frames[2], frames[2]])) == [0, 1, 2]
    assert b.duplicate_count == 4


def test_notifications_name_their_transfer_and_0_is_one() -> None:
    a, b = make(), make()
    a.send("plain")
    a.send("first", 0)
    a.send(bytes(3000), (1 << 64) - 1)
    events = deliver(b, frames_of(a))
    assert [e.transfer for e in events if isinstance(e, MessageReceived)] == [
        None,
        0,
        (1 << 64) - 1,
    ]
    for wrong in (-1, 1 << 64):
        with pytest.raises(ValueError, match="64 bits"):
            a.send("x", wrong)


def test_a_message_that_cannot_be_sent_leaves_no_trace() -> None:
    a, b = make(), make()
    with pytest.raises(LocalProtocolError):
        a.send(object())
    with pytest.raises(LocalProtocolError, match=f"max_message_bytes={MAX}"):
        a.send(bytes(MAX))
    assert (a.queued_bytes, frames_of(a)) == (0, [])
    assert a.send("fine") == 1
    assert values(deliver(b, frames_of(a))) == ["fine"]


def test_withdrawn_messages_are_not_sent() -> None:
    a = make(send_window_bytes=MAX + 256)
    b = make(receive_window_bytes=MAX + 256)
    numbers = [a.send(bytes(MAX - 3))]
    first = a.next_frame()
    assert first is not None
    numbers += [a.send(bytes([place]) * 300) for place in range(4)]
    assert not a.withdraw(numbers[0])
    assert a.withdraw(numbers[2])
    assert not a.withdraw(numbers[2])
    frames = [b"".join(first), *frames_of(a)]
    assert a.sent_count == 1
    assert a.withdraw(numbers[1])
    assert a.sent_count == 3
    assert not a.withdraw(numbers[1])
    assert not a.withdraw(99)
    deliver(b, frames)
    b.consumed(MAX)
    assert WindowOpened() in deliver(a, frames_of(b))
    assert values(deliver(b, frames_of(a))) == [b"\x02" * 300, b"\x03" * 300]
    assert (a.sent_count, a.queued_bytes) == (5, 0)
    assert not a.withdraw(numbers[4])


def test_withdrawing_all_lets_flush_and_close_go() -> None:
    a = make(send_window_bytes=MAX + 256)
    a.send(bytes(MAX - 3))
    frames_of(a)
    numbers = [a.send(bytes(600)), a.send(bytes(600))]
    a.flush()
    a.close()
    assert frames_of(a) == []
    assert all(a.withdraw(number) for number in numbers)
    assert kinds(frames_of(a)) == [FLUSH, CLOSE]


def test_close_goes_last_and_once_and_credit_still_flows() -> None:
    a, b = make(), make()
    a.send(bytes(MAX - 3))
    a.close()
    a.close()
    with pytest.raises(ClosedResourceError):
        a.send(1)
    with pytest.raises(ClosedResourceError):
        a.flush()
    frames = frames_of(a)
    assert kinds(frames) == [DATA] * 5 + [CLOSE]
    events = deliver(b, frames)
    assert events[-1] == PeerClosed()
    for place in range(16):
        b.send(place)
    received = deliver(a, frames_of(b))
    assert values(received) == list(range(16))
    for event in received:
        assert isinstance(event, MessageReceived)
        a.consumed(event.charge)
    assert kinds(frames_of(a)) == [CREDIT]
    # Towards a peer that sends no more, credit is of no use.
    assert not b.consumed(MAX)
    assert frames_of(b) == []


def test_fail_drops_what_is_queued_and_tells_why() -> None:
    a, b = make(), make()
    a.send(1)
    a.next_frame()
    a.send(bytes(2000))
    a.fail("grün " * 200)
    a.fail("again")
    assert a.queued_bytes == 0
    frames = frames_of(a)
    assert kinds(frames) == [ERROR]
    assert len(frames[0]) == HEADER.size + 512
    (event,) = deliver(b, [frame(), *frames])[1:]
    assert isinstance(event, PeerError)
    assert event.text.startswith("grün grün")
    with pytest.raises(ClosedResourceError):
        a.send(2)
    with pytest.raises(RemoteProtocolError, match="after its ERROR"):
        b.receive(frame(sequence=2))


def test_a_failed_stream_says_nothing_more() -> None:
    a = make()
    for place in range(16):
        a.receive(frame(sequence=place))
    a.fail("enough")
    assert kinds(frames_of(a)) == [ERROR]
    assert not a.consumed(16 * 256)
    a.close()
    assert frames_of(a) == []


def test_consumed_more_than_received_is_refused() -> None:
    a = make()
    a.receive(frame())
    for charge in (257, -1):
        with pytest.raises(ValueError, match="was not received"):
            a.consumed(charge)
    a.consumed(256)
    with pytest.raises(ValueError, match="consumed before"):
        a.consumed(1)


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        ([b""], "a frame of 0 bytes"),
        ([frame()[:39]], "a frame of 39 bytes"),
        ([frame(body=bytes(FRAME))], "a frame of 1064 bytes"),
        ([frame(kind=0, flags=0, body=b"")], "unknown type 0"),
        ([frame(kind=9, flags=0, body=b"")], "unknown type 9"),
        ([frame(reserved=1)], "reserved"),
        ([frame(flags=FIRST | LAST | 8)], "flags 11"),
        ([frame(transfer=5)], "transfer 5"),
        ([frame(flags=LAST)], "has not begun"),
        ([frame(flags=0, body=bytes(600), total=900)], "has not begun"),
        ([frame(body=b"")], "a message of 0 bytes"),
        ([frame(total=MAX + 1)], f"a message of {MAX + 1} bytes"),
        ([frame(total=2)], "1 bytes of a message announced with 2"),
        ([frame(body=b"\x07\x07")], "cannot be decoded"),
        ([frame(flags=FIRST, body=bytes(600), total=600)], "wrong size"),
        ([frame(flags=FIRST, body=bytes(600), total=900), frame(sequence=1)], "within another"),
        (
            [
                frame(flags=FIRST, body=bytes(600), total=900),
                frame(flags=LAST, body=bytes(300), total=901, sequence=1),
            ],
            "contradicts",
        ),
        (
            [
                frame(flags=FIRST | NOTIFY, body=bytes(600), total=900, transfer=4),
                frame(flags=LAST | NOTIFY, body=bytes(300), total=900, transfer=5, sequence=1),
            ],
            "contradicts",
        ),
        (
            [
                frame(flags=FIRST, body=bytes(600), total=900),
                frame(flags=LAST, body=bytes(299), total=900, sequence=1),
            ],
            "899 bytes of a message announced with 900",
        ),
        ([frame(consumed=1)], "credit for 1 bytes"),
        ([frame(CREDIT, 1, b"")], "type 2 with flags 1"),
        ([frame(CREDIT, 0, b"x")], "type 2 with flags 0 and 1 bytes"),
        ([frame(CREDIT, 0, b"", transfer=1)], "type 2 with transfer 1"),
        ([frame(FLUSH, 0, b"")], "flush 0 after flush 0"),
        (
            [frame(FLUSH, 0, b"", transfer=1), frame(FLUSH, 0, b"", transfer=2, sequence=1)],
            "too early",
        ),
        ([frame(FLUSHED, 0, b"", transfer=1)], "an answer to flush 1, where none"),
        ([frame(FLUSHED, 0, b"")], "an answer to flush 0"),
        ([frame(REVOKE, 0, b"x", transfer=1)], "type 7 with flags 0 and 1 bytes"),
        ([frame(REVOKED, 1, b"", transfer=1)], "type 8 with flags 1"),
        (
            [frame(REVOKE, 0, b"", transfer=1), frame(REVOKE, 0, b"", transfer=2, sequence=1)],
            "region 2 before the one before it",
        ),
        ([frame(REVOKED, 0, b"", transfer=1)], "a revocation of region 1, where none is out"),
        ([frame(REVOKED, 0, b"")], "a revocation of region 0, where none is out"),
        ([frame(CLOSE, 0, b""), frame(CLOSE, 0, b"", sequence=1)], "CLOSE frame twice"),
        ([frame(CLOSE, 0, b""), frame(sequence=1)], "after its CLOSE"),
        ([frame(ERROR, 0, bytes(513))], "an ERROR frame of 513 bytes"),
        ([frame(sequence=1 << 63)], "frame 0 is missing"),
        ([frame(received=1)], "received 1 frames of 0"),
    ],
)
def test_each_broken_rule_is_named(frames: list[bytes], text: str) -> None:
    receiver = make()
    with pytest.raises(RemoteProtocolError, match=text):
        deliver(receiver, frames)


def test_credit_does_not_go_back_or_beyond() -> None:
    a = make()
    a.send(1)
    a.send(2)
    frames_of(a)
    a.receive(frame(CREDIT, 0, b"", consumed=512))
    with pytest.raises(RemoteProtocolError, match="credit for 256 bytes, not for 512 to 512"):
        a.receive(frame(CREDIT, 0, b"", consumed=256, sequence=1))


def test_credit_for_a_message_under_way_is_refused() -> None:
    a = make()
    a.send(bytes(2000))
    a.next_frame()
    with pytest.raises(RemoteProtocolError, match="credit for 1 bytes, not for 0 to 0"):
        a.receive(frame(CREDIT, 0, b"", consumed=1))


def test_repr_shows_the_live_state() -> None:
    a = make()
    a.send(bytes(500))
    a.receive(frame())
    a.receive(frame(sequence=2))
    assert repr(a) == (
        "<MessageStream <Outgoing queued=1 (503 bytes) outstanding=0/16384> "
        "<Incoming unread=256/16384> early=1 duplicates=0>"
    )
