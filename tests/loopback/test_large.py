"""Offsets beyond 2^32, and operations longer than the provider takes at once."""

from __future__ import annotations

import mmap
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fabricio import MemoryRegion, RemoteRegion

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.loopback.conftest import OpenPair, Pair

GIB = 1 << 30
SPARSE = 5 * GIB  # only pages that are touched take memory

Sparse = tuple[mmap.mmap, MemoryRegion, RemoteRegion]


@pytest.fixture
async def sparse(pair: Pair) -> AsyncIterator[Sparse]:
    """A huge mapping of the far side, shared with the near one."""
    memory = mmap.mmap(-1, SPARSE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    region = await pair.far.register(memory)
    await pair.b.send(region.share("rw"))
    remote = await pair.a.recv()
    assert isinstance(remote, RemoteRegion)
    yield memory, region, remote
    await region.deregister()
    memory.close()


async def test_pages_beyond_4_gib(pair: Pair, sparse: Sparse) -> None:
    memory, _, remote = sparse
    near = await pair.register(16 * 4096)
    count = SPARSE // 4096
    # Such that 32 bits would take one for the other.
    there = [0, (1 << 32) // 4096, count - 1, (1 << 32) // 4096 + 1, 1]
    here = [3, 1, 4, 0, 5]
    await pair.a.write_pages(near.region, here, remote, there, page_bytes=4096)
    for one, other in zip(here, there, strict=True):
        assert (
            memory[other * 4096 : other * 4096 + 4096] == near.array[one * 4096 :][:4096].tobytes()
        )
    back = await pair.register(16 * 4096, seed=2)
    await pair.a.read_pages(back.region, here, remote, there, page_bytes=4096)
    for one in here:
        assert np.array_equal(back.array[one * 4096 :][:4096], near.array[one * 4096 :][:4096])
    await pair.works()


async def test_offsets_and_strides_beyond_4_gib(pair: Pair, sparse: Sparse) -> None:
    memory, region, remote = sparse
    near = await pair.register(1000)
    at = (1 << 32) + 123
    await pair.a.write(near.region, remote[at:])
    assert memory[at : at + 1000] == near.array.tobytes()
    assert not any(memory[123 : 123 + 1000])
    await pair.a.write_pages(
        near.region, [1, 0], remote, [0, 1], page_bytes=400,
        remote_offset_bytes=7, remote_stride_bytes=1 << 32,
    )  # fmt: skip
    assert memory[7:407] == near.array[400:800].tobytes()
    second = 7 + (1 << 32)
    assert memory[second : second + 400] == near.array[:400].tobytes()
    # The huge mapping as the local side.
    far = await pair.register(1000, seed=3)
    await pair.b.read(region[at + 5 :][:500], far.remote)
    assert memory[at + 5 : at + 505] == far.array[:500].tobytes()
    await pair.b.write(region[at + 5 :][:500], far.remote[500:])
    assert np.array_equal(far.array[500:], far.array[:500])
    await pair.works()


@pytest.mark.parametrize("maximum", [1, 4095, 65536])
async def test_operations_are_cut_to_the_maximum(open_pair: OpenPair, maximum: int) -> None:
    size = min(maximum * 1000, 3 << 20) + 1
    async with open_pair(max_operation_bytes=maximum) as pair:
        assert pair.near.attributes.max_operation_bytes == maximum
        near, far = await pair.register(size), await pair.register_far(size)
        before = pair.near.statistics()
        await pair.a.write(near.region, far.remote, notify="all")
        assert await pair.b.recv() == "all"
        assert np.array_equal(near.array, far.array)
        after = pair.near.statistics()
        assert after.operations_posted - before.operations_posted >= size // maximum
        near.array[:] = 0
        await pair.a.read(near.region, far.remote)
        assert np.array_equal(near.array, far.array)
        await pair.works()


async def test_longer_than_the_providers_own_maximum(pair: Pair) -> None:
    size = 4 * min(pair.near.attributes.max_operation_bytes, 1 << 22) + 4097
    near, far = await pair.register(size), await pair.register_far(size)
    assert await pair.a.write(near.region, far.remote) == size
    assert np.array_equal(near.array, far.array)
    near.array[:] = 0
    assert await pair.a.read(near.region, far.remote) == size
    assert np.array_equal(near.array, far.array)


async def test_random_layouts_against_a_model(open_pair: OpenPair) -> None:
    """Many transfers of every kind at once, whose destinations do not meet."""
    rng = random.Random(11)
    limits: dict[str, Any] = {"max_operation_bytes": 3000, "inflight_count": 8}
    async with open_pair(**limits) as pair:
        lanes, lane_bytes = 6, 20_000
        near = await pair.register(lanes * lane_bytes)
        far = await pair.register_far(lanes * lane_bytes, seed=5)
        for _ in range(20):
            near_model, far_model = near.array.copy(), far.array.copy()
            transfers = []
            for lane in range(lanes):
                read = lane % 2 == 1
                start = lane * lane_bytes
                page = rng.randrange(1, 900)
                stride, other_stride = page + rng.randrange(200), rng.randrange(1, 1100)
                count = rng.randrange(1, lane_bytes // max(stride, other_stride, page) + 1)
                count = min(count, (lane_bytes - page) // max(stride, other_stride) + 1)
                to_pages = rng.sample(range(count), count)
                from_pages = [rng.randrange(count) for _ in range(count)]
                if rng.random() < 0.3:
                    stride, to_pages, from_pages = page, list(range(count)), list(range(count))
                    other_stride = page
                for to_page, from_page in zip(to_pages, from_pages, strict=True):
                    to, at = start + to_page * stride, start + from_page * other_stride
                    if read:
                        near_model[to : to + page] = far.array[at : at + page]
                    else:
                        far_model[to : to + page] = near.array[at : at + page]
                local, remote = near.region[start:][:lane_bytes], far.remote[start:][:lane_bytes]
                if read:
                    transfers.append(
                        pair.a.read_pages(
                            local, to_pages, remote, from_pages, page_bytes=page, notify=lane,
                            local_stride_bytes=stride, remote_stride_bytes=other_stride,
                        )
                    )  # fmt: skip
                else:
                    transfers.append(
                        pair.a.write_pages(
                            local, from_pages, remote, to_pages, page_bytes=page, notify=lane,
                            local_stride_bytes=other_stride, remote_stride_bytes=stride,
                        )
                    )  # fmt: skip
            assert [await pair.b.recv() for _ in range(lanes)] == list(range(lanes))
            for transfer in transfers:
                await transfer
            assert np.array_equal(near.array, near_model)
            assert np.array_equal(far.array, far_model)
