"""Beginnings and ends: never entered, closed, closed while busy, wrong loop, several Fabrics."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

from fabricio import (
    BrokenResourceError,
    ClosedResourceError,
    Fabric,
    FabricioError,
    NoProviderError,
    OptionsError,
    PeerLostError,
    RegionError,
)
from fabricio.testing import check_endpoint_pair

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.loopback.conftest import OpenPair, Pair


async def test_never_entered(options: dict[str, Any]) -> None:
    fabric = Fabric(**options)
    assert "not entered" in repr(fabric)
    assert fabric.options.provider == options["provider"]
    for use in (
        lambda: fabric.address,
        lambda: fabric.attributes,
        fabric.statistics,
        fabric.listen,
    ):
        with pytest.raises(ClosedResourceError, match="async with"):
            use()
    with pytest.raises(ClosedResourceError, match="async with"):
        await fabric.connect("127.0.0.1:1")
    with pytest.raises(ClosedResourceError, match="async with"):
        await fabric.register(bytearray(8))
    await fabric.aclose()
    with pytest.raises(ClosedResourceError, match="entered once"):
        await fabric.__aenter__()


async def test_entered_once(options: dict[str, Any]) -> None:
    async with Fabric(**options) as fabric:
        with pytest.raises(ClosedResourceError, match="entered once"):
            await fabric.__aenter__()
        assert "open" in repr(fabric)
    with pytest.raises(ClosedResourceError, match="entered once"):
        await fabric.__aenter__()


async def test_use_after_close(open_pair: OpenPair) -> None:
    async with open_pair() as pair:
        near, far = await pair.register(64), await pair.register_far(64)
        listener = pair.near.listen()
        await pair.near.aclose()
        assert "closed" in repr(pair.near)
        uses: list[Callable[[], Any]] = [
            lambda: pair.near.address,
            pair.near.statistics,
            pair.near.listen,
            lambda: pair.a.write(near.region, far.remote),
            lambda: pair.a.read_pages(near.region, [0], far.remote, [0], page_bytes=8),
        ]
        for use in uses:
            with pytest.raises(ClosedResourceError):
                use()
        waits: list[Callable[[], Awaitable[Any]]] = [
            lambda: pair.near.connect(pair.far.address),
            lambda: pair.near.register(bytearray(8)),
            lambda: pair.a.send(1),
            pair.a.recv,
            pair.a.flush,
            listener.__aenter__,
        ]
        for wait in waits:
            with pytest.raises(ClosedResourceError):
                await wait()
        with pytest.raises((ClosedResourceError, RegionError)):
            near.region.share("r")
        assert pair.a.closed
        assert [message async for message in pair.a] == []
        # Closing again is nothing.
        await pair.near.aclose()
        await pair.a.aclose()
        await near.region.deregister()
        near.array.resize(128, refcheck=False)


async def test_closing_by_many_at_once(options: dict[str, Any]) -> None:
    fabric = await Fabric(**options).__aenter__()
    await asyncio.gather(*(fabric.aclose() for _ in range(5)))


async def test_an_endpoint_after_its_end(pair: Pair) -> None:
    near, far = await pair.register(64), await pair.register_far(64)
    a, b = await pair.connect()
    await a.aclose()
    await a.aclose()
    for wait in (lambda: a.send(1), a.recv, a.flush):
        with pytest.raises(ClosedResourceError, match="connect again"):
            await wait()
    with pytest.raises(ClosedResourceError):
        a.write(near.region, far.remote)
    with pytest.raises(ClosedResourceError):
        await b.recv()
    await b.aclose()
    await pair.works()


@pytest.mark.parametrize("closer", ["endpoint", "peer", "fabric", "far fabric"])
async def test_closing_with_transfers_in_flight(open_slow_pair: OpenPair, closer: str) -> None:
    async with open_slow_pair() as pair:
        endless = await pair.endless_write()
        transfers = [endless.write(notify=number) for number in range(2)]
        receiving = asyncio.create_task(pair.b.recv())
        await pair.a.flush()
        assert not any(transfer.done() for transfer in transfers)
        close = {
            "endpoint": pair.a.aclose,
            "peer": pair.b.aclose,
            "fabric": pair.near.aclose,
            "far fabric": pair.far.aclose,
        }[closer]
        await close()
        for transfer in transfers:
            with pytest.raises((ClosedResourceError, PeerLostError)):
                await transfer
            assert transfer.done()
            assert transfer.pages_done < endless.page_count
        with pytest.raises(FabricioError):
            await receiving
        if closer in ("endpoint", "peer"):
            await pair.a.aclose()
            await pair.b.aclose()
            await check_endpoint_pair(*await pair.connect(), page_count=4)
        # Nobody looks at the memory any more.
        await endless.page.region.deregister()
        endless.page.array.resize(128, refcheck=False)


async def test_a_cancelled_close_frees_everything(options: dict[str, Any]) -> None:
    fabric = await Fabric(**options).__aenter__()
    closing = asyncio.create_task(fabric.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    with pytest.raises(ClosedResourceError):
        fabric.statistics()


async def test_a_cancelled_open_frees_everything(options: dict[str, Any]) -> None:
    for turns in range(4):
        fabric = Fabric(**options)
        opening = asyncio.create_task(fabric.__aenter__())
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await fabric.aclose()


async def test_a_cancelled_register_lets_the_memory_go(pair: Pair) -> None:
    memory = bytearray(64)
    registering = asyncio.create_task(pair.near.register(memory))
    await asyncio.sleep(0)
    registering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await registering
    # Registering comes after deregistering in the engine's queue.
    await (await pair.near.register(bytearray(8))).deregister()
    memory.append(1)
    await pair.works()


async def test_an_error_in_the_block_still_closes(options: dict[str, Any]) -> None:
    with pytest.raises(ZeroDivisionError):
        async with Fabric(**options) as fabric:
            1 / 0  # noqa: B018  (any error)
    with pytest.raises(ClosedResourceError):
        fabric.statistics()


async def test_a_dropped_fabric_says_so(options: dict[str, Any]) -> None:
    fabric = await Fabric(**options).__aenter__()
    region = await fabric.register(memory := bytearray(64))
    with pytest.warns(ResourceWarning, match="dropped without aclose"):
        del fabric
    gc.collect()
    # The engine ended all the same, and let go of the memory.
    with pytest.raises(FabricioError):
        region.share("r")
    memory.append(1)


async def test_several_fabrics_in_one_process(options: dict[str, Any]) -> None:
    fabrics = [await Fabric(**options).__aenter__() for _ in range(4)]
    assert len({str(fabric.address) for fabric in fabrics}) == 4
    async with fabrics[0].listen() as listener:
        for fabric in fabrics[1:]:
            a = await fabric.connect(fabrics[0].address)
            await check_endpoint_pair(a, await listener.accept(), page_count=4)
    await fabrics[1].aclose()
    async with fabrics[2].listen() as listener:
        a = await fabrics[3].connect(fabrics[2].address)
        await check_endpoint_pair(a, await listener.accept(), page_count=4)
    await asyncio.gather(*(fabric.aclose() for fabric in fabrics))


async def test_another_thread_is_refused(pair: Pair) -> None:
    near, far = await pair.register(64), await pair.register_far(64)
    running = pair.a.write(near.region, far.remote)
    calls: list[Callable[[], Any]] = [
        lambda: pair.a.write(near.region, far.remote),
        lambda: pair.near.listen(),
        running.cancel,
        *(
            lambda wait=wait: asyncio.run(wait())
            for wait in (
                lambda: pair.a.send(1),
                pair.a.recv,
                pair.a.flush,
                pair.a.aclose,
                near.region.deregister,
                lambda: pair.near.register(bytearray(8)),
                lambda: pair.near.connect(pair.far.address),
                pair.near.aclose,
            )
        ),
    ]
    refusals: list[str] = []

    def use() -> None:
        for call in calls:
            try:
                call()
            except FabricioError as error:
                refusals.append(str(error))

    await asyncio.to_thread(use)
    assert len(refusals) == len(calls)
    assert all("another thread" in text for text in refusals)
    assert await running == 64
    await pair.works()


def test_another_loop_is_refused(options: dict[str, Any]) -> None:
    fabric = Fabric(**options)
    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(fabric.__aenter__())
        first.run(asyncio.sleep(0))
        for wait in (lambda: fabric.register(bytearray(8)), fabric.aclose):
            with pytest.raises(FabricioError, match="another event loop"):
                second.run(wait())
        first.run(fabric.aclose())
        second.run(fabric.aclose())  # it is closed: nothing to refuse


@pytest.mark.parametrize("name", ["nonsense", "udp", "tcp;ofi_nonsense"])
async def test_a_provider_that_is_not_there(name: str) -> None:
    fabric = Fabric(provider=name)
    with pytest.raises(NoProviderError, match="fabricio info"):
        await fabric.__aenter__()
    await fabric.aclose()


async def test_the_provider_of_the_environment(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = {"source": options["source"]} if "source" in options else {}
    monkeypatch.setenv("FABRICIO_PROVIDER", options["provider"])
    async with Fabric(**source) as fabric:
        assert fabric.attributes.provider == options["provider"]
    monkeypatch.setenv("FABRICIO_PROVIDER", "nonsense")
    with pytest.raises(NoProviderError, match="nonsense"):
        await Fabric().__aenter__()
    async with Fabric(**options):
        pass  # an argument comes before the environment


async def test_a_source_address_of_nobody(provider: str) -> None:
    if provider != "tcp":
        pytest.skip("this provider has no source addresses of its own")
    with pytest.raises(FabricioError):
        await Fabric(provider=provider, source="203.0.113.7").__aenter__()
    with pytest.raises(OptionsError):
        Fabric(provider=provider, source="")


async def test_a_callback_that_breaks_the_engine(options: dict[str, Any]) -> None:
    async with Fabric(**options) as fabric:
        region = await fabric.register(memory := bytearray(8))
        engine = region.engine
        engine.fail(cause := RuntimeError("a bug"))
        with pytest.raises(BrokenResourceError, match="a bug") as caught:
            await fabric.register(bytearray(8))
        assert caught.value.__cause__ is cause
        await region.deregister()
        with pytest.raises(BufferError):
            memory.append(1)  # the engine may still use it
    memory.append(1)


async def test_waiting_for_the_end_of_an_endpoint(pair: Pair) -> None:
    waiting = [asyncio.ensure_future(end.closed) for end in (pair.a, pair.a, pair.b)]
    given_up = asyncio.ensure_future(pair.a.closed)
    await asyncio.sleep(0)
    given_up.cancel()
    await pair.a.send("not taken by who waits")
    assert await pair.b.recv() == "not taken by who waits"
    assert not any(task.done() for task in waiting)
    await pair.a.aclose()
    reasons = [str(await task) for task in waiting]
    assert reasons == [
        "this endpoint is closed: connect again",
        "this endpoint is closed: connect again",
        "the peer has closed this endpoint",
    ]
    assert given_up.cancelled()
    assert isinstance(await pair.a.closed, ClosedResourceError)  # at once
