"""Several workers and NICs: what is moved, whatever their numbers, and how they are chosen."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fabricio import ClosedResourceError, Fabric, OptionsError, RegionError
from fabricio.testing import check_endpoint_pair
from tests.loopback.conftest import ENDLESS_PAGE_BYTES, Endless, Pair, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PAGE_BYTES, PAGES = 4096, 700
STRIPE: dict[str, Any] = {"stripe_bytes": 4096}

SHAPES = pytest.mark.parametrize(
    ("near_workers", "far_workers"), [(2, 2), (3, 1), (1, 3), (2, 3)], ids=str
)


@asynccontextmanager
async def open_shaped(
    options: dict[str, Any],
    near_workers: int,
    far_workers: int,
    **more: Any,  # noqa: ANN401  (FabricOptions types them)
) -> AsyncIterator[Pair]:
    async with (
        Fabric(**options, **STRIPE, **more, workers=near_workers) as near,
        Fabric(**options, **STRIPE, **more, workers=far_workers) as far,
    ):
        yield Pair(near, far, *await connect(near, far))


def affinities() -> dict[str, set[int]]:
    """CPUs of each engine thread, by its name."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # the thread that looked at the machine ends by itself
            name = (task / "comm").read_text().strip()
            if name.startswith("fab-w"):
                found[name] = os.sched_getaffinity(int(task.name))
    return found


@SHAPES
async def test_everything_works(
    options: dict[str, Any], near_workers: int, far_workers: int
) -> None:
    async with open_shaped(options, near_workers, far_workers) as pair:
        assert len(pair.near.attributes.lane_counts) == near_workers
        await check_endpoint_pair(pair.a, pair.b, page_bytes=20_000, page_count=64)
        again = await pair.connect()
        await check_endpoint_pair(*again)
        await asyncio.gather(*(end.aclose() for end in again))
        await pair.works()


@SHAPES
async def test_many_at_once_each_notified_once(
    options: dict[str, Any], near_workers: int, far_workers: int
) -> None:
    random = np.random.default_rng(3)
    async with open_shaped(options, near_workers, far_workers) as pair:
        near = await pair.register(PAGES * PAGE_BYTES, seed=1)
        far = await pair.register_far(PAGES * PAGE_BYTES)
        places = random.permutation(PAGES)
        parts = np.array_split(np.arange(PAGES), 20)
        transfers = [
            pair.a.write_pages(
                near.region,
                part,
                far.remote,
                places[part],
                page_bytes=PAGE_BYTES,
                notify=number,
            )
            for number, part in enumerate(parts)
        ]
        for number in range(20):
            assert await pair.b.recv() == number
            rows = far.array.reshape(PAGES, PAGE_BYTES)[places[parts[number]]]
            assert np.array_equal(rows, near.array.reshape(PAGES, PAGE_BYTES)[parts[number]])
        assert sum([await transfer for transfer in transfers]) == PAGES * PAGE_BYTES
        await near.region.deregister()
        await far.region.deregister()
        await pair.works()


async def test_closing_under_transfers(options: dict[str, Any]) -> None:
    async with open_shaped(options, 2, 2, inflight_count=1, segments=1, merge=False) as pair:
        page = await pair.register(ENDLESS_PAGE_BYTES)
        count = 1 << 20
        far = await pair.register_far(count * ENDLESS_PAGE_BYTES)
        transfer = Endless(pair.a, page, far, count).write(notify="never")
        while not transfer.pages_done:
            await pair.a.flush()
        await pair.a.aclose()
        with pytest.raises(ClosedResourceError):
            await transfer
        again = await pair.connect()
        await check_endpoint_pair(*again)


async def test_cancelling_on_several_workers(options: dict[str, Any]) -> None:
    async with open_shaped(options, 2, 2, inflight_count=1, segments=1, merge=False) as pair:
        page = await pair.register(ENDLESS_PAGE_BYTES)
        count = 1 << 20
        far = await pair.register_far(count * ENDLESS_PAGE_BYTES)
        transfer = Endless(pair.a, page, far, count).write()
        while not transfer.pages_done:
            await pair.a.flush()
        assert transfer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await transfer
        await pair.works()


async def test_threads_are_named_and_pinned(options: dict[str, Any]) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    async with Fabric(**options, workers=2) as fabric:
        assert await asyncio.to_thread(affinities) == {"fab-w0": set(cpus), "fab-w1": set(cpus)}
        assert fabric.attributes.lane_counts == (1, 1)
    async with Fabric(**options, pin=[cpus[-1]]):
        assert await asyncio.to_thread(affinities) == {"fab-w0": {cpus[-1]}}


async def test_a_nic_that_is_not_there(options: dict[str, Any]) -> None:
    with pytest.raises(OptionsError, match=r"no NIC 'nowhere0'; there are: \w+"):
        await Fabric(**options, nics=["nowhere0"]).__aenter__()


async def test_a_cpu_that_is_not_there(options: dict[str, Any]) -> None:
    with pytest.raises(OptionsError, match="CPU 4095 is none that this process may use"):
        await Fabric(**options, pin=[4095]).__aenter__()


async def test_a_gpu_that_is_not_there(options: dict[str, Any]) -> None:
    with pytest.raises(OptionsError, match="there is no GPU 99"):
        await Fabric(**options, gpus=[99]).__aenter__()


async def test_memory_of_one_node(options: dict[str, Any]) -> None:
    async with open_shaped(options, 2, 2) as pair:
        array = np.arange(1 << 16, dtype=np.uint8)
        region = await pair.near.register(array, spread=False)
        assert region.workers == 0b11  # this host's workers are on its one node, or on none known
        far = await pair.register_far(len(array))
        await pair.a.write(region, far.remote)
        assert np.array_equal(far.array, array)
        await region.deregister()


async def test_no_path_between_the_workers_of_both_sides(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_shaped(options, 2, 2) as pair:
        monkeypatch.setattr("fabricio.memory.workers_for_node", lambda plans, node: (0,))
        region = await pair.near.register(bytearray(PAGE_BYTES), spread=False)
        assert region.workers == 0b01
        far = await pair.register_far(PAGE_BYTES)
        await pair.a.write(region, far.remote)
        far.remote.workers = 0b10
        with pytest.raises(RegionError, match="no path leads"):
            pair.a.write(region, far.remote)
        await pair.works()
