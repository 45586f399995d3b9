"""What is fuzzed: each target takes any bytes, and raises if fabricio does what it must not.

They cover all that reads bytes of peers in Python. A target is one function; its name is what
`python -m tests.fuzz` calls it by.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from fabricio.address import Address, is_host_port, split_host_port
from fabricio.authentication import Connecting, Listening
from fabricio.codec import ValueCodec
from fabricio.descriptor import Descriptor
from fabricio.errors import (
    AuthenticationError,
    LocalProtocolError,
    OptionsError,
    PeerUnreachableError,
    RemoteProtocolError,
)
from fabricio.events import MessageReceived, RegionRevoked
from fabricio.frames import HEADER
from fabricio.handshake import (
    Hello,
    HelloAccepted,
    HelloChallenge,
    HelloProof,
    OwnTerms,
    Ticket,
    decode,
)
from fabricio.messages import MessageStream
from fabricio.proofs import Root
from tests.fuzz.scripts import Script, change

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_MESSAGE_BYTES = 4000
WINDOW_BYTES = 16_000
FRAME_BYTES = 2048
MAX_SCRIPT_STEPS = 400

SECRET = b"a secret of thirty-two bytes, yes"
LANES = (b"\x02\x00\x1f\x90\x7f\x00\x00\x01" + bytes(8),)
DESCRIPTOR = Descriptor(3, bytes(16), 7, 4096, 65536, 1, (11,)).encode()


def _unpack_region(code: int, data: bytes) -> object:
    """Read a region of a message as an endpoint does, but for whose it is."""
    return Descriptor.decode(data)


def _stream(*, several_paths: bool = False) -> MessageStream:
    return MessageStream(
        frame_bytes=FRAME_BYTES,
        max_message_bytes=MAX_MESSAGE_BYTES,
        send_window_bytes=WINDOW_BYTES,
        receive_window_bytes=WINDOW_BYTES,
        several_paths=several_paths,
        ext_hook=_unpack_region,
    )


class _Side:
    """One end of a conversation, and what its application does."""

    def __init__(self, *, several_paths: bool) -> None:
        self.stream = _stream(several_paths=several_paths)
        self.unread = 0
        self.charges: deque[int] = deque()
        self.revoked: list[int] = []
        self.broken = False
        self.closed = False

    def receive(self, data: bytes) -> None:
        """Take a frame; whatever it is, this side is either as before or broken for good."""
        try:
            events = self.stream.receive(data)
        except RemoteProtocolError as error:
            self.broken = True
            with pytest.raises(RemoteProtocolError, match=re.escape(str(error))):
                self.stream.receive(data)
            return
        assert not self.broken
        for event in events:
            if isinstance(event, MessageReceived):
                self.charges.append(event.charge)
            elif isinstance(event, RegionRevoked):
                self.revoked.append(event.region)
        # M6: what is unread never exceeds the window.
        assert sum(self.charges) <= WINDOW_BYTES

    def read(self) -> None:
        if self.charges:
            self.stream.consumed(self.charges.popleft())

    def act(self, script: Script) -> None:
        """Do something that an application does."""
        stream = self.stream
        choice = script.below(8)
        with suppress(LocalProtocolError):
            if choice == 0 and not self.closed:
                stream.flush()
            elif choice == 1:
                stream.revoke(script.below(1 << 16))
            elif choice == 2 and self.revoked:
                stream.let_go(self.revoked.pop())
            elif choice == 3 and not script.below(16):
                stream.close()
                self.closed = True
            elif choice == 4:
                stream.rewind()
            elif not self.closed:
                values: tuple[Any, ...] = (
                    {"op": "pages", "offsets": list(range(script.below(300)))},
                    bytes(script.below(MAX_MESSAGE_BYTES)),
                    msgpack.ExtType(1, DESCRIPTOR),
                    [None, 1.5, "text", {"k": [[]]}],
                )
                transfer = script.below(1 << 20) if not script.below(3) else None
                stream.send(values[script.below(len(values))], transfer)


def frames(data: bytes) -> None:
    """Two sides talk; what one says is changed, doubled, replayed and overtaken on its way."""
    script = Script(data)
    several_paths = bool(script.below(2))
    talker, victim = (_Side(several_paths=several_paths) for _ in range(2))
    on_the_way: list[bytes] = []
    history: list[bytes] = []
    for _ in range(MAX_SCRIPT_STEPS):
        if not script or victim.broken:
            break
        (talker if script.below(4) else victim).act(script)
        while (frame := talker.stream.next_frame()) is not None:
            on_the_way.append(b"".join(frame))
        while (answer := victim.stream.next_frame()) is not None:
            talker.receive(b"".join(answer))
        talker.read()
        deed = script.below(8)
        if deed == 0:
            victim.read()
        elif deed == 1 and history:
            victim.receive(history[script.below(len(history))])
        elif deed == 2 and on_the_way:
            victim.receive(change(script, on_the_way[0]))
        elif deed == 3 and on_the_way:
            victim.receive(on_the_way.pop(script.below(len(on_the_way))))
        elif on_the_way:
            history.append(on_the_way.pop(0))
            victim.receive(history[-1])


def honest_frames(data: bytes) -> None:
    """What is only late, doubled or overtaken breaks nothing, and every message comes in order."""
    script = Script(data)
    talker, victim = (_Side(several_paths=bool(script.below(2))) for _ in range(2))
    expected = itertools.count()
    sent = 0
    on_the_way: list[bytes] = []

    def deliver(frame: bytes) -> None:
        for event in victim.stream.receive(frame):
            assert isinstance(event, MessageReceived)
            assert event.value == next(expected)
            victim.stream.consumed(event.charge)

    for _ in range(MAX_SCRIPT_STEPS):
        if not script:
            break
        talker.stream.send(sent)
        sent += 1
        while (frame := talker.stream.next_frame()) is not None:
            on_the_way.append(b"".join(frame))
        place = script.below(len(on_the_way)) if on_the_way else 0
        if on_the_way and script.below(2):
            deliver(on_the_way[place])
        if on_the_way and script.below(2):
            deliver(on_the_way.pop(place))
        while (answer := victim.stream.next_frame()) is not None:
            talker.stream.receive(b"".join(answer))
    while on_the_way:
        deliver(on_the_way.pop())
        while (answer := victim.stream.next_frame()) is not None:
            talker.stream.receive(b"".join(answer))
        while (frame := talker.stream.next_frame()) is not None:
            on_the_way.append(b"".join(frame))
    assert next(expected) == sent


def raw_frame(data: bytes) -> None:
    """Any header, any body."""
    script = Script(data)
    side = _Side(several_paths=False)
    while script and not side.broken:
        header = bytearray(script.take(HEADER.size))
        if script.below(4):
            header[8:16] = side.stream._expected.to_bytes(8, "little")
        side.receive(bytes(header) + script.take(script.below(FRAME_BYTES)))


def message(data: bytes) -> None:
    """Any bytes as a message: refused by name, or a value that can be sent on."""
    codec = ValueCodec(
        max_message_bytes=1 << 24,
        pack_default=lambda region: msgpack.ExtType(1, region.encode()),
        ext_hook=_unpack_region,
    )
    try:
        value = codec.decode(data)
    except RemoteProtocolError:
        return
    with suppress(LocalProtocolError):  # such as dates that msgpack reads and cannot write
        again = codec.encode(value)
        assert repr(codec.decode(again)) == repr(value)


def descriptor(data: bytes) -> None:
    """Any bytes as the description of a region."""
    try:
        found = Descriptor.decode(data)
    except RemoteProtocolError:
        return
    again = Descriptor.decode(found.encode())
    assert set(again.keys) == set(found.keys)
    assert (again.base, again.length_bytes) == (found.base, found.length_bytes)


def address(data: bytes) -> None:
    """Any text as an address, as from a rendezvous."""
    text = data.decode("ascii", "replace")
    try:
        found = Address.parse(text)
    except OptionsError:
        pass
    else:
        assert Address.parse(str(found)) == found
    if is_host_port(text):
        host, port = split_host_port(text)
        assert host
        assert 0 <= port < 1 << 16


def hello(data: bytes) -> None:
    """Any bytes as a frame of the handshake."""
    try:
        found = decode(data)
    except RemoteProtocolError:
        return
    assert decode(found.encode()) == found


def _terms(incarnation: int) -> OwnTerms:
    return OwnTerms(
        provider="tcp",
        incarnation=bytes([incarnation]) * 16,
        lanes=LANES,
        lane_counts=(1,),
        immediate_bytes=8,
        max_message_bytes=MAX_MESSAGE_BYTES,
        receive_window_bytes=WINDOW_BYTES,
        frame_bytes=FRAME_BYTES,
        peer_timeout_ms=10_000,
    )


def handshake(data: bytes) -> None:
    """Whatever is done to the four frames, nobody takes a peer that has not said them all.

    With a secret, a handshake in which anything was changed is completed by nobody behind the
    change; without one, it may only fail by name.
    """
    script = Script(data)
    secret = SECRET if script.below(2) else b""
    victim = script.below(4)
    changed = False

    def carry(number: int, body: bytes) -> bytes:
        nonlocal changed
        if number != victim:
            return body
        other = change(script, body)
        changed = other != body
        return other

    try:
        connecting = Connecting((Root(secret),), _terms(1), Ticket((1,), 2))
        body = carry(0, connecting.hello_body)
        greeting = decode(body)
        if not isinstance(greeting, Hello):
            return
        listening = Listening((Root(secret),), greeting, body)
        body = carry(1, listening.challenge(_terms(2)))
        challenge = decode(body)
        if not isinstance(challenge, HelloChallenge):
            return
        there = Address("tcp", bytes([2]) * 16, LANES)
        body = carry(2, connecting.prove(challenge, body, there))
        proof = decode(body)
        if not isinstance(proof, HelloProof):
            return
        ticket = listening.admit(proof, body)
        assert not (secret and changed)
        body = carry(3, listening.accept(Ticket((3,), 4)))
        accepted = decode(body)
        if not isinstance(accepted, HelloAccepted):
            return
        connecting.admit(accepted, body)
    except (RemoteProtocolError, AuthenticationError, PeerUnreachableError):
        assert changed
        return
    assert not (secret and changed)
    if not changed:
        assert ticket == ((1,), 2)


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        frames,
        honest_frames,
        raw_frame,
        message,
        descriptor,
        address,
        hello,
        handshake,
    )
}
