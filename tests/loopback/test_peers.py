"""`Peers`: endpoints to all who are there, whatever some of them do."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from fabricio import (
    BrokenResourceError,
    ClosedResourceError,
    DiscoveryError,
    Endpoint,
    Fabric,
    OptionsError,
    PeerUnreachableError,
)
from fabricio.discovery import (
    Peer,
    PeerConnected,
    PeerDisconnected,
    PeerEvent,
    PeerJoined,
    PeerLeft,
    Peers,
)
from fabricio.testing import check_endpoint_pair
from tests.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Script:
    """A discovery that says what the test tells it to."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[PeerEvent | Exception | None] = asyncio.Queue()

    def joined(self, *peers: Peer) -> None:
        for peer in peers:
            self.queue.put_nowait(PeerJoined(peer))

    def left(self, *peers: Peer) -> None:
        for peer in peers:
            self.queue.put_nowait(PeerLeft(peer))

    def __aiter__(self) -> Script:
        return self

    async def __anext__(self) -> PeerEvent:
        event = await self.queue.get()
        if event is None:
            raise StopAsyncIteration
        if isinstance(event, Exception):
            raise event
        return event


class Node:
    """A Fabric that listens with a rendezvous and keeps what it accepts."""

    def __init__(self, fabric: Fabric, peer: Peer) -> None:
        self.fabric = fabric
        self.peer = peer
        self.accepted: asyncio.Queue[Endpoint] = asyncio.Queue()


@asynccontextmanager
async def open_node(options: dict[str, Any], name: str = "", port: int = 0) -> AsyncIterator[Node]:
    async with (
        Fabric(**options) as fabric,
        fabric.listen(f"127.0.0.1:{port}") as listener,
        asyncio.TaskGroup() as group,
    ):
        assert listener.host_port is not None
        node = Node(fabric, Peer("127.0.0.1", int(listener.host_port.split(":")[1]), name))

        async def accept() -> None:
            async for endpoint in listener:
                node.accepted.put_nowait(endpoint)

        task = group.create_task(accept())
        yield node
        task.cancel()


async def connected(peers: Peers) -> PeerConnected:
    event = await anext(peers)
    assert isinstance(event, PeerConnected)
    return event


async def disconnected(peers: Peers) -> PeerDisconnected:
    event = await anext(peers)
    assert isinstance(event, PeerDisconnected)
    return event


async def failed(peers: Peers, peer: Peer) -> Exception:
    await until(lambda: peer in peers.failures)
    return peers.failures[peer]


async def test_members_are_connected_to_and_parted_from(options: dict[str, Any]) -> None:
    script = Script()
    async with (
        open_node(options, "one") as one,
        open_node(options, "two") as two,
        Fabric(**options) as fabric,
        Peers(fabric, script) as peers,
    ):
        script.joined(one.peer, two.peer)
        found = {(event := await connected(peers)).peer: event.endpoint for _ in range(2)}
        assert peers.endpoints == found
        assert found.keys() == {one.peer, two.peer}
        theirs = await one.accepted.get()
        await check_endpoint_pair(found[one.peer], theirs)

        script.left(one.peer)
        gone = await disconnected(peers)
        assert (gone.peer, gone.endpoint, gone.reason) == (one.peer, found[one.peer], None)
        assert peers.endpoints == {two.peer: found[two.peer]}
        assert isinstance(await theirs.closed, ClosedResourceError)

        script.joined(one.peer)
        again = await connected(peers)
        assert again.endpoint is not found[one.peer]
        await check_endpoint_pair(again.endpoint, await one.accepted.get())
        await check_endpoint_pair(found[two.peer], await two.accepted.get())


async def test_oneself_is_left_out(options: dict[str, Any]) -> None:
    script = Script()
    async with (
        open_node(options, "one") as one,
        open_node(options, "me") as me,
        Peers(me.fabric, script) as peers,
    ):
        script.joined(me.peer, one.peer)
        assert (await connected(peers)).peer == one.peer
        script.left(me.peer, one.peer)
        await disconnected(peers)
        assert me.accepted.empty()
        assert peers.failures == {}


async def test_two_that_find_each_other_have_two_endpoints(options: dict[str, Any]) -> None:
    scripts = Script(), Script()
    async with (
        open_node(options, "one") as one,
        open_node(options, "two") as two,
        Peers(one.fabric, scripts[0]) as of_one,
        Peers(two.fabric, scripts[1]) as of_two,
    ):
        for script in scripts:
            script.joined(one.peer, two.peer)
        ours, theirs = await asyncio.gather(connected(of_one), connected(of_two))
        assert (ours.peer, theirs.peer) == (two.peer, one.peer)
        await check_endpoint_pair(ours.endpoint, await two.accepted.get())
        await check_endpoint_pair(theirs.endpoint, await one.accepted.get())


