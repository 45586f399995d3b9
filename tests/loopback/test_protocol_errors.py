"""Frames that no peer should send: the endpoint that gets one fails, and no other."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from fabricio import (
    BrokenResourceError,
    ClosedResourceError,
    Endpoint,
    Fabric,
    LocalProtocolError,
    PeerLostError,
    ProtocolError,
    RemoteProtocolError,
)
from fabricio.descriptor import Descriptor
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
    NOTIFY,
    REVOKE,
    REVOKED,
)
from fabricio.introduction import add_peer
from fabricio.testing import check_endpoint_pair
from tests.loopback.conftest import Interposed

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricio.channel import Channel
    from fabricio.engine import Engine
    from tests.loopback.conftest import OpenPair, Pair

WHOLE = FIRST | LAST
# An endpoint past which frames were sent cannot part from its peer in order: it waits this long.
CLOSING_S = 0.3

LIMITS: dict[str, Any] = {
    "max_message_bytes": 4000,
    "frame_bytes": 2048,
    "receive_window_bytes": 16_000,
}


def inject_raw(endpoint: Endpoint, data: bytes) -> None:
    """Send a frame past the message layer."""
    channel = endpoint._channel
    lib = channel.engine.lib
    assert not lib.fab_frame_send(
        channel.engine.handle, channel.peer, lib.FAB_FRAME_MESSAGE, 0, data, len(data), b"", 0
    )


def frame(
    kind: int,
    sequence: int,
    *,
    flags: int = 0,
    reserved: int = 0,
    total: int | None = None,
    consumed: int = 0,
    transfer: int = 0,
    received: int = 0,
    body: bytes = b"",
) -> bytes:
    total = len(body) if total is None else total
    fields = kind, flags, reserved, total, sequence, consumed, transfer, received
    return HEADER.pack(*fields) + body


def whole(sequence: int, body: bytes, **fields: int) -> bytes:
    return frame(DATA, sequence, flags=WHOLE, body=body, **fields)


def extension(code: int, data: bytes) -> bytes:
    packed: bytes = msgpack.packb(msgpack.ExtType(code, data))
    return packed


FOREIGN = Descriptor(1, bytes(16), 1, 0, 8, 1, (1,)).encode()

KIB = b"\xc5\x03\xe5" + bytes(997)  # one value, 1000 bytes encoded

# Each is a list of frames from the sequence number that the peer expects, here 0, on.
FRAMES: dict[str, list[bytes]] = {
    "empty": [b""],
    "short": [b"\1" * (HEADER.size - 1)],
    "zeros": [bytes(HEADER.size)],
    "type 9": [frame(9, 0)],
    "type 255": [frame(255, 0, body=b"x")],
    "reserved": [whole(0, b"\xc0", reserved=1)],
    "unknown flag": [frame(DATA, 0, flags=WHOLE | 8, body=b"\xc0")],
    "no bytes": [whole(0, b"")],
    "too large": [frame(DATA, 0, flags=FIRST, total=4001, body=bytes(1000))],
    "4 GiB": [frame(DATA, 0, flags=FIRST, total=(1 << 32) - 1, body=bytes(1000))],
    "less than announced": [whole(0, b"\xc0", total=2)],
    "more than announced": [whole(0, b"\xc0\xc0", total=1)],
    "continued from nothing": [frame(DATA, 0, flags=LAST, body=b"\xc0")],
    "begun twice": [
        frame(DATA, number, flags=FIRST, total=2000, body=bytes(1000)) for number in range(2)
    ],
    "tiny fragment": [frame(DATA, 0, flags=FIRST, total=2000, body=bytes(10))],
    "fragment too many": [
        frame(DATA, 0, flags=FIRST, total=1500, body=bytes(1000)),
        frame(DATA, 1, total=1500, body=bytes(600)),
    ],
    "other total": [
        frame(DATA, 0, flags=FIRST, total=1500, body=bytes(1000)),
        frame(DATA, 1, flags=LAST, total=1600, body=bytes(600)),
    ],
    "closed within a message": [
        frame(DATA, 0, flags=FIRST, total=1500, body=bytes(1000)),
        frame(CLOSE, 1),
    ],
    "after its end": [frame(CLOSE, 0), whole(1, b"\xc0")],
    "no msgpack": [whole(0, b"\xc1")],
    "cut msgpack": [whole(0, b"\xdb\xff\xff\xff\xff")],
    "two values": [whole(0, b"\xc0\xc0")],
    "nested": [whole(0, b"\x91" * 2000)],
    "no utf-8": [whole(0, b"\xa1\xff")],
    "list as a key": [whole(0, b"\x81\x90\xc0")],
    "extension": [whole(0, extension(5, b"data"))],
    "no region": [whole(0, extension(1, b"data"))],
    "region of another": [whole(0, extension(1, FOREIGN))],
    "transfer of no notification": [whole(0, b"\xc0", transfer=3)],
    "credit for nothing": [frame(CREDIT, 0, consumed=1000)],
    "huge credit": [whole(0, b"\xc0", consumed=(1 << 64) - 1)],
    "credit with bytes": [frame(CREDIT, 0, body=b"x")],
    "flush 0": [frame(FLUSH, 0)],
    "flush again": [frame(FLUSH, 0, transfer=1), frame(FLUSH, 1, transfer=1)],
    "unasked answer": [frame(FLUSHED, 0, transfer=1)],
    "revocation with bytes": [frame(REVOKE, 0, body=b"x")],
    "unasked letting go": [frame(REVOKED, 0, transfer=1)],
    "far ahead": [whole(1 << 40, b"\xc0")],
    "beyond the window": [whole(number, KIB) for number in range(17)],
    "beyond the window, early": [whole(number, KIB) for number in range(1, 19)],
}


def inject(endpoint: Endpoint, frames: list[bytes]) -> None:
    """Send frames, numbered on from those that the endpoint has sent."""
    stream = endpoint._channel.outbox.stream
    first = stream._sequence
    for data in frames:
        if len(data) < HEADER.size:
            inject_raw(endpoint, data)
            continue
        fields = list(HEADER.unpack_from(data))
        fields[4] += first
        stream._sequence = max(stream._sequence, fields[4] + 1)  # what the peer may say it has
        inject_raw(endpoint, HEADER.pack(*fields) + data[HEADER.size :])


async def receive_to_the_end(endpoint: Endpoint) -> None:
    while True:
        await endpoint.recv()


@pytest.mark.parametrize("name", FRAMES)
async def test_a_bad_frame_fails_its_endpoint_alone(open_pair: OpenPair, name: str) -> None:
    async with open_pair(**LIMITS) as pair:
        victim, sender = await pair.connect()
        inject(sender, FRAMES[name])
        # The peer says why it gave up, or that it closed before that.
        with pytest.raises((ProtocolError, ClosedResourceError)):
            await sender.recv()
        with pytest.raises(RemoteProtocolError):
            await receive_to_the_end(victim)
        assert victim.closed
        for endpoint in (victim, sender):
            with pytest.raises((ProtocolError, ClosedResourceError)):
                await endpoint.send("more")
        await victim.aclose()
        await sender.aclose()
        await pair.works()


async def test_the_peer_is_told_why(open_pair: OpenPair) -> None:
    async with open_pair(**LIMITS) as pair:
        inject(pair.a, [whole(0, b"\xc1")])
        with pytest.raises(LocalProtocolError, match=r"the peer gave up .*cannot be decoded"):
            await pair.a.recv()


@pytest.mark.parametrize("name", ["no region", "region of another", "extension", "no msgpack"])
async def test_both_sides_are_told_whose_it_was(open_pair: OpenPair, name: str) -> None:
    async with open_pair(**LIMITS) as pair:
        inject(pair.a, FRAMES[name])
        with pytest.raises(RemoteProtocolError, match=r"^the peer sent .*(Install|have it share) "):
            await pair.b.recv()
        with pytest.raises(
            LocalProtocolError, match=r"where this side is the peer: the peer sent "
        ):
            await pair.a.recv()


async def test_the_peer_is_told_that_it_is_not_to_blame(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("ours")

    monkeypatch.setattr(pair.b._channel.outbox.stream, "receive", fail)
    await pair.a.send(1)
    with pytest.raises(LocalProtocolError, match="not the peer's doing"):
        await pair.a.recv()
    with pytest.raises(BrokenResourceError, match="unexpected ValueError: ours"):
        await pair.b.send(1)


async def fail_and_close(victim: Endpoint, sender: Endpoint) -> None:
    """Have the victim fail, and close it as soon as it knows."""
    inject(sender, [whole(0, b"\xc1")])
    with pytest.raises(RemoteProtocolError):
        await victim.recv()
    await victim.aclose()
    assert victim._channel.removed


def interpose_error_frames(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, meet: Callable[[Callable[[], object]], object]
) -> None:
    """Give every ERROR frame to the test, as a function that sends it."""
    lib = engine.lib

    def send(handle: Any, peer: int, kind: int, token: int, head: bytes, *rest: Any) -> int:  # noqa: ANN401  (cffi's)
        arguments = (handle, peer, kind, token, head, *rest)
        if kind == lib.FAB_FRAME_MESSAGE and head and head[0] == ERROR:
            meet(partial(lib.fab_frame_send, *arguments))
            return 0
        return int(lib.fab_frame_send(*arguments))

    monkeypatch.setattr(engine, "lib", Interposed(lib, fab_frame_send=send))


async def test_the_peer_is_told_why_by_who_closes_at_once(
    open_pair: OpenPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_pair(**LIMITS) as pair:
        # As from a lane that is busy: the frame leaves after the call, and after the close began.
        late: list[asyncio.Task[None]] = []

        async def later(send: Callable[[], object]) -> None:
            for _ in range(10):
                await asyncio.sleep(0)
            send()

        interpose_error_frames(
            monkeypatch,
            pair.b._channel.engine,
            lambda send: late.append(asyncio.create_task(later(send))),
        )
        await fail_and_close(pair.b, pair.a)
        assert [task.done() for task in late] == [True]
        with pytest.raises(LocalProtocolError, match="cannot be decoded"):
            await pair.a.recv()


async def test_closing_waits_for_no_error_frame_for_ever(
    open_pair: OpenPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_pair(peer_timeout_s=CLOSING_S, **LIMITS) as pair:
        swallowed: list[object] = []
        engine = pair.b._channel.engine
        interpose_error_frames(monkeypatch, engine, swallowed.append)
        await fail_and_close(pair.b, pair.a)
        assert len(swallowed) == 1
        assert not pair.b._channel.outbox.last_under_way


async def test_a_peers_error_ends_the_endpoint(open_pair: OpenPair) -> None:
    async with open_pair(peer_timeout_s=CLOSING_S) as pair:
        sender, victim = await pair.connect()
        why = frame(ERROR, 1, body=b"this is why")
        inject(sender, [whole(0, b"\x01"), why, whole(2, b"\x02")])
        assert await victim.recv() == 1
        with pytest.raises(LocalProtocolError, match="this is why"):
            await victim.recv()
        with pytest.raises(LocalProtocolError, match="this is why"):
            await victim.send(1)
        await victim.aclose()
        await sender.aclose()
        await pair.works()


async def test_transfers_of_a_failed_endpoint_end(open_slow_pair: OpenPair) -> None:
    async with open_slow_pair() as pair:
        endless = await pair.endless_write()
        transfer = endless.write()
        inject(pair.b, [frame(9, 0)])
        with pytest.raises(RemoteProtocolError):
            await transfer
        assert transfer.pages_done < endless.page_count
        with pytest.raises(RemoteProtocolError):
            endless.write()


async def test_frames_that_come_late_and_twice(open_pair: OpenPair) -> None:
    async with open_pair(peer_timeout_s=CLOSING_S) as pair:
        a, b = await pair.connect()
        await a.flush()
        first = a._channel.outbox.stream._sequence
        for number in (1, 3, 2, 3, 0, 0, 7, 4, 6, 5, 1):
            inject_raw(a, whole(first + number, bytes([number])))
        assert [await b.recv() for _ in range(8)] == list(range(8))
        await until(lambda: pair.far.statistics().duplicate_frames == 3)
        await pair.works()


async def test_a_message_and_its_notification_in_fragments(open_pair: OpenPair) -> None:
    async with open_pair(**LIMITS) as pair:
        body = msgpack.packb(bytes(2500))
        flags = NOTIFY | FIRST
        inject(
            pair.a,
            [
                frame(DATA, 0, flags=flags, total=len(body), transfer=9, body=body[:1500]),
                frame(DATA, 1, flags=NOTIFY | LAST, total=len(body), transfer=8, body=body[1500:]),
            ],
        )
        with pytest.raises(RemoteProtocolError, match="contradicts"):
            await pair.b.recv()
        with pytest.raises(LocalProtocolError, match="contradicts"):
            await pair.a.recv()


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop and the engines go on until something is true."""
    while not condition():  # noqa: ASYNC110  (engine threads count, and set no event)
        await asyncio.sleep(0.001)


