"""Page lists: what counts as an index, layouts, and the texts of faults."""

import sys
from array import array
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricio.errors import RegionError
from fabricio.pages import Indices, PageLayout, as_indices, layout

if TYPE_CHECKING:
    from collections.abc import Sequence

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def read_back(indices: Indices) -> list[int]:
    view = memoryview(indices)
    assert view.c_contiguous
    assert view.itemsize == 8
    assert view.ndim == 1
    return list(view.cast("B").cast("q"))


def make(local: object, remote: object, **changes: object) -> PageLayout:
    arguments: dict[str, Any] = {
        "page_bytes": 4096,
        "read": False,
        "local_length_bytes": 1 << 20,
        "remote_length_bytes": 1 << 20,
        **changes,
    }
    return layout(local, remote, **arguments)


@given(st.lists(INT64))
def test_any_integer_sequence(values: list[int]) -> None:
    for pages in (values, tuple(values), deque(values), array("q", values)):
        assert read_back(as_indices(pages, "pages")) == values
    assert read_back(as_indices(np.array(values, dtype=np.int64), "pages")) == values


@pytest.mark.parametrize(
    "pages",
    [
        range(3, 30, 7),
        range(0),
        [],
        array("i", [1, 2, 3]),
        array("B", [200, 7]),
        pytest.param(memoryview(array("q", [5, 6])), id="memoryview"),
        [np.int16(3), np.uint64(4)],
        np.arange(5, dtype=np.uint8),
        np.arange(5, dtype=np.int16)[::-1],
        np.arange(5, dtype=">i4"),
        np.arange(20, dtype=np.int64)[::3],
        np.array([1, (1 << 63) - 1], dtype=np.uint64),
        np.array([]),
    ],
    ids=repr,
)
def test_other_sequences(pages: "Sequence[int]") -> None:
    assert read_back(as_indices(pages, "pages")) == [int(page) for page in pages]


def test_no_copy_where_none_is_needed() -> None:
    pages = array("q", [1, 2])
    assert as_indices(pages, "pages") is pages
    values = np.arange(3)
    indices = as_indices(values, "pages")
    values[0] = 9
    assert read_back(indices) == [9, 1, 2]


@pytest.mark.parametrize(
    ("pages", "position"),
    [
        ([0, True], 1),
        ([False], 0),
        ([1, 2, 3.0], 2),
        ([1, "2"], 1),
        ([None], 0),
        ([1 << 63], 0),
        ([0, -(1 << 63) - 1], 1),
        (range(1 << 63, (1 << 63) + 2), 0),
        (array("d", [1.0]), 0),
        (np.array([1, 1 << 63], dtype=np.uint64), 1),
        ([[1, 2]], 0),
    ],
    ids=repr,
)
def test_wrong_element_is_named(pages: object, position: int) -> None:
    with pytest.raises(RegionError, match=rf"pages\[{position}\] is") as caught:
        as_indices(pages, "pages")
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("pages", "text"),
    [
        (np.zeros((2, 2), dtype=int), "2 dimensions"),
        (np.array(3), "0 dimensions"),
        (np.array([1.0]), "float64"),
        (np.array([True]), "bool"),
        (np.array([None]), "object"),
        pytest.param(np.zeros((2, 2), dtype=int).data, "one-dimensional", id="memoryview"),
        ([np.True_], "pages"),
        (b"abc", "bytes"),
        ("123", "str"),
        (bytearray(3), "bytearray"),
        ({1, 2}, "set"),
        ({1: 2}, "dict"),
        pytest.param(iter([1]), "list_iterator", id="iterator"),
        (3, "int"),
        (None, "NoneType"),
    ],
    ids=repr,
)
def test_not_a_list_of_integers(pages: object, text: str) -> None:
    with pytest.raises(RegionError, match=text):
        as_indices(pages, "pages")


def test_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    class Foreign:
        def __array__(self) -> None: ...

    monkeypatch.setitem(sys.modules, "numpy", None)
    assert read_back(as_indices([4, 5], "pages")) == [4, 5]
    with pytest.raises(RegionError, match="needs numpy"):
        as_indices(Foreign(), "pages")


def test_layout_defaults_and_values() -> None:
    made = make([1, 2, 3], [7, 8, 9])
    assert (made.count, made.page_bytes, made.read) == (3, 4096, False)
    assert made.local.stride_bytes == made.remote.stride_bytes == 4096
    assert made.local.offset_bytes == made.remote.offset_bytes == 0
    made = make([1], [1], local_stride_bytes=0, remote_offset_bytes=np.int64(1 << 40))
    assert made.local.stride_bytes == 0
    assert made.remote.offset_bytes == 1 << 40


def test_no_pages_are_a_layout_too() -> None:
    assert make([], range(0)).count == 0


def test_lists_of_different_length() -> None:
    with pytest.raises(RegionError, match="3 local pages and 1 remote ones"):
        make([1, 2, 3], [1])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("page_bytes", 0),
        ("page_bytes", -1),
        ("page_bytes", 1.0),
        ("page_bytes", True),
        ("page_bytes", 1 << 64),
        ("local_offset_bytes", -1),
        ("remote_offset_bytes", "0"),
        ("local_stride_bytes", -4096),
        ("remote_stride_bytes", 1 << 64),
    ],
)
def test_layout_refuses_numbers_out_of_range(name: str, value: object) -> None:
    shown = name if name == "page_bytes" else name.removesuffix("_bytes").replace("_", " ")
    with pytest.raises(RegionError, match=f"{shown} is .*: pass an integer"):
        make([0], [0], **{name: value})


def test_fault_texts() -> None:
    made = make([5, -1, 700], [1, 1, 9000], remote_stride_bytes=100, remote_offset_bytes=10)
    error = made.fault("local_range", 1)
    assert "page 1 of the list has local index -1" in str(error)
    assert error.position == 1
    error = made.fault("local_range", 2)
    assert "local index 700, is bytes 2867200 to 2871296" in str(error)
    assert "local region of 1048576 bytes" in str(error)
    error = made.fault("remote_range", 2)
    assert "remote index 9000, is bytes 900010 to 904106" in str(error)
    error = made.fault("duplicate", 1, first=0)
    assert "page 1 of the list has remote index 1, which page 0 has too" in str(error)
    error = made.fault("stride", 0)
    assert "remote stride of 100 bytes is less than page_bytes=4096" in str(error)
    assert "several transfers" in str(made.fault("no_memory", 0))
    read = make([3, 3], [1, 2], read=True)
    assert "page 1 of the list has local index 3" in str(read.fault("duplicate", 1, first=0))