async def test_one_endpoint_per_pair_by_order(options: dict[str, Any]) -> None:
    scripts = Script(), Script()
    async with open_node(options) as one, open_node(options) as two:
        nodes = sorted((one, two), key=lambda node: node.peer)
        async with (
            Peers(nodes[0].fabric, scripts[0], only=lambda peer: nodes[0].peer < peer) as first,
            Peers(nodes[1].fabric, scripts[1], only=lambda peer: nodes[1].peer < peer) as second,
        ):
            for script in scripts:
                script.joined(one.peer, two.peer)
            event = await connected(first)
            await check_endpoint_pair(event.endpoint, await nodes[1].accepted.get())
            assert (second.endpoints, second.failures) == ({}, {})
            assert repr(second) == "<Peers members=0 endpoints=0>"


async def serve_bytes(data: bytes | None) -> asyncio.Server:
    """Say something to whoever connects; None: nothing, until they go."""

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if data is None:
            await reader.read()
        else:
            writer.write(data)
        writer.close()

    return await asyncio.start_server(say, "127.0.0.1", 0)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", OptionsError),
        (b"\xff" * 100, PeerUnreachableError),
        (b"", PeerUnreachableError),
        (None, PeerUnreachableError),
    ],
    ids=["http", "garbage", "nothing", "mute"],
)
async def test_a_bad_member_stops_no_other(
    options: dict[str, Any], data: bytes | None, error: type[Exception]
) -> None:
    script = Script()
    async with (
        await serve_bytes(data) as server,
        open_node(options, "good") as good,
        Fabric(**options, connect_timeout_s=0.5) as fabric,
        Peers(fabric, script, connect_count=1, max_pause_s=0.01) as peers,
    ):
        bad = [Peer("127.0.0.1", server.sockets[0].getsockname()[1], name) for name in "ab"]
        script.joined(*bad)
        assert isinstance(await failed(peers, bad[0]), error)
        script.joined(good.peer)
        event = await connected(peers)
        await check_endpoint_pair(event.endpoint, await good.accepted.get())
        script.left(*bad)
        await until(lambda: not peers.failures)
        assert peers.endpoints == {good.peer: event.endpoint}


async def test_a_name_that_cannot_be_resolved_is_a_failure(options: dict[str, Any]) -> None:
    script = Script()
    odd = Peer("a..b", 7000, "odd")
    async with Fabric(**options) as fabric, Peers(fabric, script) as peers:
        script.joined(odd)
        await failed(peers, odd)


async def test_a_member_that_listens_late_is_connected_to(options: dict[str, Any]) -> None:
    script = Script()
    async with Fabric(**options) as fabric, Peers(fabric, script, max_pause_s=0.01) as peers:
        async with open_node(options) as early:
            port = early.peer.port
        late = Peer("127.0.0.1", port, "late")
        script.joined(late)
        await failed(peers, late)
        async with open_node(options, "late", port) as node:
            await check_endpoint_pair((await connected(peers)).endpoint, await node.accepted.get())
            assert late not in peers.failures


async def test_a_member_that_starts_anew_is_connected_to_anew(options: dict[str, Any]) -> None:
    script = Script()
    async with Fabric(**options) as fabric, Peers(fabric, script, max_pause_s=0.01) as peers:
        async with open_node(options) as first:
            peer = first.peer
            script.joined(peer)
            before = await connected(peers)
            await first.accepted.get()
        gone = await disconnected(peers)
        assert gone.endpoint is before.endpoint
        assert isinstance(gone.reason, ClosedResourceError)
        async with open_node(options, port=peer.port) as second:
            after = await connected(peers)
            assert after.endpoint.peer == second.fabric.address
            await check_endpoint_pair(after.endpoint, await second.accepted.get())


async def test_an_endpoint_that_nobody_heard_of_is_not_mentioned(options: dict[str, Any]) -> None:
    script = Script()
    async with (
        open_node(options) as node,
        Fabric(**options) as fabric,
        Peers(fabric, script) as peers,
    ):
        script.joined(node.peer)
        theirs = await node.accepted.get()
        script.left(node.peer)
        await theirs.closed
        script.joined(node.peer)
        await node.accepted.get()
        assert isinstance(await anext(peers), PeerConnected)
        assert len(peers.endpoints) == 1