async def test_a_hello_that_is_none(pair: Pair) -> None:
    channel = pair.a._channel
    lib = channel.engine.lib
    before = pair.far.statistics().refused_hellos
    for body in (b"", b"\xc0", b"garbage", msgpack.packb({"magic": "fabricio", "role": "hello"})):
        assert not lib.fab_frame_send(
            channel.engine.handle, channel.peer, lib.FAB_FRAME_HELLO, 0, b"", 0, body, len(body)
        )
    await until(lambda: pair.far.statistics().refused_hellos == before + 4)
    await pair.works()
    await check_endpoint_pair(*await pair.connect(), page_count=4)


async def test_frames_with_a_foreign_cookie_are_dropped(pair: Pair) -> None:
    engine = pair.a._channel.engine
    added: asyncio.Future[Channel | None] = asyncio.get_running_loop().create_future()
    address = pair.far.address
    add_peer(
        engine, address.lanes, address.lane_counts, 1, lambda channel, _: added.set_result(channel)
    )
    channel = await added
    assert channel is not None
    channel.attach(pair.b._channel.slots(), 12345, 1.0)  # b's slot, and not its cookie
    before = pair.far.statistics()
    data, lib = whole(0, b"\xc0"), engine.lib
    assert not lib.fab_frame_send(
        engine.handle, channel.peer, lib.FAB_FRAME_MESSAGE, 0, data, len(data), b"", 0
    )
    await until(lambda: pair.far.statistics().stale_frames > before.stale_frames)
    assert pair.far.statistics().frames_received > before.frames_received
    await channel.aclose()
    await pair.works()


