"""Calling C functions that fill an array of rows and tell how many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from fabricio._ffi.check import check

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricio._ffi._native import FFI, Array, Pointer

_T = TypeVar("_T")
_R = TypeVar("_R")

_FIRST_CAPACITY = 256


def read_rows(
    ffi: FFI,
    new: Callable[[int], Array[_T]],
    fill: Callable[[Array[_T], int, Pointer[int]], int],
    make: Callable[[_T], _R],
    call: str,
) -> list[_R]:
    """Call a function that lists rows, again if there are more than there was room for.

    Args:
        ffi: cffi's.
        new: makes an array of so many rows.
        fill: the function: array, its capacity, pointer to the number that exists.
        make: what is wanted of a row; the rows themselves go with their array.
        call: what failed if the function did.

    Returns: what was made, in order.
    Raises: FabricError: the function returned a negative code.
    """
    count = ffi.new("uint32_t *", _FIRST_CAPACITY)
    while True:
        capacity = count[0]
        rows = new(capacity)
        check(fill(rows, capacity, count), call)
        if count[0] <= capacity:
            return [make(rows[i]) for i in range(count[0])]
