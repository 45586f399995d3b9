"""Received messages: order, notifications that wait, and cancelled receivers that lose nothing."""

import asyncio
import gc
from typing import Any

import pytest

from fabricio.errors import (
    ClosedResourceError,
    PeerLostError,
    RemoteProtocolError,
    RemoteTransferError,
)
from fabricio.inbox import Inbox


class Box:
    def __init__(self, limit: int = 8) -> None:
        self.charges: list[int] = []
        self.inbox = Inbox(asyncio.get_running_loop(), self.charges.append, limit)

    def get(self) -> asyncio.Task[object]:
        return asyncio.create_task(self.inbox.get())


async def soon() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_messages_come_in_order_and_are_charged_when_taken() -> None:
    box = Box()
    for number in range(3):
        box.inbox.put(number, 256 + number, None)
    assert box.charges == []
    assert [await box.inbox.get() for _ in range(3)] == [0, 1, 2]
    assert box.charges == [256, 257, 258]


async def test_receivers_are_served_in_turn() -> None:
    box = Box()
    tasks = [box.get() for _ in range(3)]
    await soon()
    for number in range(3):
        box.inbox.put(number, 1, None)
    assert await asyncio.gather(*tasks) == [0, 1, 2]


@pytest.mark.parametrize("message_first", [True, False])
async def test_a_notification_waits_for_its_transfer(message_first: bool) -> None:
    box = Box()
    if message_first:
        box.inbox.put("here", 1, 0)
        task = box.get()
        await soon()
        assert not task.done()
        box.inbox.arrived(0, None)
    else:
        box.inbox.arrived(0, None)
        task = box.get()
        await soon()
        assert not task.done()
        box.inbox.put("here", 1, 0)
    assert await task == "here"


async def test_nothing_overtakes_a_notification() -> None:
    box = Box()
    box.inbox.put("first", 1, 5)
    box.inbox.put("second", 1, None)
    box.inbox.put("third", 1, 6)
    box.inbox.arrived(6, None)
    task = box.get()
    await soon()
    assert not task.done()
    box.inbox.arrived(5, None)
    assert [await task, await box.inbox.get(), await box.inbox.get()] == [
        "first",
        "second",
        "third",
    ]


async def test_a_failed_transfer_raises_once() -> None:
    box = Box()
    box.inbox.put("never seen", 300, 1)
    box.inbox.put("after", 1, None)
    box.inbox.arrived(1, RemoteTransferError("failed"))
    with pytest.raises(RemoteTransferError):
        await box.inbox.get()
    assert await box.inbox.get() == "after"
    assert box.charges == [300, 1]


async def test_too_many_arrivals_are_refused() -> None:
    box = Box(limit=2)
    box.inbox.arrived(0, None)
    box.inbox.arrived(1, None)
    with pytest.raises(RemoteProtocolError):
        box.inbox.arrived(2, None)


async def test_a_receiver_cancelled_while_waiting_takes_nothing() -> None:
    box = Box()
    first, second = box.get(), box.get()
    await soon()
    first.cancel()
    await soon()
    box.inbox.put("kept", 1, None)
    assert await second == "kept"
    assert first.cancelled()


async def test_a_receiver_cancelled_in_the_same_turn_gives_back() -> None:
    box = Box()
    first = box.get()
    await soon()
    box.inbox.put("one", 1, None)
    box.inbox.put("two", 1, None)
    first.cancel()
    await soon()
    assert first.cancelled()
    assert [await box.inbox.get(), await box.inbox.get()] == ["one", "two"]
    assert box.charges == [1, 1]


async def test_what_is_given_back_goes_to_who_waits() -> None:
    box = Box()
    first, second = box.get(), box.get()
    await soon()
    box.inbox.put("one", 1, None)
    first.cancel()
    assert await second == "one"


async def test_receivers_cancelled_together_leave_the_order() -> None:
    box = Box()
    tasks = [box.get() for _ in range(3)]
    await soon()
    for number in range(3):
        box.inbox.put(number, 1, None)
    tasks[0].cancel()
    tasks[1].cancel()
    assert await tasks[2] == 0
    assert [await box.inbox.get(), await box.inbox.get()] == [1, 2]


async def test_who_comes_while_another_is_being_cancelled_is_served() -> None:
    box = Box()
    first, second = box.get(), box.get()
    await soon()
    box.inbox.put("one", 1, None)
    third = box.get()
    first.cancel()
    second.cancel()
    assert await third == "one"
    assert box.charges == [1]


async def test_an_end_reaches_who_waits_behind_the_last_message() -> None:
    box = Box()
    first, second, third = box.get(), box.get(), box.get()
    await soon()
    box.inbox.put("last", 1, None)
    box.inbox.finish(ClosedResourceError("peer closed"))
    first.cancel()
    assert await second == "last"
    with pytest.raises(ClosedResourceError):
        await third


async def test_an_end_comes_after_everything_else() -> None:
    box = Box()
    box.inbox.put("one", 1, None)
    box.inbox.put("two", 1, 3)
    box.inbox.finish(ClosedResourceError("peer closed"))
    assert await box.inbox.get() == "one"
    task = box.get()
    await soon()
    box.inbox.arrived(3, None)
    assert await task == "two"
    for _ in range(2):
        with pytest.raises(ClosedResourceError):
            await box.inbox.get()


async def test_a_loss_gives_up_what_waits_for_a_transfer() -> None:
    box = Box()
    box.inbox.put("one", 1, None)
    box.inbox.put("two", 1, 3)
    box.inbox.cut(PeerLostError("gone"))
    assert await box.inbox.get() == "one"
    with pytest.raises(PeerLostError):
        await box.inbox.get()


async def test_closing_drops_what_is_there_and_wakes_who_waits() -> None:
    box = Box()
    box.inbox.put("one", 1, None)
    dropped = box.inbox.close(ClosedResourceError("closed"))
    assert [entry.value for entry in dropped] == ["one"]
    with pytest.raises(ClosedResourceError):
        await box.inbox.get()
    other = Box()
    task = other.get()
    await soon()
    other.inbox.close(ClosedResourceError("closed"))
    with pytest.raises(ClosedResourceError):
        await task


async def complaints(error: Exception, *, then: Exception | None) -> list[dict[str, Any]]:
    """Leave a task behind that waits when its inbox is closed; return what the loop met."""
    met: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: met.append(context))
    box = Box()

    async def left_behind() -> None:
        try:
            await box.inbox.get()
        finally:
            if then is not None:
                raise then

    task = asyncio.create_task(left_behind())
    await soon()
    box.inbox.close(error)
    await soon()
    assert task.done()
    del task
    gc.collect()
    return met


async def test_a_task_left_behind_is_not_complained_about() -> None:
    assert await complaints(ClosedResourceError("closed"), then=None) == []


async def test_any_other_end_of_that_task_is_complained_about() -> None:
    other = KeyError("mine")
    met = await complaints(ClosedResourceError("closed"), then=other)
    assert [context["exception"] for context in met] == [other]
