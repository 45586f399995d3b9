"""Deregistering a region that peers have: they are told, and let go of it first."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fabricio import (
    ClosedResourceError,
    CompletionError,
    LocalProtocolError,
    RegionError,
    RemoteRegion,
    Transfer,
)
from fabricio.frames import CLOSE
from fabricio.testing import check_endpoint_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fabricio import Endpoint, Fabric, MemoryRegion
    from tests.loopback.conftest import Memory, OpenPair, Pair

SIZE = 1 << 16
PAGE_BYTES = 64
PATIENCE_S = 0.2

# Half a million operations, one at a time, are never over before the test has said what it wants.
ENDLESS_PAGES = 1 << 19
SLOW = {"inflight_count": 1, "segments": 1, "merge": False}


def write_all(endpoint: Endpoint, near: Memory, far: Memory) -> Transfer:
    """Write the near page to every far one."""
    count = far.remote.length_bytes // PAGE_BYTES
    pages = range(count)
    return endpoint.write_pages(
        near.region, [0] * count, far.remote, pages, page_bytes=PAGE_BYTES, confirm=False
    )


def refuses(endpoint: Endpoint, local: Memory, remote: RemoteRegion) -> None:
    """Every use is refused here, without asking the peer."""
    region = local.region[: remote.length_bytes]
    calls: tuple[Callable[[], object], ...] = (
        lambda: endpoint.write(region, remote),
        lambda: endpoint.read(region, remote),
        lambda: endpoint.write_pages(region, [0], remote, [0], page_bytes=8, notify="never"),
        lambda: endpoint.read_pages(region, [0], remote, [0], page_bytes=8),
        lambda: endpoint.write(region[:0], remote[:0]),
    )
    for call in calls:
        with pytest.raises(RegionError, match="the peer has deregistered this region"):
            call()


async def told(remote: RemoteRegion) -> None:
    """Let the loop and the engines go on until the peer's revocation is here."""
    while not remote.grant.revoked:  # noqa: ASYNC110  (nobody else needs to be told)
        await asyncio.sleep(0)


async def gives_up_waiting(region: MemoryRegion) -> None:
    """Deregister a region that a peer does not let go of: it is closed, and its memory stays."""
    with pytest.raises(CompletionError, match="has not let go") as caught:
        await region.deregister()
    assert not caught.value.quiesced
    assert region._buffer is not None


@contextmanager
def asleep(fabric: Fabric) -> Iterator[None]:
    """A Fabric whose Python takes nothing in, while its engine goes on."""
    engine = fabric._engine
    assert engine is not None
    engine.reader.stop()
    try:
        yield
    finally:
        engine.reader.start()


