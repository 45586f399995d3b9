"""Page lists that cannot be moved: refused before the first post, with the position named.

After each of them the same endpoint still transfers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fabricio import RegionError

if TYPE_CHECKING:
    from tests.loopback.conftest import Pair

PAGE = 64
COUNT = 16
SIZE = PAGE * COUNT
GOOD = list(range(4))

MAX_I64 = (1 << 63) - 1

# Name -> source pages, destination pages, text of the error, position.
LISTS: dict[str, tuple[object, object, str, int | None]] = {
    "negative source": ([0, 1, -1, 2], GOOD, "index -1: indices count from 0", 2),
    "negative destination": (GOOD, [0, -5, 1, 2], "index -5: indices count from 0", 1),
    "source beyond": ([0, 1, 2, COUNT], GOOD, "must end within the region", 3),
    "destination beyond": (GOOD, [COUNT, 1, 2, 3], "must end within the region", 0),
    "far beyond": (GOOD, [0, 1, 2, MAX_I64], "must end within the region", 3),
    "just wrapping": (GOOD, [0, 1, 2, (1 << 64) // PAGE], "must end within the region", 3),
    "beyond 63 bits": (GOOD, [0, 1, 1 << 63, 3], "beyond 64 bits", 2),
    "beyond 64 bits": ([1 << 70, 1, 2, 3], GOOD, "beyond 64 bits", 0),
    "unsigned": (GOOD, np.array([0, 1, 2, 1 << 63], np.uint64), "beyond 64 bits", 3),
    "float": ([0, 1.0, 2, 3], GOOD, "a float: pass integers", 1),
    "bool": ([0, 1, 2, True], GOOD, "a bool: pass integers", 3),
    "None": (GOOD, [0, None, 1, 2], "a NoneType: pass integers", 1),
    "str": (GOOD, "0123", "pass a list", None),
    "bytes": (bytes(4), GOOD, "pass a list", None),
    "set": ({0, 1, 2, 3}, GOOD, "pass a list", None),
    "iterator": (iter(GOOD), GOOD, "pass a list", None),
    "int": (3, GOOD, "pass a list", None),
    "no list": (None, None, "pass a list", None),
    "float array": (np.arange(4.0), GOOD, "pass an integer array", None),
    "bool array": (GOOD, np.ones(4, bool), "pass an integer array", None),
    "two dimensions": (np.zeros((2, 2), int), GOOD, "dimensions", None),
    "nested": ([[0], [1], [2], [3]], GOOD, "a list: pass integers", 0),
    "shorter": ([0, 1, 2], GOOD, "equally long", None),
    "longer": (GOOD, [], "equally long", None),
    "twice": (GOOD, [5, 6, 7, 5], "named once", 3),
}


@pytest.mark.parametrize("name", LISTS)
async def test_wrong_lists(pair: Pair, name: str) -> None:
    source, destination, text, position = LISTS[name]
    near, far = await pair.register(SIZE), await pair.register_far(SIZE, seed=2)
    before = near.array.copy(), far.array.copy()
    sent: Any = None
    with pytest.raises(RegionError, match=text) as caught:
        sent = pair.a.write_pages(
            near.region, source, far.remote, destination, page_bytes=PAGE, notify="never"
        )
    assert sent is None
    assert caught.value.position == position
    source, destination, text, position = LISTS[name]
    if name != "iterator":
        with pytest.raises(RegionError, match=text) as caught:
            pair.a.read_pages(near.region, destination, far.remote, source, page_bytes=PAGE)
        assert caught.value.position == position
    await pair.works()
    assert np.array_equal(near.array, before[0])
    assert np.array_equal(far.array, before[1])


# Name -> arguments, text of the error.
LAYOUTS: dict[str, tuple[dict[str, Any], str]] = {
    "page of no byte": ({"page_bytes": 0}, "page_bytes is 0"),
    "negative page": ({"page_bytes": -1}, "page_bytes is -1"),
    "float page": ({"page_bytes": 8.0}, "page_bytes is 8.0"),
    "bool page": ({"page_bytes": True}, "page_bytes is True"),
    "page larger than the region": ({"page_bytes": SIZE + 1}, "must end within the region"),
    "page larger than memory": ({"page_bytes": (1 << 64) - 1}, "must end within the region"),
    "page beyond 64 bits": ({"page_bytes": 1 << 64}, "page_bytes is"),
    "small stride": ({"remote_stride_bytes": PAGE - 1}, "destination pages overlap"),
    "no stride": ({"remote_stride_bytes": 0}, "destination pages overlap"),
    "large stride": ({"remote_stride_bytes": SIZE}, "must end within the region"),
    "wrapping stride": ({"local_stride_bytes": (1 << 64) - 1}, "must end within the region"),
    "negative stride": ({"local_stride_bytes": -PAGE}, "local stride is -64"),
    "large offset": ({"local_offset_bytes": SIZE - 3}, "must end within the region"),
    "wrapping offset": ({"local_offset_bytes": (1 << 64) - 8}, "must end within the region"),
    "remote offset": ({"remote_offset_bytes": SIZE - 4 * PAGE + 1}, "must end within the region"),
    "wrapping remote": ({"remote_offset_bytes": (1 << 64) - 8}, "must end within the region"),
    "negative offset": ({"remote_offset_bytes": -1}, "remote offset is -1"),
    "float offset": ({"remote_offset_bytes": 0.0}, "remote offset is 0.0"),
}


@pytest.mark.parametrize("name", LAYOUTS)
async def test_wrong_layouts(pair: Pair, name: str) -> None:
    arguments, text = LAYOUTS[name]
    near, far = await pair.register(SIZE), await pair.register_far(SIZE)
    with pytest.raises(RegionError, match=text):
        pair.a.write_pages(near.region, GOOD, far.remote, GOOD, **{"page_bytes": PAGE, **arguments})
    swapped = {
        key.replace("local", "?").replace("remote", "local").replace("?", "remote"): value
        for key, value in arguments.items()
    }
    with pytest.raises(RegionError):
        pair.a.read_pages(near.region, GOOD, far.remote, GOOD, **{"page_bytes": PAGE, **swapped})
    assert not far.array.any()
    await pair.works()


async def test_one_wrong_page_among_many_posts_none(pair: Pair) -> None:
    count = 10_000
    near, far = await pair.register(count * 8), await pair.register_far(count * 8)
    pages = np.arange(count)
    pages[-1] = count
    for here, there in ((pages, np.arange(count)), (np.arange(count), pages)):
        with pytest.raises(RegionError, match="must end within") as caught:
            pair.a.write_pages(near.region, here, far.remote, there, page_bytes=8)
        assert caught.value.position == count - 1
    pages[-1] = 0
    with pytest.raises(RegionError, match=r"page 9999 .* which page 0 has too"):
        pair.a.write_pages(near.region, range(count), far.remote, pages, page_bytes=8)
    await pair.works()
    assert not far.array.any()


async def test_slices_bound_the_pages(pair: Pair) -> None:
    near, far = await pair.register(SIZE), await pair.register_far(SIZE)
    with pytest.raises(RegionError, match="must end within") as caught:
        pair.a.write_pages(near.region[: 2 * PAGE], [1, 2], far.remote, [0, 1], page_bytes=PAGE)
    assert caught.value.position == 1
    with pytest.raises(RegionError, match="must end within") as caught:
        pair.a.write_pages(near.region, [1, 2], far.remote[-PAGE:], [0, 1], page_bytes=PAGE)
    assert caught.value.position == 1
    assert not far.array.any()
    await pair.works()


async def test_the_local_side_may_not_be_longer(pair: Pair) -> None:
    near, far = await pair.register(SIZE), await pair.register_far(SIZE - 1)
    with pytest.raises(RegionError, match=f"{SIZE} bytes and the remote one {SIZE - 1}"):
        pair.a.write(near.region, far.remote)
    with pytest.raises(RegionError, match="slice of the local side"):
        pair.a.read(near.region[1:], far.remote[1:])
    with pytest.raises(RegionError, match="slice of the local side"):
        pair.a.write(near.region[:1], far.remote[:0])
    assert not far.array.any()
    await pair.works()
