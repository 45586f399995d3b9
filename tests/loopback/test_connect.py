"""Addresses, connecting by each kind of them, and listeners."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
import socket
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from fabricio import (
    Address,
    ClosedResourceError,
    Endpoint,
    Fabric,
    Listener,
    OptionsError,
    PeerUnreachableError,
)
from fabricio.rendezvous import serve_address
from fabricio.testing import check_endpoint_pair

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricio.handshake import ForeignHello, Hello
    from tests.loopback.conftest import OpenPair, Pair

GARBAGE = (
    "",
    "nonsense",
    "fabricio:1:tcp:00:AA",
    "fabricio:9:tcp:" + 32 * "0" + ":AA",
    "host:99999",
)


async def meet_listener(near: Fabric, far: Fabric, listener: Listener) -> None:
    """Connect to a Fabric that listens already, and part."""
    async with await near.connect(far.address), await listener.accept():
        pass


async def meet(near: Fabric, target: Address | str, listening: Fabric) -> None:
    """Connect to a Fabric that listens already, and check the pair."""
    async with listening.listen() as listener:
        a = await near.connect(target)
        b = await listener.accept()
        assert (a.peer.incarnation, b.peer.incarnation) == (
            listening.address.incarnation,
            near.address.incarnation,
        )
        await check_endpoint_pair(a, b, page_count=4)
        await a.aclose()
        await b.aclose()


async def test_an_address_is_printed_and_parsed(pair: Pair) -> None:
    for fabric in (pair.near, pair.far):
        text = str(fabric.address)
        assert Address.parse(text) == fabric.address
        assert text.split() == [text]
        assert fabric.address.provider == fabric.attributes.provider
    assert pair.near.address != pair.far.address
    assert pair.a.peer == pair.far.address


@pytest.mark.parametrize("form", [lambda address: address, str], ids=["address", "text"])
async def test_connect_by_address(
    options: dict[str, Any], form: Callable[[Address], Address | str]
) -> None:
    async with Fabric(**options) as near, Fabric(**options) as far:
        await meet(near, form(far.address), far)
        await meet(far, form(near.address), near)


async def test_connect_by_host_and_port(options: dict[str, Any]) -> None:
    async with Fabric(**options) as near, Fabric(**options) as far:
        async with far.listen("127.0.0.1:0") as listener:
            assert listener.host_port is not None
            assert listener.host_port.startswith("127.0.0.1:")
            a = await near.connect(listener.host_port)
            b = await listener.accept()
            await check_endpoint_pair(a, b, page_count=4)
            # In-band connects reach the same listener.
            in_band = await near.connect(str(far.address))
            await check_endpoint_pair(in_band, await listener.accept(), page_count=4)
        assert listener.host_port is None


async def test_a_listener_is_an_iterator_of_endpoints(options: dict[str, Any]) -> None:
    async with Fabric(**options) as near, Fabric(**options) as far:
        served: list[object] = []

        async def serve(endpoint: Endpoint) -> None:
            async with endpoint:
                served.extend([message async for message in endpoint])

        async with far.listen() as listener, asyncio.TaskGroup() as group:

            async def accept() -> None:
                async for endpoint in listener:
                    group.create_task(serve(endpoint))

            accepting = group.create_task(accept())
            for number in range(3):
                async with await near.connect(far.address) as endpoint:
                    await endpoint.send(number)
                    await endpoint.flush()
            await listener.aclose()
            await accepting
        assert sorted(served, key=repr) == [0, 1, 2]


async def test_the_first_of_two_listeners_gets_the_peers(options: dict[str, Any]) -> None:
    async with (
        Fabric(**options) as near,
        Fabric(**options) as far,
        far.listen() as second,
        far.listen() as third,
    ):
        a = await near.connect(far.address)
        await check_endpoint_pair(a, await second.accept(), page_count=4)
        await second.aclose()
        a = await near.connect(far.address)
        await check_endpoint_pair(a, await third.accept(), page_count=4)


async def test_a_connect_waits_for_the_listener(options: dict[str, Any]) -> None:
    async with Fabric(**options) as near, Fabric(**options) as far:
        connecting = asyncio.create_task(near.connect(far.address))
        await near.register(bytearray(1))  # that long the hello has been out
        assert not connecting.done()
        async with far.listen() as listener:
            b = await listener.accept()
            await check_endpoint_pair(await connecting, b, page_count=4)


async def test_many_connections_between_the_same_two(options: dict[str, Any]) -> None:
    async with Fabric(**options) as near, Fabric(**options) as far, far.listen() as listener:
        ends = await asyncio.gather(*(near.connect(far.address) for _ in range(16)))
        others = [await listener.accept() for _ in ends]
        for number, end in enumerate(ends):
            await end.send(number)
        numbers = [await other.recv() for other in others]
        assert sorted(numbers, key=repr) == sorted(range(16), key=repr)
        await asyncio.gather(
            *(
                check_endpoint_pair(ends[int(str(number))], other, page_count=4)
                for number, other in zip(numbers, others, strict=True)
            )
        )


async def test_64_clients_at_once(options: dict[str, Any]) -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(Fabric(**options))
        listener = await stack.enter_async_context(server.listen())
        opened = (stack.enter_async_context(Fabric(**options)) for _ in range(64))
        clients = await asyncio.gather(*opened)
        connecting = [asyncio.create_task(client.connect(server.address)) for client in clients]
        ends = [await listener.accept() for _ in clients]
        await asyncio.gather(*(end.send(number) for number, end in enumerate(ends)))
        received = [await (await task).recv() for task in connecting]
        assert sorted(received, key=repr) == sorted(range(64), key=repr)


async def test_a_fabric_connects_to_itself(options: dict[str, Any]) -> None:
    async with Fabric(**options) as fabric:
        await meet(fabric, fabric.address, fabric)


@pytest.mark.parametrize("text", GARBAGE)
async def test_garbage_is_no_address(pair: Pair, text: str) -> None:
    with pytest.raises(OptionsError, match="address"):
        await pair.near.connect(text)
    await pair.works()


@pytest.mark.parametrize("text", ["", "nonsense", "1.2.3.4", "host:", "host:70000", ":1"])
async def test_listening_needs_host_and_port(pair: Pair, text: str) -> None:
    with pytest.raises(OptionsError, match="host:port"):
        pair.far.listen(text)
    await pair.works()


async def test_an_address_of_another_provider(pair: Pair) -> None:
    other = dataclasses.replace(pair.far.address, provider="udp;ofi_rxd")
    with pytest.raises(OptionsError, match="udp;ofi_rxd") as caught:
        await pair.near.connect(other)
    assert pair.near.attributes.provider in str(caught.value)
    await pair.works()


async def test_nobody_listens(open_pair: OpenPair) -> None:
    async with open_pair(connect_timeout_s=0.2) as pair:
        with pytest.raises(PeerUnreachableError, match=r"connect_timeout_s=0\.2"):
            await pair.near.connect(pair.far.address)
        await pair.works()


async def test_nobody_is_there(options: dict[str, Any], open_pair: OpenPair) -> None:
    async with Fabric(**options) as gone:
        address = gone.address
    async with open_pair(connect_timeout_s=0.2) as pair:
        with pytest.raises(PeerUnreachableError):
            await pair.near.connect(address)
        await pair.works()


async def test_another_incarnation_answers(pair: Pair) -> None:
    stale = dataclasses.replace(pair.far.address, incarnation=secrets.token_bytes(16))
    async with pair.far.listen():
        with pytest.raises(PeerUnreachableError, match="another process"):
            await pair.near.connect(stale)
    await pair.works()


async def test_a_rendezvous_that_hangs_up(open_pair: OpenPair) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, open_pair(connect_timeout_s=0.2) as pair:
        with pytest.raises(PeerUnreachableError, match="without an address"):
            await pair.near.connect(f"127.0.0.1:{port}")
        await pair.works()


@pytest.mark.parametrize(
    "line", [b"HTTP/1.1 400 Bad Request\r\n", bytes(range(11)), b"x" * (1 << 20)], ids=len
)
async def test_a_rendezvous_that_is_none(pair: Pair, line: bytes) -> None:
    def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(line)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(OptionsError):
            await pair.near.connect(f"127.0.0.1:{port}")
    await pair.works()


async def test_a_listener_is_opened_once(pair: Pair) -> None:
    listener = pair.far.listen()
    async with listener:
        with pytest.raises(ClosedResourceError, match="opened once"):
            await listener.__aenter__()
    with pytest.raises(ClosedResourceError, match="closed"):
        await listener.accept()
    with pytest.raises(ClosedResourceError, match="opened once"):
        await listener.__aenter__()
    await pair.works()


async def test_a_listener_opens_when_it_is_asked(options: dict[str, Any]) -> None:
    async with Fabric(**options) as near, Fabric(**options) as far:
        connecting = asyncio.create_task(near.connect(far.address))
        async for endpoint in far.listen():
            await check_endpoint_pair(await connecting, endpoint, page_count=4)
            break


async def test_a_listener_opens_once_for_all_that_ask(options: dict[str, Any]) -> None:
    async with Fabric(**options) as near, Fabric(**options) as far:
        listener = far.listen("127.0.0.1:0")
        accepting = [asyncio.create_task(listener.accept()) for _ in range(3)]
        ends = [await near.connect(far.address) for _ in accepting]
        assert listener.host_port is not None
        ends.append(await near.connect(listener.host_port))
        async with await listener.accept():
            for accepted in await asyncio.gather(*accepting):
                await accepted.aclose()
        with pytest.raises(ClosedResourceError, match="opened once"):
            await listener.__aenter__()
    assert listener.host_port is None
    assert [endpoint async for endpoint in listener] == []


async def test_a_port_that_cannot_be_had_is_no_end_of_the_peers(options: dict[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        async with Fabric(**options) as fabric:
            with pytest.raises(OSError, match="in use"):
                async for _ in fabric.listen(f"127.0.0.1:{taken.getsockname()[1]}"):
                    pass


@pytest.mark.parametrize("closes", ["listener", "fabric"])
async def test_closing_while_a_listener_opens(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, closes: str
) -> None:
    bound, closed = asyncio.Event(), asyncio.Event()
    servers: list[asyncio.Server] = []

    async def serve(host: str, port: int, address: Address) -> asyncio.Server:
        servers.append(await serve_address(host, port, address))
        bound.set()
        await closed.wait()
        return servers[0]

    monkeypatch.setattr("fabricio.listener.serve_address", serve)
    async with Fabric(**options) as fabric:
        listener = fabric.listen("127.0.0.1:0")
        accepting = asyncio.create_task(listener.accept())
        await bound.wait()
        await (listener if closes == "listener" else fabric).aclose()
        closed.set()
        with pytest.raises(ClosedResourceError, match="closed"):
            await accepting
        assert not servers[0].is_serving()


async def test_a_cancelled_connect_leaves_nothing(pair: Pair) -> None:
    connecting = asyncio.create_task(pair.near.connect(pair.far.address))
    async with pair.far.listen() as listener:
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        a = await pair.near.connect(pair.far.address)
        await check_endpoint_pair(a, await listener.accept(), page_count=4)
    await pair.works()


async def test_who_gives_up_is_not_waited_for(options: dict[str, Any]) -> None:
    # Longer than a test may take: whoever waits for it is seen.
    patience: dict[str, Any] = {"connect_timeout_s": 60.0, "peer_timeout_s": 60.0}
    async with (
        Fabric(**options, **patience) as near,
        Fabric(**options, **patience) as far,
        far.listen() as listener,
    ):
        wrong = dataclasses.replace(far.address, incarnation=secrets.token_bytes(16))
        with pytest.raises(PeerUnreachableError, match="another process"):
            await near.connect(wrong)
        await nobody_is_known_to(near, far)
        assert far.statistics().refused_hellos == 0
        await meet_listener(near, far, listener)


async def test_who_is_cancelled_is_not_waited_for(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    patience: dict[str, Any] = {"connect_timeout_s": 60.0, "peer_timeout_s": 60.0}
    async with Fabric(**options, **patience) as near, Fabric(**options, **patience) as far:
        assert far._acceptor is not None
        asked = asyncio.Event()
        take = far._acceptor.hello

        def hello(greeting: Hello | ForeignHello, body: bytes) -> None:
            take(greeting, body)
            asked.set()

        monkeypatch.setattr(far._acceptor, "hello", hello)
        connecting = asyncio.create_task(near.connect(far.address))
        await asked.wait()  # nobody listens: it is kept
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        while far._acceptor._kept:  # noqa: ASYNC110  (the acceptor sets no event)
            await asyncio.sleep(0.001)
        await nobody_is_known_to(near, far)


async def nobody_is_known_to(*fabrics: Fabric) -> None:
    """Wait until the engines have forgotten every peer."""
    for fabric in fabrics:
        assert fabric._engine is not None
        while fabric._engine.channels:  # noqa: ASYNC110  (engine threads set no event)
            await asyncio.sleep(0.001)
