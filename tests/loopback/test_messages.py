"""Messages: values, order, sizes, ends of iteration, cancellation."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from fabricio import ClosedResourceError, Endpoint, LocalProtocolError

if TYPE_CHECKING:
    from tests.loopback.conftest import OpenPair, Pair

# What is sent, and as what it arrives.
VALUES: list[tuple[object, object]] = [
    (None, None),
    (False, False),
    (0, 0),
    (-(1 << 63), -(1 << 63)),
    ((1 << 64) - 1, (1 << 64) - 1),
    (float("-inf"), float("-inf")),
    ("ä\0€", "ä\0€"),
    (b"\0\xff", b"\0\xff"),
    (bytearray(b"ab"), b"ab"),
    (memoryview(b"ab"), b"ab"),
    ((1, (2, [])), [1, [2, []]]),
    ({1: "a", "b": None, b"c": {}}, {1: "a", "b": None, b"c": {}}),
    (
        datetime(2024, 2, 29, 1, tzinfo=timezone(timedelta(hours=3))),
        datetime(2024, 2, 28, 22, tzinfo=UTC),
    ),
]


async def test_every_kind_of_value(pair: Pair) -> None:
    for sent, received in VALUES:
        await pair.a.send(sent)
        message = await pair.b.recv()
        assert message == received
        assert type(message) is type(received)


async def test_nan(pair: Pair) -> None:
    await pair.a.send(float("nan"))
    assert str(await pair.b.recv()) == "nan"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (object(), "cannot be encoded"),
        ({1, 2}, "cannot be encoded"),
        (1 << 64, "cannot be encoded"),
        ("\ud800", "cannot be encoded"),
        (datetime(2024, 1, 1), "cannot be encoded"),  # without a zone
        ({(1, 2): 3}, "key of a dict"),
        (b"x" * (1 << 20), "max_message_bytes=65536"),
        (["x" * 60_000, "y" * 6_000], "max_message_bytes=65536"),
    ],
    ids=["object", "set", "integer", "surrogate", "datetime", "key", "bytes", "list"],
)
async def test_a_message_that_cannot_be_sent(open_pair: OpenPair, value: object, text: str) -> None:
    limits = {"max_message_bytes": 1 << 16, "receive_window_bytes": 1 << 18}
    async with open_pair(**limits) as pair:
        source, target = await pair.register(64), await pair.register_far(64)
        with pytest.raises(LocalProtocolError, match=text):
            await pair.a.send(value)
        with pytest.raises(LocalProtocolError, match=text):
            pair.a.write(source.region, target.remote, notify=value)
        assert not target.array.any()
        await pair.a.send("next")
        assert await pair.b.recv() == "next"
        await pair.a.write(source.region, target.remote, notify="written")
        assert await pair.b.recv() == "written"
        assert target.array.tobytes() == source.array.tobytes()


async def test_every_length_around_a_frame_and_up_to_the_longest(open_pair: OpenPair) -> None:
    longest = 20_000
    limits = {"max_message_bytes": longest, "receive_window_bytes": 64_000, "frame_bytes": 2048}
    async with open_pair(**limits) as pair:
        payload = pair.near.attributes.frame_bytes - 32
        lengths = [each * payload + delta for each in (1, 2, 3) for delta in range(-8, 3)] + list(
            range(longest - 8, longest - 2)
        )
        bodies = [random.Random(length).randbytes(length) for length in lengths]

        async def send() -> None:
            for body in bodies:
                await pair.a.send(body)

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            for body in bodies:
                assert await pair.b.recv() == body
        with pytest.raises(LocalProtocolError, match="max_message_bytes"):
            await pair.a.send(bytes(longest - 2))
        await pair.works()


async def test_the_default_longest_message(pair: Pair) -> None:
    body = random.Random(5).randbytes((16 << 20) - 5)
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(pair.a.send(body))
        assert await pair.b.recv() == body
    assert sending.done()


async def test_the_smaller_of_both_limits_counts(open_pair: OpenPair) -> None:
    small = {"max_message_bytes": 1000, "receive_window_bytes": 100_000}
    async with open_pair() as large, open_pair(**small) as pair:
        async with pair.far.listen() as listener:
            a = await large.near.connect(pair.far.address)
            b = await listener.accept()
        for sender, receiver in ((a, b), (b, a)):
            with pytest.raises(LocalProtocolError, match="max_message_bytes=1000"):
                await sender.send(bytes(1000))
            await sender.send(bytes(997))
            assert await receiver.recv() == bytes(997)


async def test_messages_of_many_tasks_leave_in_the_order_of_the_calls(pair: Pair) -> None:
    lengths = [random.Random(number).choice([0, 10, 100_000]) for number in range(200)]

    async def send(number: int) -> None:
        await pair.a.send([number, bytes(lengths[number])])

    async with asyncio.TaskGroup() as group:
        for number in range(200):
            group.create_task(send(number))
        for number in range(200):
            assert await pair.b.recv() == [number, bytes(lengths[number])]


async def test_both_directions_at_once(pair: Pair) -> None:
    async def send_all(endpoint: Endpoint) -> None:
        for number in range(500):
            await endpoint.send(number)

    async def receive_all(endpoint: Endpoint) -> None:
        for number in range(500):
            assert await endpoint.recv() == number

    async with asyncio.TaskGroup() as group:
        for endpoint in (pair.a, pair.b):
            group.create_task(send_all(endpoint))
            group.create_task(receive_all(endpoint))


async def test_several_receivers_are_served_in_turn(pair: Pair) -> None:
    receiving = [asyncio.create_task(pair.b.recv()) for _ in range(5)]
    for number in range(5):
        await pair.a.send(number)
    assert await asyncio.gather(*receiving) == list(range(5))


async def test_a_cancelled_receive_loses_nothing(pair: Pair) -> None:
    first, second = (asyncio.create_task(pair.b.recv()) for _ in range(2))
    await pair.a.flush()  # both wait now
    first.cancel()
    await pair.a.send("one")
    assert await second == "one"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_receive_cancelled_as_its_message_comes_gives_it_back(pair: Pair) -> None:
    receiving = asyncio.create_task(pair.b.recv())
    await pair.a.flush()
    await pair.a.send("message")
    await pair.a.flush()
    receiving.cancel()
    # Either is right: the task has it, or the next one gets it.
    try:
        received = await receiving
    except asyncio.CancelledError:
        received = await pair.b.recv()
    assert received == "message"
    await pair.works()


async def test_iteration_ends_with_the_peer(pair: Pair) -> None:
    async def send() -> None:
        async with pair.a as endpoint:
            for number in range(100):
                await endpoint.send(number)

    sending = asyncio.create_task(send())
    assert [message async for message in pair.b] == list(range(100))
    await sending
    assert pair.a.closed
    assert pair.b.closed
    with pytest.raises(ClosedResourceError, match="peer has closed"):
        await pair.b.recv()
    with pytest.raises(ClosedResourceError, match="peer has closed"):
        await pair.b.send(1)
    with pytest.raises(ClosedResourceError, match="this endpoint is closed"):
        await pair.a.recv()


async def test_what_was_sent_before_the_end_arrives(pair: Pair) -> None:
    bodies = [bytes([number]) * 100_000 for number in range(20)]
    for body in bodies:
        await pair.a.send(body)
    await pair.a.aclose()
    for body in bodies:
        assert await pair.b.recv() == body
    with pytest.raises(ClosedResourceError):
        await pair.b.recv()


async def test_closing_wakes_who_waits(pair: Pair) -> None:
    receiving = asyncio.create_task(pair.a.recv())
    await pair.a.flush()
    await pair.a.aclose()
    with pytest.raises(ClosedResourceError):
        await receiving
    assert [message async for message in pair.a] == []


async def test_flush_waits_for_the_peer(pair: Pair) -> None:
    await pair.a.flush()
    for number in range(1000):
        await pair.a.send(number)
    received = pair.far.statistics().frames_received
    await asyncio.gather(pair.a.flush(), pair.a.flush(), pair.b.flush())
    assert pair.far.statistics().frames_received >= received
    # Everything is there, though nobody has taken any of it.
    for number in range(1000):
        assert await pair.b.recv() == number


async def test_connections_do_not_mix(pair: Pair) -> None:
    other, other_end = await pair.connect()
    for number in range(50):
        await pair.a.send(["first", number])
        await other.send(["second", number])
    for number in range(50):
        assert await other_end.recv() == ["second", number]
    await other.aclose()
    await other_end.aclose()
    for number in range(50):
        assert await pair.b.recv() == ["first", number]
    await pair.works()