async def send_too_long_a_frame(stack: AsyncExitStack, options: dict[str, Any]) -> list[Endpoint]:
    """Send what the receiver has no buffer for; return both ends, and those of a bystander."""
    near = await stack.enter_async_context(Fabric(**options, peer_timeout_s=CLOSING_S))
    far = await stack.enter_async_context(Fabric(**options, peer_timeout_s=CLOSING_S, **LIMITS))
    listener = await stack.enter_async_context(far.listen())
    ends = []
    for _ in range(2):
        ends += [await near.connect(far.address), await listener.accept()]
    sequence = ends[0]._channel.outbox.stream._sequence
    inject_raw(ends[0], whole(sequence, msgpack.packb(bytes(10_000))))
    return ends


async def test_a_frame_longer_than_the_receivers_buffers(options: dict[str, Any]) -> None:
    async with AsyncExitStack() as stack:
        _, _, *bystander = await send_too_long_a_frame(stack, options)
        await check_endpoint_pair(*bystander, page_count=4, message_bytes=3000)


async def test_who_misses_a_frame_is_told(options: dict[str, Any]) -> None:
    async with AsyncExitStack() as stack:
        _, victim, *_ = await send_too_long_a_frame(stack, options)
        async with asyncio.timeout(3 * CLOSING_S):
            with pytest.raises((RemoteProtocolError, PeerLostError)):
                await victim.recv()


