"""Transfers and messages between two processes, and the end of a connection."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fabricio import ClosedResourceError

if TYPE_CHECKING:
    from tests.two_process.conftest import Link, OpenLink

SIZE = 1 << 20
SPARSE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE, from Python 3.13 on


def random_bytes(length_bytes: int, seed: int = 1) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(256, size=length_bytes, dtype=np.uint8)


async def test_write_and_read(link: Link) -> None:
    data = random_bytes(SIZE)
    region = await link.fabric.register(data)
    remote = await link.remote(SIZE)
    assert await link.endpoint.write(region, remote) == SIZE
    assert await link.holds(0, data.tobytes())
    expected = data.copy()
    data[:] = 0
    assert await link.endpoint.read(region[: SIZE // 2], remote[SIZE // 2 :]) == SIZE // 2
    assert np.array_equal(data[: SIZE // 2], expected[SIZE // 2 :])
    assert not data[SIZE // 2 :].any()


async def test_scattered_pages_both_ways(link: Link) -> None:
    page_bytes, count = 1000, 1000
    order = np.random.default_rng(4).permutation(count)
    data = random_bytes(count * page_bytes)
    pages = data.reshape(count, page_bytes)
    region = await link.fabric.register(data)
    remote = await link.remote(2 * data.size)
    await link.endpoint.write_pages(
        region, range(count), remote, order, page_bytes=page_bytes, remote_stride_bytes=2000
    )
    expected = np.zeros((count, 2000), np.uint8)
    expected[order, :page_bytes] = pages
    assert await link.holds(0, expected.tobytes())
    back = np.zeros_like(pages)
    target = await link.fabric.register(back)
    await link.endpoint.read_pages(
        target, order, remote, range(count), page_bytes=page_bytes, remote_stride_bytes=2000
    )
    assert np.array_equal(back[order], expected[:, :page_bytes])


@pytest.mark.parametrize("op", ["write", "read"])
async def test_the_peer_moves_pages_of_ours(link: Link, op: str) -> None:
    page_bytes, count = 4096, 200
    order = np.random.default_rng(5).permutation(count)
    data = random_bytes(2 * count * page_bytes)
    expected = data.reshape(2 * count, page_bytes).copy()
    region = await link.fabric.register(data)
    await link.remote(count * page_bytes, seed=6)
    theirs = np.frombuffer(np.random.default_rng(6).bytes(count * page_bytes), np.uint8)
    question: dict[str, object] = {"op": op, "region": region.share("rw"), "page_bytes": page_bytes}
    ours = (order + count).tolist()
    question |= {"local": list(range(count)), "remote": ours, "notify": {"done": op}}
    assert await link.ask(**question) == {"done": op}
    if op == "write":
        expected[ours] = theirs.reshape(count, page_bytes)
    else:
        assert await link.holds(0, expected[ours].tobytes())
    assert np.array_equal(data.reshape(2 * count, page_bytes), expected)


async def test_large_messages(link: Link) -> None:
    for length_bytes in (0, 1, 65_536, 1_000_003, (16 << 20) - 100):
        value = random_bytes(length_bytes).tobytes()
        answer = await link.ask(op="echo", value=value)
        assert answer["value"] == value


async def test_many_messages_keep_their_order(link: Link) -> None:
    for number in range(2000):
        await link.endpoint.send({"op": "echo", "value": number})
    for number in range(2000):
        assert await link.endpoint.recv() == {"value": number}


async def test_the_peer_closes(link: Link) -> None:
    await link.endpoint.send({"op": "echo", "value": "last"})
    await link.endpoint.send({"op": "close"})
    assert [message async for message in link.endpoint] == [{"value": "last"}]
    assert link.endpoint.closed
    with pytest.raises(ClosedResourceError, match="peer has closed"):
        await link.endpoint.send("more")


async def test_the_peers_process_ends_well(open_link: OpenLink) -> None:
    async with open_link() as (link, peer):
        assert await peer.end() == 0
        assert [message async for message in link.endpoint] == []


async def test_offsets_beyond_4_gib(link: Link) -> None:
    page_bytes, length_bytes = 65_536, (5 << 30) + 12_345
    memory = mmap.mmap(-1, length_bytes, flags=SPARSE)
    local_pages = [0, 70_000, 65_536, 81_919]
    remote_pages = [81_919, 65_535, 1, 70_001]
    data = random_bytes(4 * page_bytes).reshape(4, page_bytes)
    for page, row in zip(local_pages, data, strict=True):
        memory[page * page_bytes : (page + 1) * page_bytes] = row.tobytes()
    remote = await link.remote(length_bytes)
    async with await link.fabric.register(memory) as region:
        await link.endpoint.write_pages(
            region, local_pages, remote, remote_pages, page_bytes=page_bytes
        )
        for page, row in zip(remote_pages, data, strict=True):
            assert await link.holds(page * page_bytes, row.tobytes())
            assert await link.holds((page - 1) * page_bytes, bytes(page_bytes))
        # Back to where nothing is yet, at an odd offset.
        targets = [70_010, 3, 81_000, 5]
        await link.endpoint.read_pages(
            *(region, targets, remote, remote_pages),
            page_bytes=page_bytes,
            local_offset_bytes=12_345,
        )
        for page, row in zip(targets, data, strict=True):
            start = page * page_bytes + 12_345
            assert memory[start : start + page_bytes] == row.tobytes()
    memory.close()


async def test_several_connections_of_one_process(link: Link) -> None:
    async with await link.fabric.connect(link.address) as second:
        await second.send({"op": "echo", "value": 2})
        await link.endpoint.send({"op": "echo", "value": 1})
        assert await second.recv() == {"value": 2}
        assert await link.endpoint.recv() == {"value": 1}
        await second.aclose()
        await link.works()
