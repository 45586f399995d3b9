"""Every public operation, cancelled at every moment: nothing is lost, left over or broken.

A case runs one operation again and again. Each time it is cancelled at a later moment, until it is
over first; see `Interruption`. After each time `World.check` looks for what is left over, and uses
the connection in both directions. An operation without a case fails the last test here.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fabricio
import fabricio.testing
from fabricio import (
    ClosedResourceError,
    CompletionError,
    Fabric,
    RegionError,
    RemoteTransferError,
)
from fabricio.testing import check_endpoint_pair
from tests.loopback.conftest import SLOW
from tests.loopback.interruption import Interruption, World, at_every_moment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

    from fabricio import Endpoint, MemoryRegion, Transfer
    from tests.loopback.conftest import OpenPair

    Case = Callable[[World, Interruption], Awaitable[None]]

# Messages of many frames, a window that one of them fills, and transfers that take a while.
WINDOW_BYTES, MESSAGE_BYTES, FRAME_BYTES = 65536, 40000, 4096
SMALL: dict[str, Any] = {
    **SLOW,
    "receive_window_bytes": WINDOW_BYTES,
    "max_message_bytes": MESSAGE_BYTES + 64,
    "frame_bytes": FRAME_BYTES,
}
PAGES, PAGE_BYTES = 64, 512

CASES: list[Case] = []
COVERED: set[str] = set()


def covers(*names: str) -> Callable[[Case], Case]:
    """Make a function a case of the operations named."""

    def register(case: Case) -> Case:
        CASES.append(case)
        COVERED.update(names)
        return case

    return register


# --- Fabric -----------------------------------------------------------------------------------


@covers("Fabric.__aenter__", "Fabric.__aexit__")
async def fabric_block(world: World, interrupted: Interruption) -> None:
    fabric = Fabric(world.pair.near.options)
    memory = bytearray(64)

    async def block() -> None:
        async with fabric:
            await fabric.register(memory)

    await interrupted(block())
    if not interrupted.begun:
        await fabric.aclose()
    await _is_closed(fabric)
    memory.append(1)


@covers("Fabric.aclose")
async def fabric_aclose(world: World, interrupted: Interruption) -> None:
    async with Fabric(world.pair.near.options) as fabric:
        a = await fabric.connect(world.pair.far.address)
        b = await world.listener.accept()
        async with fabric.listen("127.0.0.1:0"):
            region = await fabric.register(memory := bytearray(64))
            await a.send(region.share("rw"))
            await b.recv()
            await a.send("the last word")
            receiving = asyncio.create_task(a.recv())
            outcome = await interrupted(fabric.aclose())
            if not interrupted.begun:
                await fabric.aclose()
    await _is_closed(fabric)
    memory.append(1)
    with pytest.raises(ClosedResourceError):
        await receiving
    if not outcome.cancelled:
        assert await b.recv() == "the last word"
    await b.aclose()


async def _is_closed(fabric: Fabric) -> None:
    with pytest.raises(ClosedResourceError):
        fabric.statistics()
    await fabric.aclose()


@covers("Fabric.connect")
async def connect_by_address(world: World, interrupted: Interruption) -> None:
    await _connect(world, interrupted, str(world.pair.far.address))


@covers("Fabric.connect")
async def connect_by_host_port(world: World, interrupted: Interruption) -> None:
    assert world.listener.host_port is not None
    await _connect(world, interrupted, world.listener.host_port)


@covers("Fabric.connect")
async def connect_by_name(world: World, interrupted: Interruption) -> None:
    assert world.listener.host_port is not None
    port = world.listener.host_port.rpartition(":")[2]
    await _connect(world, interrupted, f"localhost:{port}")


async def _connect(world: World, interrupted: Interruption, target: str) -> None:
    outcome = await interrupted(world.pair.near.connect(target))
    # Of an attempt that was given up nobody hears: the next to be accepted is the next attempt.
    a = await world.pair.near.connect(target) if outcome.cancelled else outcome.value
    b = await world.listener.accept()
    await world.check_endpoints(a, b)
    await _close(a, b)


@covers("Fabric.register", "MemoryRegion.register")
async def register(world: World, interrupted: Interruption) -> None:
    memory = bytearray(64)
    outcome = await interrupted(world.pair.near.register(memory))
    if outcome.cancelled:
        await world.settle()
    else:
        with pytest.raises(BufferError):
            memory.append(1)
        await outcome.value.deregister()
    memory.append(1)


# --- Listener ---------------------------------------------------------------------------------


@covers("Fabric.listen", "Listener.__aenter__", "Listener.__aexit__")
async def listen(world: World, interrupted: Interruption) -> None:
    await _listen(world, interrupted, None)


@covers("Fabric.listen", "Listener.__aenter__", "Listener.__aexit__")
async def listen_with_rendezvous(world: World, interrupted: Interruption) -> None:
    await _listen(world, interrupted, "127.0.0.1:0")


@covers("Fabric.listen", "Listener.__aenter__", "Listener.__aexit__")
async def listen_by_name(world: World, interrupted: Interruption) -> None:
    await _listen(world, interrupted, "localhost:0")


async def _listen(world: World, interrupted: Interruption, host_port: str | None) -> None:
    listener = world.pair.near.listen(host_port)

    async def block() -> None:
        async with listener:
            await asyncio.sleep(0)

    await interrupted(block())
    if interrupted.begun:
        with pytest.raises(ClosedResourceError):
            await listener.accept()
    assert listener.host_port is None


@covers("Listener.aclose")
async def listener_aclose(world: World, interrupted: Interruption) -> None:
    async with world.pair.near.listen("127.0.0.1:0") as listener:
        # Of two peers that have come, nobody has taken the second.
        connected = [await world.pair.far.connect(world.pair.near.address) for _ in range(2)]
        for each in connected:
            await each.flush()  # answered: the listener has it
        b = await listener.accept()
        await interrupted(listener.aclose())
    await world.check_endpoints(connected[0], b)
    await _close(b, *connected)


@covers("Listener.accept")
async def accept(world: World, interrupted: Interruption) -> None:
    connecting = asyncio.create_task(world.pair.near.connect(world.pair.far.address))
    outcome = await interrupted(world.listener.accept())
    b = await world.listener.accept() if outcome.cancelled else outcome.value
    await world.check_endpoints(await connecting, b)
    await _close(b, await connecting)


@covers("Listener.__anext__")
async def accept_by_iterating(world: World, interrupted: Interruption) -> None:
    connecting = asyncio.create_task(world.pair.near.connect(world.pair.far.address))
    outcome = await interrupted(anext(world.listener))
    b = await anext(world.listener) if outcome.cancelled else outcome.value
    await world.check_endpoints(await connecting, b)
    await _close(b, await connecting)


# --- Endpoint: messages -----------------------------------------------------------------------


@covers("Endpoint.send")
async def send_small(world: World, interrupted: Interruption) -> None:
    await _send(world, interrupted, {"number": next(world.numbers)}, wait=False)


@covers("Endpoint.send")
async def send_large(world: World, interrupted: Interruption) -> None:
    await _send(world, interrupted, _large(world), wait=False)


@covers("Endpoint.send")
async def send_that_waits_for_the_window(world: World, interrupted: Interruption) -> None:
    await _send(world, interrupted, _large(world), wait=True)


async def _send(world: World, interrupted: Interruption, message: object, *, wait: bool) -> None:
    a, b = world.pair.a, world.pair.b
    before = _large(world)
    sending = asyncio.create_task(a.send(before))
    await asyncio.sleep(0)
    receiving = asyncio.create_task(_receive_until(b, "the end"))
    if not wait:
        await sending
    outcome = await interrupted(a.send(message))
    await a.send("the end")
    received = await receiving
    await sending
    # Whole or not at all, and in order.
    expected = [before, message]
    assert received == expected or (outcome.cancelled and received == expected[:1])


@covers("Endpoint.recv")
async def recv_small(world: World, interrupted: Interruption) -> None:
    await _recv(world, interrupted, world.pair.b.recv, [next(world.numbers) for _ in range(3)])


@covers("Endpoint.recv")
async def recv_large(world: World, interrupted: Interruption) -> None:
    await _recv(world, interrupted, world.pair.b.recv, [_large(world) for _ in range(3)])


@covers("Endpoint.__anext__")
async def recv_by_iterating(world: World, interrupted: Interruption) -> None:
    iterator = world.pair.b.__anext__
    await _recv(world, interrupted, iterator, [next(world.numbers) for _ in range(3)])


async def _recv(
    world: World, interrupted: Interruption, take: Callable[[], Any], messages: list[Any]
) -> None:
    async def send_all() -> None:
        for message in messages:
            await world.pair.a.send(message)

    sending = asyncio.create_task(send_all())
    outcome = await interrupted(take())
    received = [] if outcome.cancelled else [outcome.value]
    while len(received) < len(messages):
        received.append(await world.pair.b.recv())
    assert received == messages
    await sending


@covers("Endpoint.recv")
async def recv_by_many(world: World, interrupted: Interruption) -> None:
    """Of several tasks that wait, the first is cancelled, and another one as soon as it hears."""
    a, b = world.pair.a, world.pair.b
    messages = [next(world.numbers) for _ in range(8)]
    received: list[Any] = []

    async def take(then: Callable[[], object]) -> None:
        try:
            received.append(await b.recv())
        finally:
            then()

    taking: list[asyncio.Task[None]] = []

    async def first() -> None:
        await take(lambda: taking[0].cancel())

    async def others() -> None:
        taking.extend(asyncio.create_task(take(lambda: None)) for _ in range(3))
        for message in messages:
            await a.send(message)

    other = asyncio.create_task(others())
    await interrupted(first())
    await other
    await asyncio.wait(taking)
    while len(received) < len(messages):
        received.append(await b.recv())
    assert received == messages


@covers("Endpoint.flush")
async def flush(world: World, interrupted: Interruption) -> None:
    a, b = world.pair.a, world.pair.b
    messages = [next(world.numbers), _large(world)]
    for message in messages:
        await a.send(message)
    await interrupted(a.flush())
    assert [await b.recv() for _ in messages] == messages


def _large(world: World) -> bytes:
    return next(world.numbers).to_bytes(4, "big") * (MESSAGE_BYTES // 4)


async def _receive_until(endpoint: Endpoint, last: object) -> list[object]:
    received = []
    while (message := await endpoint.recv()) != last:
        received.append(message)
    return received


# --- Endpoint: transfers ----------------------------------------------------------------------


@covers("Endpoint.write", "Transfer.__await__")
async def write(world: World, interrupted: Interruption) -> None:
    await _transfer(world, interrupted, read=False, pages=False)


@covers("Endpoint.read", "Transfer.__await__")
async def read(world: World, interrupted: Interruption) -> None:
    await _transfer(world, interrupted, read=True, pages=False)


@covers("Endpoint.write_pages", "Transfer.__await__")
async def write_pages(world: World, interrupted: Interruption) -> None:
    await _transfer(world, interrupted, read=False, pages=True)


@covers("Endpoint.read_pages", "Transfer.__await__")
async def read_pages(world: World, interrupted: Interruption) -> None:
    await _transfer(world, interrupted, read=True, pages=True)


async def _transfer(world: World, interrupted: Interruption, *, read: bool, pages: bool) -> None:
    """Its outcome, what the peer is told of it and what memory holds agree; memory is quiet."""
    pair = world.pair
    near, far = await pair.register(PAGES * PAGE_BYTES), await pair.register_far(PAGES * PAGE_BYTES)
    source, target = (far, near) if read else (near, far)
    source.array[:] = np.random.default_rng(next(world.numbers)).integers(0, 256, near.array.size)
    target.array[:] = 0
    number = next(world.numbers)
    order = np.random.default_rng(number).permutation(PAGES)
    transfer: Transfer
    if pages:
        move = pair.a.read_pages if read else pair.a.write_pages
        there = range(PAGES)
        transfer = move(near.region, order, far.remote, there, page_bytes=PAGE_BYTES, notify=number)
    else:
        move_all = pair.a.read if read else pair.a.write
        transfer = move_all(near.region, far.remote, notify=number)

    async def outcome_of() -> int:
        return await transfer

    cancelled = (await interrupted(outcome_of())).cancelled
    assert transfer.done() or not interrupted.begun
    left = near.array.copy()
    try:
        assert await transfer == near.array.size
    except asyncio.CancelledError:
        assert cancelled
        # It may have been too late: all was posted. Then the peer got all of it.
        whole = await _notification(pair.b) == number
        await world.check_endpoints(pair.a, pair.b)
        # The memory was quiet here: what was in it stays.
        assert (near.array == left).all()
    else:
        whole = await _notification(pair.b) == number
        assert whole
    if whole:
        near_pages = near.array.reshape(PAGES, PAGE_BYTES)
        far_pages = far.array.reshape(PAGES, PAGE_BYTES)
        assert ((near_pages[order] if pages else near_pages) == far_pages).all()
    await near.region.deregister()
    await far.region.deregister()


async def _notification(endpoint: Endpoint) -> object:
    try:
        return await endpoint.recv()
    except RemoteTransferError:
        return None


# --- Endpoint and region: ends ----------------------------------------------------------------


@covers("Endpoint.aclose")
async def endpoint_aclose(world: World, interrupted: Interruption) -> None:
    a, b = await world.connect()
    await _end(world, interrupted, a, b, a.aclose)


@covers("Endpoint.__aenter__", "Endpoint.__aexit__")
async def endpoint_block(world: World, interrupted: Interruption) -> None:
    a, b = await world.connect()

    async def block() -> None:
        async with a as entered:
            assert entered is a

    await _end(world, interrupted, a, b, block)


async def _end(
    world: World,
    interrupted: Interruption,
    a: Endpoint,
    b: Endpoint,
    end: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """With something unread on both sides, and a transfer of the peer under way."""
    near, far = np.zeros((2, PAGES * PAGE_BYTES), np.uint8)
    lent, taken = await world.pair.near.register(near), await world.pair.far.register(far)
    await a.send(lent.share("rw"))
    remote: Any = await b.recv()
    running = b.read(taken, remote)
    await b.send(_large(world))
    messages = [next(world.numbers), _large(world)]
    for message in messages:
        await a.send(message)
    outcome = await interrupted(end())
    if not interrupted.begun:
        assert not a.closed
        await a.aclose()
    for use in (lambda: a.send(1), a.recv, a.flush):
        with pytest.raises(ClosedResourceError):
            await use()
    assert a.closed
    received = [message async for message in b]
    assert received == messages[: len(received)]
    assert outcome.cancelled or received == messages
    with suppress(ClosedResourceError):
        assert await running == far.size
    await _close(b, a)
    await lent.deregister()
    await taken.deregister()


@covers("MemoryRegion.deregister")
async def deregister(world: World, interrupted: Interruption) -> None:
    region = await world.pair.near.register(memory := bytearray(64))
    await _deregister(world, interrupted, region, memory, region.deregister)


@covers("MemoryRegion.__aenter__", "MemoryRegion.__aexit__")
async def region_block(world: World, interrupted: Interruption) -> None:
    region = await world.pair.near.register(memory := bytearray(64))

    async def block() -> None:
        async with region as entered:
            assert entered is region

    await _deregister(world, interrupted, region, memory, block)


async def _deregister(
    world: World,
    interrupted: Interruption,
    region: MemoryRegion,
    memory: bytearray,
    end: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    await world.pair.a.send(region.share("rw"))
    remote: Any = await world.pair.b.recv()
    outcome = await interrupted(end())
    if not interrupted.begun:
        await region.deregister()
    assert region.closed
    if outcome.cancelled:
        await world.settle()
    memory.append(1)
    other = await world.pair.far.register(bytearray(64))
    with pytest.raises(RegionError):
        world.pair.b.read(other, remote)
    await other.deregister()


@covers("MemoryRegion.revoke")
async def revoke(world: World, interrupted: Interruption) -> None:
    region = await world.pair.near.register(memory := bytearray(64))
    await world.pair.a.send(region.share("rw"))
    await world.pair.b.recv()
    await interrupted(region.revoke())
    await world.pair.a.send(region.share("r"))
    remote: Any = await world.pair.b.recv()
    other = await world.pair.far.register(bytearray(64))
    assert await world.pair.b.read(other, remote) == 64
    await region.deregister()
    memory.append(1)
    await other.deregister()


@covers("MemoryRegion.drained")
async def region_drained(world: World, interrupted: Interruption) -> None:
    region = await world.pair.near.register(memory := bytearray(64))
    closing = asyncio.create_task(region.deregister())
    await interrupted(region.drained())
    await closing
    await region.drained()
    memory.append(1)


@covers("Transfer.drained", "CompletionError.drained")
async def transfer_drained(world: World, interrupted: Interruption) -> None:
    pair = world.pair
    near, far = await pair.register(PAGES * PAGE_BYTES), await pair.register_far(PAGES * PAGE_BYTES)
    transfer = pair.a.write(near.region, far.remote)
    error = CompletionError()
    error._drain = transfer.drained
    await interrupted(error.drained())
    assert await transfer == near.array.size  # to wait for its memory is not to wait for it
    await transfer.drained()
    await near.region.deregister()
    await far.region.deregister()


@covers("Closure.__await__")
async def closed(world: World, interrupted: Interruption) -> None:
    a, b = await world.connect()

    async def reason() -> Exception:
        return await a.closed

    closing = asyncio.create_task(b.aclose())
    await interrupted(reason())
    assert isinstance(await a.closed, ClosedResourceError)
    await closing
    await _close(a)


# --- for tests --------------------------------------------------------------------------------


@covers("testing.check_endpoint_pair")
async def conformance(world: World, interrupted: Interruption) -> None:
    a, b = await world.connect()
    await interrupted(check_endpoint_pair(a, b, page_count=4, page_bytes=64, message_bytes=5000))
    await _close(a, b)


async def _close(*endpoints: Endpoint) -> None:
    await asyncio.gather(*(endpoint.aclose() for endpoint in endpoints))


# --- all of them ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [pytest.param(each, id=each.__name__) for each in CASES])
async def test_at_every_moment(open_pair: OpenPair, case: Case) -> None:
    async with open_pair(**SMALL) as pair, pair.far.listen("127.0.0.1:0") as listener:
        world = await World.make(pair, listener)

        async def attempt(interruption: Interruption) -> None:
            await case(world, interruption)
            await world.check()

        await at_every_moment(attempt)
        await pair.works()


def test_every_public_operation_has_a_case() -> None:
    operations = set(_operations())
    assert operations - COVERED == set(), "write a case of each of these"
    assert COVERED - operations == set(), "these are no operations any more"


def _operations() -> Iterator[str]:
    """Name what can be awaited, iterated over or entered, asynchronously, of the public names."""
    public = {name: getattr(fabricio, name) for name in fabricio.__all__}
    awaited = {name for name, value in public.items() if _is_awaited(value)}
    for name in fabricio.testing.__all__:
        public[f"testing.{name}"] = getattr(fabricio.testing, name)
    for name, value in public.items():
        if inspect.iscoroutinefunction(value):
            yield name
        for attribute, member in vars(value).items() if inspect.isclass(value) else ():
            function = getattr(member, "__func__", member)
            waits = attribute == "__await__" or inspect.iscoroutinefunction(function)
            waits = waits or inspect.isasyncgenfunction(function)
            if inspect.isfunction(function):
                waits = waits or function.__annotations__.get("return") in awaited
            if waits and (attribute.startswith("__") or not attribute.startswith("_")):
                yield f"{name}.{attribute}"


def _is_awaited(value: object) -> bool:
    """Whether what an instance is for is to be awaited, or entered, after a plain call."""
    return hasattr(value, "__await__") or hasattr(value, "__aenter__")
