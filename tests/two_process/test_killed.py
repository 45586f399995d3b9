"""A peer that is killed: its own operations fail, within `peer_timeout_s`, and nothing else."""

from __future__ import annotations

import asyncio
import signal
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fabricio import PeerLostError, Transfer

if TYPE_CHECKING:
    from tests.two_process.conftest import OpenLink, OpenPeer

TIMEOUT_S = 0.5

COUNT, PAGE_BYTES = 1 << 20, 64
ALL_PAGES = array("q", range(COUNT))


async def test_in_the_middle_of_writes(open_link: OpenLink, shared_peer: str) -> None:
    async with open_link(segments=1, merge=False, peer_timeout_s=TIMEOUT_S) as (link, peer):
        region = await link.fabric.register(np.zeros(COUNT * PAGE_BYTES, np.uint8))
        remote = await link.remote(COUNT * PAGE_BYTES)
        transfers: list[Transfer] = []

        async def write_forever() -> None:
            while True:
                transfers[:] = [
                    link.endpoint.write_pages(
                        region, ALL_PAGES, remote, ALL_PAGES, page_bytes=PAGE_BYTES
                    )
                ]
                assert await transfers[0] == COUNT * PAGE_BYTES

        writing = asyncio.create_task(write_forever())
        while not transfers or not transfers[0].pages_done:
            await link.endpoint.flush()
        assert await peer.end(signal.SIGKILL) == -signal.SIGKILL
        with pytest.raises(PeerLostError):
            await writing
        assert transfers[0].done()
        with pytest.raises(PeerLostError):
            await link.endpoint.recv()
        with pytest.raises(PeerLostError):
            link.endpoint.write(region, remote)
        await link.meets(shared_peer)
        await link.endpoint.aclose()
        await region.deregister()


async def test_in_the_middle_of_reads(open_link: OpenLink, shared_peer: str) -> None:
    async with open_link(peer_timeout_s=TIMEOUT_S) as (link, peer):
        region = await link.fabric.register(bytearray(1 << 20))
        remote = await link.remote(1 << 20)

        async def read_forever() -> None:
            while True:
                assert await link.endpoint.read(region, remote) == 1 << 20

        reading = asyncio.create_task(read_forever())
        assert await peer.end(signal.SIGKILL) == -signal.SIGKILL
        with pytest.raises(PeerLostError):
            await reading
        await link.meets(shared_peer)
        await link.endpoint.aclose()
        await region.deregister()


async def test_small_reads_leave_room_for_others(
    open_link: OpenLink, open_peer: OpenPeer, shared_peer: str
) -> None:
    options = {"segments": 1, "merge": False, "peer_timeout_s": 0.5, "connect_timeout_s": 1.0}
    async with open_link(**options) as (link, peer), open_peer() as second:
        region = await link.fabric.register(bytearray(COUNT * PAGE_BYTES))
        for doomed in (peer, second):  # together, more operations than the provider's queue holds
            async with link.to(doomed.address) as other:
                remote = await other.remote(COUNT * PAGE_BYTES)
                transfer = other.endpoint.read_pages(
                    region, ALL_PAGES, remote, ALL_PAGES, page_bytes=PAGE_BYTES
                )
                assert await doomed.end(signal.SIGKILL) == -signal.SIGKILL
                with pytest.raises(PeerLostError):
                    await transfer
        await link.meets(shared_peer)


async def test_whoever_waits_is_told(open_link: OpenLink, shared_peer: str) -> None:
    async with open_link(peer_timeout_s=TIMEOUT_S) as (link, peer):
        region = await link.fabric.register(bytearray(100))
        remote = await link.remote(100)
        assert await peer.end(signal.SIGKILL) == -signal.SIGKILL
        tasks: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(link.endpoint.recv()),
            asyncio.ensure_future(link.endpoint.flush()),
            asyncio.ensure_future(link.endpoint.write(region, remote)),
        ]
        for task in tasks:
            with pytest.raises(PeerLostError):
                await task
        with pytest.raises(PeerLostError):
            await link.endpoint.send("more")
        await link.meets(shared_peer)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
async def test_whoever_only_listens_is_told(
    open_link: OpenLink, shared_peer: str, how: signal.Signals
) -> None:
    async with open_link(peer_timeout_s=TIMEOUT_S) as (link, peer):
        async with link.to(shared_peer) as living:
            peer.process.send_signal(how)
            with pytest.raises(PeerLostError):
                await link.endpoint.recv()
            await living.endpoint.flush()
        if how is signal.SIGKILL:
            await peer.process.wait()
        else:
            peer.process.send_signal(signal.SIGCONT)
        await link.meets(shared_peer)


async def test_with_transfers_of_another_peer_under_way(
    open_link: OpenLink, shared_peer: str
) -> None:
    async with open_link(peer_timeout_s=TIMEOUT_S) as (link, peer):
        data = np.random.default_rng(1).integers(256, size=1 << 20, dtype=np.uint8)
        region = await link.fabric.register(data)
        async with link.to(shared_peer) as living:
            lost, kept = await link.remote(data.size), await living.remote(data.size)
            assert await peer.end(signal.SIGKILL) == -signal.SIGKILL
            doomed = link.endpoint.write(region, lost)
            while not doomed.done():
                assert await living.endpoint.write(region, kept) == data.size
            with pytest.raises(PeerLostError):
                await doomed
            assert await living.holds(0, data.tobytes())


async def test_closing_waits_for_a_killed_peer_no_longer_than_that(open_link: OpenLink) -> None:
    async with open_link(peer_timeout_s=TIMEOUT_S) as (link, peer):
        assert await peer.end(signal.SIGKILL) == -signal.SIGKILL
        await link.endpoint.aclose()
        assert link.endpoint.closed
