"""Page lists: from any integer sequence to 64-bit indices, layout, and what is wrong with them.

Page i of one side lies at `offset_bytes + indices[i] * stride_bytes`. What needs a look at every
index (range, overlap) is the engine's; here is what can be said without, and the texts.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from fabricio.errors import RegionError

Indices: TypeAlias = "array[int] | memoryview"

Fault = Literal["local_range", "remote_range", "duplicate", "stride", "no_memory"]

_MAX_U64 = (1 << 64) - 1
_MAX_I64 = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class PageSide:
    """One side's pages.

    Attributes:
        indices: one 64-bit integer per page; None: 0, 1, 2 and so on.
        offset_bytes: of page 0 within the region.
        stride_bytes: from one page to the next.
        length_bytes: of the region.
    """

    indices: Indices | None
    offset_bytes: int
    stride_bytes: int
    length_bytes: int


@dataclass(frozen=True, slots=True)
class PageLayout:
    """All pages of one transfer, each `page_bytes` long.

    Attributes:
        page_bytes: 0 or more.
        count: how many pages; 0 or more.
        local: this side.
        remote: the peer's side.
        read: whether the local side is the destination.
    """

    page_bytes: int
    count: int
    local: PageSide
    remote: PageSide
    read: bool

    def fault(self, fault: Fault, position: int, first: int = 0) -> RegionError:
        """Make the exception for what the engine found.

        Args:
            fault: which check failed.
            position: the place in the list.
            first: the earlier place, for "duplicate".

        Returns:
            To be raised by the caller; names position, index, side and length.
        """
        if fault == "no_memory":
            return RegionError(f"no memory to check {self.count} pages: use several transfers")
        if fault == "local_range":
            return self._out_of_range("local", self.local, position)
        if fault == "remote_range":
            return self._out_of_range("remote", self.remote, position)
        name, side = ("local", self.local) if self.read else ("remote", self.remote)
        if fault == "stride":
            return RegionError(
                f"the {name} stride of {side.stride_bytes} bytes is less than page_bytes="
                f"{self.page_bytes}, so that destination pages overlap: use a stride of at least "
                "page_bytes",
                position=position,
            )
        return RegionError(
            f"page {position} of the list has {name} index {_index(side, position)}, which page "
            f"{first} has too: each destination page may be named once",
            position=position,
        )

    def _out_of_range(self, name: str, side: PageSide, position: int) -> RegionError:
        index = _index(side, position)
        if index < 0:
            return RegionError(
                f"page {position} of the list has {name} index {index}: indices count from 0",
                position=position,
            )
        start = side.offset_bytes + index * side.stride_bytes
        return RegionError(
            f"page {position} of the list, {name} index {index}, is bytes {start} to "
            f"{start + self.page_bytes} of a {name} region of {side.length_bytes} bytes: it must "
            "end within the region",
            position=position,
        )


def layout(
    local_pages: object,
    remote_pages: object,
    *,
    page_bytes: int,
    read: bool,
    local_length_bytes: int,
    remote_length_bytes: int,
    local_offset_bytes: int = 0,
    remote_offset_bytes: int = 0,
    local_stride_bytes: int | None = None,
    remote_stride_bytes: int | None = None,
) -> PageLayout:
    """Bring the arguments of `write_pages` and `read_pages` into one layout.

    Args:
        local_pages: indices of this side's pages, see `as_indices`.
        remote_pages: the peer's, as many.
        page_bytes: length of each page, at least 1.
        read: whether the local side is the destination.
        local_length_bytes: of this side's region.
        remote_length_bytes: of the peer's.
        local_offset_bytes: of page 0 within this side's region.
        remote_offset_bytes: of page 0 within the peer's.
        local_stride_bytes: from page to page; None: page_bytes.
        remote_stride_bytes: the same at the peer.

    Returns:
        What the engine checks page by page.

    Raises:
        RegionError: no integers, lists of different length, or a number out of range.
    """
    _check_integer("page_bytes", page_bytes, 1)
    local = PageSide(
        as_indices(local_pages, "local pages"),
        _check_integer("local offset", local_offset_bytes, 0),
        _stride("local stride", local_stride_bytes, page_bytes),
        local_length_bytes,
    )
    remote = PageSide(
        as_indices(remote_pages, "remote pages"),
        _check_integer("remote offset", remote_offset_bytes, 0),
        _stride("remote stride", remote_stride_bytes, page_bytes),
        remote_length_bytes,
    )
    count = len(local.indices or ())
    if count != len(remote.indices or ()):
        raise RegionError(
            f"{count} local pages and {len(remote.indices or ())} remote ones: the lists must be "
            "equally long"
        )
    return PageLayout(page_bytes, count, local, remote, read)


def as_indices(pages: object, name: str) -> Indices:
    """Turn a sequence of integers into 64-bit ones, without a Python loop.

    Args:
        pages: list, tuple, range, array or other sequence of int; or a numpy array (anything
            with `__array__`) of one dimension and any integer type. Not bytes.
        name: for the text of errors.

    Returns:
        A C-contiguous buffer of int64, one per page; it may be `pages` itself, so use it before
        anybody changes that.

    Raises:
        RegionError: no integers (bool and float are none), more than one dimension, or an integer
            beyond 64 bits; the text and `position` say where.
    """
    if isinstance(pages, array) and pages.typecode == "q":
        return pages
    if hasattr(pages, "__array__"):
        return _from_numpy(pages, name)
    if not isinstance(pages, (Sequence, array, memoryview)) or isinstance(
        pages, (str, bytes, bytearray)
    ):
        raise RegionError(
            f"{name} is a {type(pages).__name__}: pass a list, range or array of integers"
        )
    try:
        values = tuple(pages)
        packed = struct.pack(f"{len(values)}q", *values)  # half the time of array("q", values)
    # struct.error: not an integer, or beyond 64 bits; NotImplementedError: a memoryview of several
    # dimensions.
    except (struct.error, TypeError, NotImplementedError) as error:
        raise _wrong_element(pages, name) from error
    if not isinstance(pages, range) and bool in set(map(type, values)):
        raise _wrong_element(pages, name)
    return memoryview(packed).cast("q")


def _from_numpy(pages: Any, name: str) -> Indices:  # noqa: ANN401  # numpy need not exist
    try:
        import numpy
    except ImportError as error:
        raise RegionError(
            f"{name} is a {type(pages).__name__}, which needs numpy: install it, or pass a list"
        ) from error
    values = numpy.asarray(pages)
    if values.ndim != 1:
        raise RegionError(
            f"{name} has {values.ndim} dimensions: pass one, for example with .ravel()"
        )
    if values.size and values.dtype.kind not in "iu":
        raise RegionError(f"{name} has elements of {values.dtype}: pass an integer array")
    if values.dtype.kind == "u" and values.dtype.itemsize == 8:
        beyond = values > _MAX_I64
        if beyond.any():
            position = int(beyond.argmax())
            raise _wrong_index(name, position, int(values[position]))
    return numpy.ascontiguousarray(values, dtype=numpy.int64).data


def _wrong_element(pages: Sequence[Any] | array[Any] | memoryview, name: str) -> RegionError:
    try:
        for position, value in enumerate(pages):
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                return RegionError(
                    f"{name}[{position}] is {value!r:.80}, a {type(value).__name__}: pass integers",
                    position=position,
                )
            if not -_MAX_I64 - 1 <= value.__index__() <= _MAX_I64:
                return _wrong_index(name, position, value)
    except (TypeError, NotImplementedError):
        pass
    return RegionError(f"{name} is no one-dimensional sequence of integers: pass a list or range")


def _wrong_index(name: str, position: int, value: int) -> RegionError:
    return RegionError(
        f"{name}[{position}] is {value}, beyond 64 bits with sign: no region is that long",
        position=position,
    )


def _index(side: PageSide, position: int) -> int:
    return position if side.indices is None else side.indices[position]


def _stride(name: str, value: int | None, page_bytes: int) -> int:
    return page_bytes if value is None else _check_integer(name, value, 0)


def _check_integer(name: str, value: int, minimum: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise RegionError(f"{name} is {value!r:.80}, a {type(value).__name__}: pass an integer")
    number = value.__index__()
    if not minimum <= number <= _MAX_U64:
        raise RegionError(f"{name} is {number}: pass an integer from {minimum} to {_MAX_U64}")
    return number
