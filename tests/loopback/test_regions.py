"""Registering memory of every kind, slices, and sharing."""

from __future__ import annotations

import asyncio
import mmap
import os
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fabricio import (
    Fabric,
    LocalProtocolError,
    MemoryRegion,
    RegionError,
    RemoteRegion,
    UnsupportedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.loopback.conftest import Pair

SIZE = 8192


def fortran() -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.asfortranarray(np.zeros((SIZE // 32, 8), np.float32))


def shared() -> mmap.mmap:
    descriptor = os.memfd_create("fabricio-test")
    try:
        os.ftruncate(descriptor, SIZE)
        return mmap.mmap(descriptor, SIZE)
    finally:
        os.close(descriptor)


KINDS: dict[str, Callable[[], Any]] = {
    "bytearray": lambda: bytearray(SIZE),
    "memoryview": lambda: memoryview(bytearray(2 * SIZE))[SIZE // 2 : SIZE // 2 + SIZE],
    "array": lambda: array("d", bytes(SIZE)),
    "numpy": lambda: np.zeros((SIZE // 32, 4, 8), np.uint8),
    "fortran": fortran,
    "records": lambda: np.zeros(SIZE // 12, [("a", "<f8"), ("b", "<i4")]),
    "dates": lambda: np.zeros(SIZE // 8, "datetime64[ns]"),
    "anonymous shared memory": lambda: mmap.mmap(-1, SIZE),
    "named shared memory": shared,
}


@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_of_memory(pair: Pair, kind: str) -> None:
    memory = KINDS[kind]()
    source = await pair.register(SIZE)
    region = await pair.far.register(memory)
    length = region.length_bytes
    assert length >= SIZE - 12
    assert (region.path, region.access) == ("direct", "rw")
    await pair.b.send(region.share("rw"))
    remote = await pair.a.recv()
    assert isinstance(remote, RemoteRegion)
    await pair.a.write(source.region[:length], remote)
    # Fortran's order is the order of the bytes in memory.
    plain = memory.T if kind == "fortran" else memory
    held = plain.tobytes() if isinstance(plain, np.ndarray) else bytes(memoryview(plain).cast("B"))
    assert held == source.array[:length].tobytes()
    await region.deregister()
    if isinstance(memory, mmap.mmap):
        memory.close()
    await pair.works()


@pytest.mark.parametrize("obj", [b"constant", memoryview(b"constant"), np.broadcast_to(1, 1)])
async def test_read_only_memory_can_be_read_by_peers(pair: Pair, obj: object) -> None:
    with pytest.raises(RegionError, match="read-only"):
        await pair.near.register(obj)
    with pytest.raises(RegionError, match="read-only"):
        await pair.near.register(obj, "w")
    region = await pair.near.register(obj, "r")
    await pair.a.send(region.share("r"))
    remote = await pair.b.recv()
    assert isinstance(remote, RemoteRegion)
    target = await pair.far.register(bytearray(remote.length_bytes))
    assert await pair.b.read(target, remote) == remote.length_bytes
    with pytest.raises(RegionError, match="cannot be read into"):
        pair.a.read(region, (await pair.register_far(64)).remote)
    await pair.works()


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        (bytearray(), "length 0"),
        (np.zeros(0), "length 0"),
        (np.zeros((8, 8))[:, ::2], "not contiguous"),
        (memoryview(bytearray(8))[::2], "not contiguous"),
        (np.array([object()]), "Python objects"),
        ([1, 2, 3], "has no memory"),
        (None, "has no memory"),
        ("text", "has no memory"),
    ],
    ids=["bytearray", "numpy", "strided", "view", "objects", "list", "None", "str"],
)
async def test_what_cannot_be_registered(pair: Pair, obj: object, text: str) -> None:
    with pytest.raises(RegionError, match=text):
        await pair.near.register(obj)
    await pair.works()


async def test_gpu_memory_is_refused(pair: Pair) -> None:
    class Array:
        __cuda_array_interface__ = {"shape": (8,), "typestr": "<f8", "data": (1, False)}  # noqa: RUF012  (as the protocol has it)

    with pytest.raises(UnsupportedError, match="GPU"):
        await pair.near.register(Array())
    await pair.works()


@pytest.mark.parametrize("access", ["x", "wr", "rwx", None, 3])
async def test_unknown_access(pair: Pair, access: Any) -> None:  # noqa: ANN401
    with pytest.raises(RegionError, match="access"):
        await pair.near.register(bytearray(8), access)
    await pair.works()


async def test_the_same_buffer_twice_and_overlapping_views(pair: Pair) -> None:
    source = await pair.register(SIZE)
    target = np.zeros(SIZE, np.uint8)
    first = await pair.far.register(target)
    again = await pair.far.register(target)
    middle = await pair.far.register(target[SIZE // 4 : -SIZE // 4])
    await pair.b.send([region.share("rw") for region in (first, again, middle)])
    remotes = await pair.a.recv()
    assert isinstance(remotes, list)
    for remote in remotes:
        target[:] = 0
        await pair.a.write(source.region[: remote.length_bytes], remote)
    expected = np.zeros(SIZE, np.uint8)
    expected[SIZE // 4 : -SIZE // 4] = source.array[: SIZE // 2]
    assert np.array_equal(target, expected)
    await first.deregister()  # the others go on
    await pair.a.write(source.region, remotes[1])
    await pair.a.write(source.region[: SIZE // 2], remotes[2])
    expected[:] = source.array
    expected[SIZE // 4 : -SIZE // 4] = source.array[: SIZE // 2]
    assert np.array_equal(target, expected)
    await pair.works()


async def test_a_registered_bytearray_cannot_be_resized(pair: Pair) -> None:
    memory = bytearray(SIZE)
    region = await pair.near.register(memory)
    with pytest.raises(BufferError):
        memory.append(1)
    with pytest.raises(BufferError):
        memory.clear()
    await pair.works()
    await region.deregister()
    memory.append(1)


async def test_the_memory_of_a_dropped_object_stays(pair: Pair) -> None:
    source = await pair.register(SIZE)
    region = await pair.far.register(np.zeros(SIZE, np.uint8))  # nobody else has the array
    await pair.b.send(region.share("rw"))
    remote = await pair.a.recv()
    assert isinstance(remote, RemoteRegion)
    await pair.a.write(source.region, remote)
    back = await pair.near.register(bytearray(SIZE))
    await pair.a.read(back, remote)
    await pair.works()


async def test_deregistering(pair: Pair) -> None:
    memory = bytearray(SIZE)
    target = await pair.register_far(SIZE)
    async with await pair.near.register(memory) as region:
        assert not region.closed
        part = region[:100]
        await pair.a.write(region, target.remote)
    assert region.closed
    await region.deregister()
    await asyncio.gather(region.deregister(), region.deregister())
    for call in (
        lambda: region.share("r"),
        lambda: part.share("r"),
        lambda: pair.a.write(region, target.remote),
        lambda: pair.a.read(part, target.remote),
    ):
        with pytest.raises(RegionError, match="deregistered"):
            call()
    await pair.works()


async def test_a_deregistered_region_cannot_be_sent(pair: Pair) -> None:
    region = await pair.near.register(bytearray(SIZE))
    shared = region.share("rw")
    await region.deregister()
    with pytest.raises(RegionError, match="deregistered"):
        await pair.a.send([shared])
    await pair.works()


async def test_deregistering_waits_for_the_transfer(pair: Pair) -> None:
    source, target = await pair.register(1 << 20), await pair.register_far(1 << 20)
    transfer = pair.a.write(source.region, target.remote)
    await source.region.deregister()
    assert await transfer == 1 << 20
    assert np.array_equal(source.array, target.array)
    await pair.works()


async def test_slices(pair: Pair) -> None:
    region = await pair.near.register(bytearray(100))
    part = region[10:-10]
    assert (part.offset_bytes, part.length_bytes) == (10, 80)
    assert (part[5:].offset_bytes, part[5:].length_bytes) == (15, 75)
    assert (part[-5:].offset_bytes, part[-5:].length_bytes) == (85, 5)
    assert (region[:].offset_bytes, region[:].length_bytes) == (0, 100)
    assert region[100:].length_bytes == part[7:7].length_bytes == 0
    await pair.a.send([part.share("r"), region.share("rw")])
    remotes = await pair.b.recv()
    assert isinstance(remotes, list)
    assert [remote.length_bytes for remote in remotes] == [80, 100]
    assert [remote.access for remote in remotes] == ["r", "rw"]
    assert remotes[0].base == remotes[1].base + 10
    assert remotes[1][10:90][5:].length_bytes == 75
    assert remotes[1][10:90][5:].base == remotes[0][5:].base
    for sliced in (region, part, remotes[0]):
        for key in (slice(0, 1000), slice(-1000, 0), slice(50, 20), slice(0, 10, 2), 5, slice("a")):
            with pytest.raises(RegionError, match=r"slice|integer"):
                sliced[key]  # type: ignore[index]  # wrong on purpose
    await pair.works()


async def test_shared_regions_anywhere_in_a_message(pair: Pair) -> None:
    memory = np.arange(SIZE, dtype=np.uint8)
    region = await pair.far.register(memory)
    message = {"a": [{"b": (region.share("r"), [region[100:200].share("w")])}], "c": 1}
    await pair.b.send(message)
    received: Any = await pair.a.recv()
    whole, (part,) = received["a"][0]["b"]
    assert received["c"] == 1
    assert (whole.length_bytes, part.length_bytes) == (SIZE, 100)
    into = bytearray(SIZE)
    await pair.a.read(await pair.near.register(into), whole)
    assert into == memory.tobytes()
    ones = await pair.near.register(bytearray([1] * 100))
    await pair.a.write(ones, part, notify=[{"again": region.length_bytes}])
    assert await pair.b.recv() == [{"again": SIZE}]
    assert memory[100:200].tobytes() == bytes([1] * 100)
    await pair.works()


async def test_access_is_granted_by_registering_and_sharing(pair: Pair) -> None:
    region = await pair.far.register(bytearray(SIZE), "r")
    secret = await pair.far.register(bytearray(SIZE), "")
    for access in ("w", "rw"):
        with pytest.raises(RegionError, match="more than the region was registered with"):
            region.share(access)
    with pytest.raises(RegionError, match="more than"):
        secret.share("r")
    with pytest.raises(RegionError, match="gives nothing"):
        region.share("")
    await pair.b.send(region.share("r"))
    readable = await pair.a.recv()
    writable = (await pair.register_far(SIZE, "w")).remote
    local = (await pair.register(SIZE)).region
    assert isinstance(readable, RemoteRegion)
    with pytest.raises(RegionError, match="does not allow write"):
        pair.a.write(local, readable)
    with pytest.raises(RegionError, match="does not allow read"):
        pair.a.read(local, writable)
    with pytest.raises(RegionError, match="does not allow write"):
        pair.a.write_pages(local, [0], readable, [0], page_bytes=8)
    with pytest.raises(RegionError, match="does not allow read"):
        pair.a.read_pages(local, [0], writable, [0], page_bytes=8)
    await pair.works()


async def test_what_is_no_shared_region_is_not_sent(pair: Pair) -> None:
    local, target = await pair.register(64), await pair.register_far(64)
    for value in (local.region, local.region[:8], target.remote):
        with pytest.raises(LocalProtocolError, match=r"share|owner"):
            await pair.a.send({"region": value})
    async with Fabric(provider=pair.near.options.provider) as other:
        foreign = await other.register(bytearray(64))
        with pytest.raises(LocalProtocolError, match="another Fabric"):
            await pair.a.send(foreign.share("r"))
    await pair.works()


async def test_regions_of_others_are_refused(pair: Pair) -> None:
    local, target = await pair.register(64), await pair.register_far(64)
    foreign: MemoryRegion = target.region
    with pytest.raises(RegionError, match="another Fabric"):
        pair.a.write(foreign, target.remote)
    with pytest.raises(RegionError, match="another Fabric"):
        pair.a.read_pages(foreign[8:], [0], target.remote, [0], page_bytes=8)
    other, other_end = await pair.connect()
    with pytest.raises(RegionError, match="another endpoint"):
        other.write(local.region, target.remote)
    for wrong in (None, bytearray(64), target.remote):
        with pytest.raises(RegionError, match="local side"):
            pair.a.write(wrong, target.remote)  # type: ignore[arg-type]  # wrong on purpose
    for other_side in (None, local.region, local.region.share("rw")):
        with pytest.raises(RegionError, match="remote side"):
            pair.a.write(local.region, other_side)  # type: ignore[arg-type]  # wrong on purpose
    await other.aclose()
    await other_end.aclose()
    await pair.works()
