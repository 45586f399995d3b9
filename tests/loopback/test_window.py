"""The window: a peer that does not receive makes the sender wait, and never grows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from fabricio import ClosedResourceError, WouldBlock

if TYPE_CHECKING:
    from tests.loopback.conftest import OpenPair, Pair

WINDOW = 16_000
BODY = bytes(997)  # 1000 bytes encoded
FITTING = WINDOW // 1000

LIMITS = {"max_message_bytes": 4000, "frame_bytes": 2048, "receive_window_bytes": WINDOW}


def settled(tasks: list[asyncio.Task[None]]) -> int:
    return sum(task.done() for task in tasks)


def start_sending(pair: Pair, count: int) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(pair.a.send([number, BODY[5:]])) for number in range(count)]


async def test_a_sender_waits_for_the_window(open_pair: OpenPair) -> None:
    async with open_pair(**LIMITS) as pair:
        sending = start_sending(pair, 100)
        # What the window allows is there; only then the flush of the other direction returns.
        await pair.b.flush()
        await pair.b.flush()
        assert settled(sending) == FITTING
        assert all(task.done() for task in sending[:FITTING])
        for number in range(100):
            message = await pair.b.recv()
            assert isinstance(message, list)
            assert message[0] == number
            await pair.b.flush()
            # Never more than the window beyond what was taken.
            assert settled(sending) <= FITTING + number + 1
        await asyncio.gather(*sending)
        await pair.works()


async def test_small_messages_cost_256_bytes_each(open_pair: OpenPair) -> None:
    async with open_pair(**LIMITS) as pair:
        sending = [asyncio.create_task(pair.a.send(None)) for _ in range(100)]
        await pair.b.flush()
        await pair.b.flush()
        assert settled(sending) == WINDOW // 256
        for _ in range(100):
            assert await pair.b.recv() is None
        await asyncio.gather(*sending)


async def test_a_cancelled_send_was_not_sent(open_pair: OpenPair) -> None:
    async with open_pair(**LIMITS) as pair:
        sending = start_sending(pair, FITTING + 4)
        await pair.b.flush()
        sending[FITTING].cancel()
        sending[FITTING + 2].cancel()
        await asyncio.wait(sending[FITTING::2])
        expected = [n for n in range(FITTING + 4) if n not in (FITTING, FITTING + 2)]
        received = []
        for _ in expected:
            message = await pair.b.recv()
            assert isinstance(message, list)
            received.append(message[0])
        assert received == expected
        await asyncio.wait(sending)
        assert [task.cancelled() for task in sending[FITTING:]] == [True, False, True, False]
        await pair.works()


async def test_the_other_direction_and_other_endpoints_go_on(open_pair: OpenPair) -> None:
    async with open_pair(**LIMITS) as pair:
        sending = start_sending(pair, FITTING + 1)
        await pair.b.send("back")
        assert await pair.a.recv() == "back"
        other, other_end = await pair.connect()
        await other.send("other")
        assert await other_end.recv() == "other"
        assert settled(sending) == FITTING
        for _ in sending:
            await pair.b.recv()
        await asyncio.gather(*sending)
        await other.aclose()
        await other_end.aclose()


async def test_transfers_do_not_wait_for_the_window(open_pair: OpenPair) -> None:
    async with open_pair(**LIMITS) as pair:
        source, target = await pair.register(5000), await pair.register_far(5000)
        sending = start_sending(pair, FITTING + 1)
        assert await pair.a.write(source.region, target.remote) == 5000
        assert target.array.tobytes() == source.array.tobytes()
        assert not sending[-1].done()
        # A notification is a message: its transfer runs, and the await waits for the window.
        again = asyncio.ensure_future(pair.a.write(source.region, target.remote, notify="late"))
        await pair.b.flush()
        assert not again.done()
        for _ in sending:
            await pair.b.recv()
        assert await pair.b.recv() == "late"
        assert await again == 5000
        await asyncio.gather(*sending)
        await pair.works()


async def test_notifications_do_not_pile_up(open_pair: OpenPair) -> None:
    async with open_pair(**LIMITS, max_queued_messages=50) as pair:
        source, target = await pair.register(8), await pair.register_far(8)
        sending = start_sending(pair, FITTING)
        await pair.b.flush()
        transfers = [
            pair.a.write(source.region, target.remote, notify=number) for number in range(50)
        ]
        with pytest.raises(WouldBlock, match="max_queued_messages=50 messages wait"):
            pair.a.write(source.region, target.remote, notify=None)
        with pytest.raises(WouldBlock, match="max_queued_messages=50 messages wait"):
            pair.a.write(source.region[:0], target.remote, notify=None)
        assert await pair.a.write(source.region, target.remote) == 8
        for _ in range(FITTING):
            await pair.b.recv()
        for number, transfer in enumerate(transfers):
            assert await pair.b.recv() == number
            assert await transfer == 8
        await asyncio.gather(*sending)
        await pair.works()


async def test_closing_fails_who_waits_for_the_window(open_pair: OpenPair) -> None:
    async with open_pair(**LIMITS) as pair:
        sending = start_sending(pair, FITTING + 3)
        await pair.b.flush()
        await pair.a.aclose()
        await asyncio.wait(sending)
        assert [task.exception() is None for task in sending] == FITTING * [True] + 3 * [False]
        assert all(isinstance(task.exception(), ClosedResourceError) for task in sending[FITTING:])
        assert len([message async for message in pair.b]) == FITTING


async def test_the_peers_end_fails_who_waits_for_the_window(open_pair: OpenPair) -> None:
    async with open_pair(**LIMITS) as pair:
        sending = start_sending(pair, FITTING + 3)
        await pair.b.flush()
        await pair.b.aclose()
        await asyncio.wait(sending)
        assert all(isinstance(task.exception(), ClosedResourceError) for task in sending[FITTING:])
        await pair.a.aclose()
