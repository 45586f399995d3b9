"""A peer that is stopped: memory that its process may touch stays ours to keep until it cannot."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fabricio import Address, PeerLostError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.two_process.conftest import OpenLink, Peer

TIMEOUT_S = 0.5
LIMIT_S = 15.0
PAGE_BYTES, COUNT = 65536, 256  # more than the sockets' buffers and the window take


@asynccontextmanager
async def stopped(peer: Peer) -> AsyncIterator[None]:
    """Stop a peer for this block, which must not take for ever."""
    peer.process.send_signal(signal.SIGSTOP)
    try:
        async with asyncio.timeout(LIMIT_S):
            yield
    finally:
        peer.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("operation", ["write", "read"])
async def test_memory_is_kept_until_it_is_quiet(
    open_link: OpenLink, shared_peer: str, operation: str
) -> None:
    async with open_link(peer_timeout_s=TIMEOUT_S) as (link, peer), link.to(shared_peer) as living:
        data = np.random.default_rng(1).integers(256, size=PAGE_BYTES * COUNT, dtype=np.uint8)
        region = await link.fabric.register(data)
        remote = await link.remote(data.size, seed=None)
        kept = await living.remote(PAGE_BYTES)
        page = await link.fabric.register(bytearray(PAGE_BYTES))
        move: Any = getattr(link.endpoint, f"{operation}_pages")
        lost = None
        async with stopped(peer):
            transfer = move(region, range(COUNT), remote, range(COUNT), page_bytes=PAGE_BYTES)
            try:
                await transfer
            except PeerLostError as error:
                lost = error
            closing = asyncio.ensure_future(region.deregister())
            if lost is None or lost.quiesced:
                await closing
            # Others on the lane do not suffer.
            assert await living.endpoint.write(page, kept) == PAGE_BYTES
            # Whatever we were told is free is ours: it must not change when the peer goes on.
            free = closing.done()
            if free:
                data[:] = 7
        if lost is not None:
            await lost.drained()
        await closing
        if not free:
            data[:] = 7
        assert await peer.end() == 0
        assert (data == 7).all()


async def test_what_it_was_about_to_write_does_not_land_in_released_memory(
    open_link: OpenLink,
) -> None:
    async with open_link(peer_timeout_s=TIMEOUT_S) as (link, peer):
        data = np.zeros(PAGE_BYTES * COUNT, np.uint8)
        region = await link.fabric.register(data)
        await link.remote(data.size, seed=1)
        pages = list(range(COUNT))
        question = {"op": "write", "region": region.share("w"), "notify": None}
        for _ in range(20):
            await link.endpoint.send(
                {**question, "local": pages, "remote": pages, "page_bytes": PAGE_BYTES}
            )
        while not data.any():
            await link.endpoint.flush()
        held = None
        async with stopped(peer):
            assert isinstance(await link.endpoint.closed, PeerLostError)
            try:
                await region.deregister()
                data[:] = 0  # it is ours, we were told
            except PeerLostError as error:
                held = error
                assert not held.quiesced
                assert "1 peer " in str(held)
                if link.fabric.attributes.writes_last == "connection":
                    await held.drained()  # though the peer will go on
                    data[:] = 0
        assert await peer.end() == 0
        if link.fabric.attributes.writes_last == "process":
            assert held is not None
            await held.drained()
        else:
            assert not data.any()
        await region.drained()


async def test_memory_outlives_the_fabric_where_the_peer_can_reach_it(
    open_link: OpenLink, options: dict[str, Any]
) -> None:
    async with open_link(peer_timeout_s=TIMEOUT_S) as (link, peer):
        memory = bytearray(PAGE_BYTES)
        region = await link.fabric.register(memory)
        await link.remote(PAGE_BYTES, seed=None)
        pages: dict[str, Any] = {"local": [0], "remote": [0], "page_bytes": PAGE_BYTES}
        await link.endpoint.send(
            {"op": "write", "region": region.share("w"), "notify": {"op": "done"}, **pages}
        )
        assert await link.endpoint.recv() == {"op": "done"}
        async with stopped(peer):
            await link.endpoint.closed
            writes_last = link.fabric.attributes.writes_last
            await link.fabric.aclose()
            if writes_last == "process":
                with pytest.raises(BufferError):
                    memory.append(0)
        assert await peer.end() == 0
        await region.drained()
        memory.append(0)


async def test_the_loss_says_who_and_since_when(open_link: OpenLink) -> None:
    async with open_link(peer_timeout_s=TIMEOUT_S) as (link, peer), stopped(peer):
        lost = await link.endpoint.closed
        assert isinstance(lost, PeerLostError)
        assert lost.peer == Address.parse(link.address)
        assert lost.since is not None
        assert link.endpoint.closed