async def test_random_frames(open_pair: OpenPair) -> None:
    rng = random.Random(3)
    async with open_pair(peer_timeout_s=CLOSING_S, **LIMITS) as pair:
        for _ in range(40):
            sender, victim = await pair.connect()
            first = sender._channel.outbox.stream._sequence
            for number in range(8):
                fields = [rng.choice((0, rng.randrange(1 << bits))) for bits in (4, 3, 1, 12)]
                body = rng.randbytes(rng.choice((0, 1, 5, 600)))
                fields[3] = rng.choice((len(body), fields[3]))
                more = [rng.choice((0, rng.randrange(limit))) for limit in (1 << 64, 9, 9)]
                inject_raw(sender, HEADER.pack(*fields, first + number, *more) + body)
            await victim.aclose()
            await sender.aclose()
        await pair.works()


async def test_memory_that_the_peer_could_write_into_is_kept_until_its_connection_ends(
    open_pair: OpenPair,
) -> None:
    async with open_pair(peer_timeout_s=CLOSING_S) as pair:
        region = await pair.far.register(memory := bytearray(64))
        await pair.b.send(region.share("w"))
        await pair.a.recv()
        inject_raw(pair.a, b"")
        assert isinstance(await pair.b.closed, RemoteProtocolError)
        if pair.far.attributes.writes_last == "connection":
            with pytest.raises(PeerLostError, match="did not let go") as caught:
                await region.deregister()
            assert not caught.value.quiesced
            with pytest.raises(BufferError):
                memory.append(1)
            await caught.value.drained()
        else:
            await region.deregister()
        memory.append(1)