async def test_many_members_at_once(options: dict[str, Any]) -> None:
    script = Script()
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(open_node(options)) for _ in range(6)]
        fabric = await stack.enter_async_context(Fabric(**options))
        peers = await stack.enter_async_context(Peers(fabric, script, connect_count=2))
        script.joined(*(node.peer for node in nodes))
        assert {(await connected(peers)).peer for _ in nodes} == {node.peer for node in nodes}


async def test_the_discoverys_error_is_told_and_endpoints_live_on(options: dict[str, Any]) -> None:
    script = Script()
    async with (
        open_node(options) as node,
        Fabric(**options) as fabric,
        Peers(fabric, script) as peers,
    ):
        script.joined(node.peer)
        event = await connected(peers)
        script.queue.put_nowait(DiscoveryError("nobody knows"))
        for _ in range(2):
            with pytest.raises(DiscoveryError, match="nobody knows"):
                await anext(peers)
        await check_endpoint_pair(event.endpoint, await node.accepted.get())


async def test_a_discovery_that_ends_leaves_its_members(options: dict[str, Any]) -> None:
    script = Script()
    async with (
        open_node(options) as node,
        Fabric(**options) as fabric,
        Peers(fabric, script) as peers,
    ):
        script.joined(node.peer)
        script.queue.put_nowait(None)
        event = await connected(peers)
        await check_endpoint_pair(event.endpoint, await node.accepted.get())


async def test_a_fabric_that_is_closed_is_told(options: dict[str, Any]) -> None:
    script = Script()
    async with (
        Fabric(**options) as fabric,
        open_node(options) as node,
        Peers(fabric, script, max_pause_s=0.01) as peers,
    ):
        script.joined(node.peer)
        event = await connected(peers)
        await fabric.aclose()
        assert (await disconnected(peers)).endpoint is event.endpoint
        with pytest.raises(ClosedResourceError):
            await anext(peers)


async def test_a_fabric_that_breaks_is_told(options: dict[str, Any]) -> None:
    script = Script()
    async with (
        open_node({**options, "peer_timeout_s": 3.0}) as node,
        Fabric(**options) as fabric,
        Peers(fabric, script, max_pause_s=0.01) as peers,
    ):
        script.joined(node.peer)
        event = await connected(peers)
        engine = (await fabric.register(bytearray(8))).engine
        engine.fail(RuntimeError("a bug"))
        gone = await disconnected(peers)
        assert gone.endpoint is event.endpoint
        assert isinstance(gone.reason, BrokenResourceError)
        with pytest.raises(BrokenResourceError, match="a bug"):
            await anext(peers)


async def test_closing_parts_in_order_and_ends_the_iteration(options: dict[str, Any]) -> None:
    script = Script()
    async with open_node(options) as node, Fabric(**options) as fabric:
        async with Peers(fabric, script) as peers:
            script.joined(node.peer)
            event = await connected(peers)
            theirs = await node.accepted.get()
            await event.endpoint.send("last words")
        assert event.endpoint.closed
        assert [message async for message in theirs] == ["last words"]
        assert [each async for each in peers] == []
        with pytest.raises(ClosedResourceError, match="entered once"):
            await peers.__aenter__()


async def test_cancelling_while_it_closes_frees_everything(options: dict[str, Any]) -> None:
    script = Script()
    async with open_node(options) as node, Fabric(**options) as fabric:
        entered = asyncio.Event()

        async def follow() -> None:
            async with Peers(fabric, script) as peers:
                await connected(peers)
                entered.set()

        script.joined(node.peer)
        task = asyncio.create_task(follow())
        await entered.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_cancelling_attempts_under_way(options: dict[str, Any]) -> None:
    script = Script()
    async with await serve_bytes(None) as server, Fabric(**options) as fabric:
        mute = Peer("127.0.0.1", server.sockets[0].getsockname()[1], "mute")
        async with Peers(fabric, script) as peers:
            script.joined(mute)
            reader = asyncio.ensure_future(anext(peers))
            await asyncio.sleep(0)
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader


async def test_what_is_not_possible_is_refused(options: dict[str, Any]) -> None:
    events = cast("AsyncIterator[PeerEvent]", Script())
    async with Fabric(**options) as fabric:
        with pytest.raises(OptionsError, match="connect_count=0"):
            Peers(fabric, events, connect_count=0)
        with pytest.raises(OptionsError, match="max_pause_s=0"):
            Peers(fabric, events, max_pause_s=0)
        with pytest.raises(ClosedResourceError, match="use `async with`"):
            await anext(Peers(fabric, events))
