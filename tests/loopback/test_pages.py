"""Pages: any integer sequence, strides, offsets, one page and ten thousand; every byte checked."""

from __future__ import annotations

import asyncio
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.loopback.conftest import Memory, OpenPair, Pair

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def permutation(count: int, seed: int) -> list[int]:
    numbers: list[int] = np.random.default_rng(seed).permutation(count).tolist()
    return numbers


def after(
    destination: Memory, source: Memory, to_pages: list[int], from_pages: list[int], page: int
) -> Bytes:
    """What the destination must hold once pages without gaps were moved into it."""
    expected = destination.array.copy()
    for to_page, from_page in zip(to_pages, from_pages, strict=True):
        expected[to_page * page :][:page] = source.array[from_page * page :][:page]
    return expected


@pytest.mark.parametrize("read", [False, True], ids=["write", "read"])
async def test_permuted_pages_leave_the_others_alone(pair: Pair, read: bool) -> None:
    near, far = await pair.register(100 * 512), await pair.register_far(100 * 512, seed=2)
    here, there = permutation(100, 3)[:60], permutation(100, 4)[:60]
    if read:
        expected = after(near, far, here, there, 512)
        untouched = far.array.copy()
        moved = await pair.a.read_pages(near.region, here, far.remote, there, page_bytes=512)
        assert np.array_equal(near.array, expected)
        assert np.array_equal(far.array, untouched)
    else:
        expected = after(far, near, there, here, 512)
        moved = await pair.a.write_pages(near.region, here, far.remote, there, page_bytes=512)
        assert np.array_equal(far.array, expected)
    assert moved == 60 * 512


@pytest.mark.parametrize(
    "form",
    [
        tuple,
        lambda pages: array("q", pages),
        lambda pages: array("B", pages),
        lambda pages: np.array(pages, np.int64),
        lambda pages: np.array(pages, np.uint8),
        lambda pages: np.array(pages, ">u4"),
        lambda pages: np.repeat(np.array(pages), 2)[::2],
        lambda pages: [np.int32(page) for page in pages],
    ],
    ids=["tuple", "array-q", "array-B", "int64", "uint8", "big-endian", "strided", "scalars"],
)
async def test_any_integer_sequence(pair: Pair, form: Callable[[list[int]], object]) -> None:
    near, far = await pair.register(20 * 64), await pair.register_far(20 * 64)
    here, there = permutation(20, 5), permutation(20, 6)
    expected = after(far, near, there, here, 64)
    await pair.a.write_pages(near.region, form(here), far.remote, form(there), page_bytes=64)
    assert np.array_equal(far.array, expected)


async def test_ranges(pair: Pair) -> None:
    near, far = await pair.register(20 * 64), await pair.register_far(20 * 64)
    await pair.a.write_pages(
        near.region, range(0, 20, 2), far.remote, range(9, -1, -1), page_bytes=64
    )
    expected = near.array.reshape(20, 64)[::2][::-1].ravel()
    assert np.array_equal(far.array[:640], expected)
    assert not far.array[640:].any()


async def test_indices_may_change_after_the_call(pair: Pair) -> None:
    near, far = await pair.register(1000 * 64), await pair.register_far(1000 * 64)
    pages = np.arange(1000)
    transfer = pair.a.write_pages(near.region, pages, far.remote, pages, page_bytes=64)
    pages[:] = 0
    await transfer
    assert np.array_equal(far.array, near.array)


@pytest.mark.parametrize("read", [False, True], ids=["write", "read"])
async def test_strides_and_offsets_of_both_sides(pair: Pair, read: bool) -> None:
    near, far = await pair.register(10_000), await pair.register_far(10_000, seed=7)
    here, there = [7, 0, 3], [1, 19, 4]
    move = pair.a.read_pages if read else pair.a.write_pages
    expected_near, expected_far = near.array.copy(), far.array.copy()
    for one, other in zip(here, there, strict=True):
        left, right = 13 + 700 * one, 999 + 401 * other
        if read:
            expected_near[left : left + 400] = far.array[right : right + 400]
        else:
            expected_far[right : right + 400] = near.array[left : left + 400]
    await move(
        near.region,
        here,
        far.remote,
        there,
        page_bytes=400,
        local_stride_bytes=700,
        local_offset_bytes=13,
        remote_stride_bytes=401,
        remote_offset_bytes=999,
    )
    assert np.array_equal(near.array, expected_near)
    assert np.array_equal(far.array, expected_far)