async def test_the_peer_cannot_use_it_any_more(pair: Pair) -> None:
    near, far = await pair.register(SIZE), await pair.register_far(SIZE)
    part = far.remote[SIZE // 2 :]
    await pair.a.write(near.region, far.remote)
    await far.region.deregister()
    far.array[:] = 7
    refuses(pair.a, near, far.remote)
    refuses(pair.a, near, part)
    refuses(pair.a, near, far.remote[:8])
    assert repr(part) == f"<RemoteRegion {SIZE // 2} bytes 'rw' revoked>"
    await pair.works()
    assert (far.array == 7).all()
    # The same memory, registered again, is another region.
    async with await pair.far.register(far.array) as region:
        await pair.b.send(region.share("rw"))
        remote = await pair.a.recv()
        assert isinstance(remote, RemoteRegion)
        await pair.a.write(near.region, remote)
    assert np.array_equal(far.array, near.array)
    refuses(pair.a, near, remote)


async def test_revoked_it_goes_on_here_and_may_be_shared_anew(pair: Pair) -> None:
    near, far = await pair.register(SIZE), await pair.register_far(SIZE)
    assert await pair.a.write(near.region, far.remote) == SIZE
    await far.region.revoke()
    refuses(pair.a, near, far.remote)
    assert not far.region.closed
    assert await pair.b.write(far.region, await shared(pair, near)) == SIZE
    again = await shared(pair, far)
    near.array[:] = 9
    assert await pair.a.write(near.region, again) == SIZE
    assert (far.array == 9).all()
    refuses(pair.a, near, far.remote)
    await far.region.revoke()
    await far.region.revoke()  # nobody has it
    refuses(pair.a, near, again)
    await far.region.deregister()
    with pytest.raises(RegionError, match="deregistered"):
        await far.region.revoke()
    await pair.works()


async def shared(pair: Pair, memory: Memory) -> RemoteRegion:
    """The other side's view of a side's memory, shared anew."""
    owner, other = (
        (pair.a, pair.b) if memory.region.engine is pair.near._engine else (pair.b, pair.a)
    )
    await owner.send(memory.region.share("rw"))
    remote = await other.recv()
    assert isinstance(remote, RemoteRegion)
    return remote


async def test_a_revocation_waits_for_the_peers_transfer(open_pair: OpenPair) -> None:
    async with open_pair(**SLOW) as pair:
        near, far = await pair.register(PAGE_BYTES), await pair.register_far(1024 * PAGE_BYTES)
        transfer = write_all(pair.a, near, far)
        revoking = [asyncio.create_task(far.region.revoke()) for _ in range(2)]
        await asyncio.gather(*revoking)
        assert transfer.done()
        assert await transfer == 1024 * PAGE_BYTES
        await far.region.deregister()
        await pair.works()


async def test_a_peer_that_sleeps_keeps_what_is_revoked(open_pair: OpenPair) -> None:
    async with open_pair(peer_timeout_s=PATIENCE_S) as pair:
        far = await pair.register_far(SIZE)
        with asleep(pair.near):
            with pytest.raises(CompletionError, match="has not let go") as caught:
                await far.region.revoke()
            assert not caught.value.quiesced
        await caught.value.drained()
        assert not far.region.closed
        await far.region.deregister()
        await pair.works()


async def test_it_waits_until_the_peers_transfer_is_done(open_pair: OpenPair) -> None:
    async with open_pair(**SLOW) as pair:
        near, far = await pair.register(PAGE_BYTES), await pair.register_far(4096 * PAGE_BYTES)
        transfer = write_all(pair.a, near, far)
        await far.region.deregister()
        assert transfer.done()
        assert (far.array.reshape(-1, PAGE_BYTES) == near.array).all()
        far.array[:] = 7
        assert await transfer == far.array.size
        await pair.works()
        assert (far.array == 7).all()


async def test_it_waits_as_long_as_the_peers_transfer_runs(open_pair: OpenPair) -> None:
    async with open_pair(**SLOW) as pair:
        near = await pair.register(PAGE_BYTES)
        far = await pair.register_far(ENDLESS_PAGES * PAGE_BYTES)
        first, second = write_all(pair.a, near, far), write_all(pair.a, near, far)
        deregistering = asyncio.create_task(far.region.deregister())
        await told(far.remote)
        refuses(pair.a, near, far.remote[:8])
        with pytest.raises(RegionError, match="deregistered"):
            far.region.share("r")
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await pair.b.flush()  # whatever the first has led to has arrived
        await pair.a.flush()
        assert not deregistering.done()
        second.cancel()
        await deregistering
        assert second.done()
        far.array[:] = 7
        await pair.works()
        assert (far.array == 7).all()


async def test_every_peer_that_has_it_is_asked(open_pair: OpenPair) -> None:
    async with open_pair(**SLOW) as pair:
        near = await pair.register(PAGE_BYTES)
        far = await pair.register_far(ENDLESS_PAGES * PAGE_BYTES)
        a, b = await pair.connect()
        await b.send([far.region.share("w"), far.region[:8].share("r"), far.region.share("rw")])
        remotes = await a.recv()
        assert isinstance(remotes, list)
        transfer = write_all(pair.a, near, far)
        deregistering = asyncio.create_task(far.region.deregister())
        await told(remotes[0])
        await told(far.remote)
        await b.flush()
        await a.flush()
        assert not deregistering.done()
        transfer.cancel()
        await deregistering
        assert all(remote.grant.revoked for remote in remotes)
        refuses(a, near, remotes[2][:8])
        await pair.works()
        await check_endpoint_pair(a, b, page_count=4)


async def test_a_region_that_nobody_has_asks_nobody(pair: Pair) -> None:
    region = await pair.far.register(bytearray(8))
    region.share("rw")
    with asleep(pair.near):
        async with asyncio.timeout(pair.far.options.peer_timeout_s / 2):
            await region.deregister()
    await pair.works()


async def test_a_message_that_was_not_sent(pair: Pair) -> None:
    region = await pair.far.register(bytearray(8))
    with pytest.raises(LocalProtocolError):
        await pair.b.send([region.share("rw"), object()])
    await region.deregister()
    await pair.works()


async def test_a_peer_whose_python_is_asleep_is_not_waited_for_without_end(
    open_pair: OpenPair,
) -> None:
    async with open_pair(peer_timeout_s=PATIENCE_S) as pair:
        near, far = await pair.register(SIZE), await pair.register_far(SIZE)
        loop = asyncio.get_running_loop()
        with asleep(pair.near):
            start = loop.time()
            await gives_up_waiting(far.region)
            assert loop.time() - start >= 0.9 * PATIENCE_S
        await told(far.remote)
        await far.region.drained()
        await far.region.deregister()
        assert far.region._buffer is None
        refuses(pair.a, near, far.remote)
        await pair.works()


async def test_a_revocation_behind_a_message_that_waits_for_the_window(
    open_pair: OpenPair,
) -> None:
    async with open_pair(
        max_message_bytes=4000,
        frame_bytes=2048,
        receive_window_bytes=16_000,
        peer_timeout_s=PATIENCE_S,
    ) as pair:
        far = await pair.register_far(64)
        near = await pair.register(64)
        sending = [asyncio.create_task(pair.b.send(bytes(3900))) for _ in range(6)]
        await asyncio.sleep(0)  # they are queued
        await gives_up_waiting(far.region)
        assert not far.remote.grant.revoked
        for _ in sending:
            await pair.a.recv()
        await asyncio.gather(*sending)
        await told(far.remote)
        await far.region.drained()
        refuses(pair.a, near, far.remote)
        await pair.works()


async def test_a_cancelled_deregister_closes_it_all_the_same(open_pair: OpenPair) -> None:
    async with open_pair(**SLOW) as pair:
        near = await pair.register(PAGE_BYTES)
        memory = bytearray(ENDLESS_PAGES * PAGE_BYTES)
        region = await pair.far.register(memory)
        await pair.b.send(region.share("rw"))
        remote = await pair.a.recv()
        assert isinstance(remote, RemoteRegion)
        transfer = pair.a.write_pages(
            near.region, [0] * ENDLESS_PAGES, remote, range(ENDLESS_PAGES), page_bytes=PAGE_BYTES
        )
        deregistering = asyncio.create_task(region.deregister())
        await told(remote)
        deregistering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await deregistering
        with pytest.raises(BufferError):
            memory.append(1)
        transfer.cancel()
        await asyncio.wait_for(region._closed.wait(), pair.far.options.peer_timeout_s / 2)
        memory.append(1)
        await region.deregister()
        await pair.works()


async def test_a_region_that_was_revoked_before_its_message_was_taken(pair: Pair) -> None:
    near = await pair.register(SIZE)
    region = await pair.far.register(bytearray(SIZE))
    await pair.b.send({"region": region.share("rw")})
    await region.deregister()
    message = await pair.a.recv()
    assert isinstance(message, dict)
    assert repr(message["region"]).endswith("revoked>")
    refuses(pair.a, near, message["region"])
    await pair.works()


@pytest.mark.parametrize("owner_closes", [False, True], ids=["peer closes", "owner closes"])
async def test_an_endpoint_that_ends_lets_go(open_pair: OpenPair, owner_closes: bool) -> None:
    async with open_pair(**SLOW) as pair:
        near = await pair.register(PAGE_BYTES)
        far = await pair.register_far(ENDLESS_PAGES * PAGE_BYTES)
        a, b = await pair.connect()
        transfer = write_all(pair.a, near, far)
        deregistering = asyncio.create_task(far.region.deregister())
        await told(far.remote)
        assert not deregistering.done()
        async with asyncio.timeout(pair.far.options.peer_timeout_s / 2):
            await (pair.b if owner_closes else pair.a).aclose()
            await deregistering
        far.array[:] = 7
        await check_endpoint_pair(a, b, page_count=4)
        assert (far.array == 7).all()
        with pytest.raises(ClosedResourceError):
            await transfer


async def test_an_endpoint_that_ended_before_has_let_go(open_pair: OpenPair) -> None:
    async with open_pair(**SLOW) as pair:
        near = await pair.register(PAGE_BYTES)
        far = await pair.register_far(ENDLESS_PAGES * PAGE_BYTES)
        a, b = await pair.connect()
        transfer = write_all(pair.a, near, far)
        async with asyncio.timeout(pair.far.options.peer_timeout_s / 2):
            await pair.b.aclose()
            await far.region.deregister()
        far.array[:] = 7
        await check_endpoint_pair(a, b, page_count=4)
        assert (far.array == 7).all()
        with pytest.raises(ClosedResourceError):
            await transfer


async def test_closing_waits_for_a_peer_that_has_a_region(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pair.register_far(64)
    peer, owner = pair.a._channel, pair.b._channel
    take = peer.frame_received
    held: list[bytes] = []

    def hold(data: bytes) -> None:
        (held.append if data[0] == CLOSE else take)(data)

    monkeypatch.setattr(peer, "frame_received", hold)
    closing = asyncio.create_task(pair.b.aclose())
    parting = owner._parting
    while not held or not parting._said.happened or parting._flush:  # noqa: ASYNC110  (as above)
        await asyncio.sleep(0)
    assert not parting._drained.happened  # though the peer has taken in all else
    take(held[0])
    await closing


async def test_closing_the_fabric_ends_the_wait(open_pair: OpenPair) -> None:
    async with open_pair(peer_timeout_s=PATIENCE_S) as pair:
        far = await pair.register_far(SIZE)
        with asleep(pair.near):
            deregistering = asyncio.create_task(far.region.deregister())
            await asyncio.sleep(0)
            await pair.far.aclose()
            with suppress(CompletionError):  # it may have waited as long as the Fabric did
                await deregistering
            await far.region.drained()
        assert far.region._registration._revocation._timer is None
        assert far.region._buffer is None


async def test_both_sides_of_a_transfer_at_once(open_pair: OpenPair) -> None:
    async with open_pair(**SLOW) as pair:
        near, far = await pair.register(PAGE_BYTES), await pair.register_far(1024 * PAGE_BYTES)
        transfer = write_all(pair.a, near, far)
        await asyncio.gather(near.region.deregister(), far.region.deregister())
        assert await transfer == far.array.size
        assert (far.array.reshape(-1, PAGE_BYTES) == near.array).all()
        await pair.works()


async def test_many_regions_at_once(pair: Pair) -> None:
    near = await pair.register(64)
    fars = [await pair.register_far(64) for _ in range(20)]
    await asyncio.gather(*(far.region.deregister() for far in fars))
    for far in fars:
        refuses(pair.a, near, far.remote)
    await pair.works()