async def test_slices_shift_the_pages(pair: Pair) -> None:
    near, far = await pair.register(1000), await pair.register_far(1000)
    await pair.a.write_pages(near.region[100:500], [1], far.remote[30:], [2], page_bytes=200)
    assert np.array_equal(far.array[430:630], near.array[300:500])
    assert not far.array[:430].any()
    assert not far.array[630:].any()


async def test_a_source_page_may_be_named_often(pair: Pair) -> None:
    near, far = await pair.register(256), await pair.register_far(4096)
    await pair.a.write_pages(near.region, [0] * 16, far.remote, range(16), page_bytes=256)
    assert np.array_equal(far.array, np.tile(near.array, 16))
    # Source pages may overlap as well.
    await pair.a.write_pages(
        near.region, range(16), far.remote, range(16), page_bytes=8, local_stride_bytes=1
    )
    expected = np.concatenate([near.array[at : at + 8] for at in range(16)])
    assert np.array_equal(far.array[:128], expected)


async def test_one_page(pair: Pair) -> None:
    near, far = await pair.register(4096), await pair.register_far(4096)
    transfer = pair.a.write_pages(near.region, [0], far.remote, [0], page_bytes=4096)
    assert await transfer == 4096
    assert (transfer.pages_done, transfer.bytes_done) == (1, 4096)
    assert np.array_equal(far.array, near.array)


async def test_one_byte(pair: Pair) -> None:
    near, far = await pair.register(3), await pair.register_far(3)
    assert await pair.a.write(near.region[1:2], far.remote[2:]) == 1
    assert far.array.tolist() == [0, 0, near.array[1]]


async def test_adjacent_pages_become_one_operation(pair: Pair) -> None:
    near, far = await pair.register(64 * 64), await pair.register_far(64 * 64)
    before = pair.near.statistics()
    await pair.a.write_pages(near.region, range(64), far.remote, range(64), page_bytes=64)
    after = pair.near.statistics()
    assert after.pages - before.pages == 64
    assert after.bytes_written - before.bytes_written == 64 * 64
    assert np.array_equal(far.array, near.array)


async def test_the_loop_runs_while_ten_thousand_pages_move(
    open_pair: OpenPair, record_property: Callable[[str, object], None]
) -> None:
    count, page = 10_000, 4096
    # One operation at a time: the transfer takes far longer than a tick, however fast the machine.
    async with open_pair(inflight_count=1, merge=False) as pair:
        loop = asyncio.get_running_loop()
        near, far = await pair.register(count * page), await pair.register_far(count * page)
        here, there = permutation(count, 8), permutation(count, 9)
        ticks, seen = [loop.time()], [0]

        async def tick() -> None:
            while True:
                await asyncio.sleep(0.005)
                ticks.append(loop.time())
                seen.append(transfer.pages_done)

        ticking = asyncio.create_task(tick())
        transfer = pair.a.write_pages(near.region, here, far.remote, there, page_bytes=page)
        assert await transfer == count * page
        ticking.cancel()
        assert len(ticks) > 1
        assert seen == sorted(seen)
        assert min(seen[1:]) < count
        record_property("longest_gap_s", float(max(np.diff(ticks))))
        expected = np.empty((count, page), np.uint8)
        expected[there] = near.array.reshape(count, page)[here]
        assert np.array_equal(far.array, expected.ravel())


@pytest.mark.parametrize("read", [False, True], ids=["write", "read"])
async def test_many_transfers_deeper_than_the_queue(pair: Pair, read: bool) -> None:
    count, page = 64, 256
    near, far = await pair.register(count * page), await pair.register_far(count * page, seed=3)
    move = pair.a.read_pages if read else pair.a.write_pages
    source, target = (far, near) if read else (near, far)
    transfers = [
        move(near.region, [index], far.remote, [index], page_bytes=page)
        for _ in range(2 * pair.near.attributes.inflight_count // count)
        for index in range(count)
    ]
    for transfer in transfers:
        assert await transfer == page
    assert np.array_equal(source.array, target.array)
