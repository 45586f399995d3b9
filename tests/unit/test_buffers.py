"""Where the memory of any object is, and which objects are refused."""

import array
import ctypes
import mmap
from typing import Any

import numpy as np
import pytest

from fabricio.buffers import Buffer, describe
from fabricio.errors import RegionError, UnsupportedError

Array = np.ndarray[Any, np.dtype[Any]]


def bytes_at(buffer: Buffer) -> bytes:
    return ctypes.string_at(buffer.address, buffer.nbytes)


class OnlyDLPack:
    """A tensor as another library makes it: no buffer protocol, no numpy."""

    def __init__(self, values: Array, device: tuple[int, int] = (1, 0)) -> None:
        self.values = values
        self.device = device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self) -> object:
        return self.values.__dlpack__()


class OnlyArrayInterface:
    def __init__(self, values: Array) -> None:
        self.__array_interface__ = values.__array_interface__
        self.values = values


@pytest.mark.parametrize(
    "obj",
    [
        bytearray(b"pages"),
        array.array("d", [1.0, 2.5]),
        memoryview(bytearray(b"abcdef"))[2:5],
        np.arange(10, dtype=np.int32),
        np.arange(12.0).reshape(3, 4),
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.array(3.5),
        np.zeros(3, dtype=[("Offset", "<i4"), ("v", "<f8", 2)]),
        (ctypes.c_int * 3)(1, 2, 3),
    ],
    ids=lambda obj: type(obj).__name__,
)
def test_writable_buffers(obj: memoryview) -> None:
    buffer = describe(obj)
    view = memoryview(obj)
    assert buffer.nbytes == view.nbytes
    assert not buffer.readonly
    assert buffer.device == "cpu"
    assert bytes_at(buffer) == view.tobytes("A")
    ctypes.memset(buffer.address, 0x41, buffer.nbytes)
    assert view.tobytes() == b"A" * buffer.nbytes


@pytest.mark.parametrize("kind", ["bytes", "numpy", "mmap"])
def test_read_only_buffers_have_an_address(kind: str) -> None:
    obj: Any
    if kind == "bytes":
        obj = b"0123456789"
    elif kind == "numpy":
        obj = np.arange(5)
        obj.flags.writeable = False
    else:
        obj = mmap.mmap(-1, 4096, prot=mmap.PROT_READ)
    buffer = describe(obj)
    assert buffer.readonly
    assert bytes_at(buffer) == bytes(memoryview(obj))


def test_numpy_address_is_numpys() -> None:
    values = np.arange(100)
    assert describe(values).address == values.ctypes.data
    assert describe(values[10:20]).address == values.ctypes.data + 80


def test_owner_keeps_a_bytearray_from_being_resized() -> None:
    data = bytearray(16)
    buffer = describe(data)
    with pytest.raises(BufferError):
        data.extend(b"more")
    assert buffer.nbytes == 16
    del buffer
    data.extend(b"more")


def test_owner_keeps_a_map_open() -> None:
    data = mmap.mmap(-1, 4096)
    buffer = describe(data)
    with pytest.raises(BufferError):
        data.close()
    del buffer
    data.close()


def test_the_same_object_twice_and_overlapping_views() -> None:
    data = bytearray(64)
    whole, again, part = describe(data), describe(data), describe(memoryview(data)[8:16])
    assert whole.address == again.address == part.address - 8


def test_offsets_beyond_32_bits() -> None:
    no_reserve = 0x4000  # MAP_NORESERVE, which older Pythons do not name
    with mmap.mmap(-1, (1 << 32) + 8192, flags=mmap.MAP_PRIVATE | no_reserve) as data:
        buffer = describe(data)
        assert buffer.nbytes == (1 << 32) + 8192
        del buffer


def test_dtypes_that_the_buffer_protocol_cannot_express() -> None:
    dates = np.array(["2020-01-01", "2021-01-01"], dtype="M8[s]")
    buffer = describe(dates)
    assert (buffer.address, buffer.nbytes) == (dates.ctypes.data, 16)
    assert buffer.owner is dates
    dates.flags.writeable = False
    assert describe(dates).readonly
    with pytest.raises(RegionError, match="not contiguous"):
        describe(np.zeros((4, 4), dtype="M8[s]")[:, 1])


def test_array_interface_that_names_no_memory() -> None:
    class Broken:
        __array_interface__ = {"typestr": "<i4"}  # noqa: RUF012  # a foreign protocol

    with pytest.raises(RegionError, match="names no memory"):
        describe(Broken())


def test_array_interface_alone() -> None:
    values = np.arange(6, dtype=np.uint16).reshape(2, 3)
    buffer = describe(OnlyArrayInterface(values))
    assert (buffer.address, buffer.nbytes) == (values.ctypes.data, 12)
    with pytest.raises(RegionError, match="Python objects"):
        describe(OnlyArrayInterface(np.array([None])))


def test_dlpack_alone() -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for exported in (values, values[1], values.T, values[:, :1, :1][:1]):
        buffer = describe(OnlyDLPack(exported))
        assert (buffer.address, buffer.nbytes) == (exported.ctypes.data, exported.nbytes)
        assert not buffer.readonly
    for refused in (values[:, 1], values[::-1], values[..., ::2]):
        with pytest.raises(RegionError, match="not contiguous"):
            describe(OnlyDLPack(refused))
    with pytest.raises(RegionError, match="length 0"):
        describe(OnlyDLPack(values[:0]))


def test_dlpack_owner_keeps_the_memory() -> None:
    class Watched(np.ndarray[Any, np.dtype[Any]]):
        pass

    values = np.arange(4.0).view(Watched)
    buffer = describe(OnlyDLPack(values))
    address = values.ctypes.data
    del values
    assert bytes_at(buffer) == np.arange(4.0).tobytes()
    assert buffer.address == address


def test_dlpack_that_does_not_export() -> None:
    read_only = np.arange(3)
    read_only.flags.writeable = False
    with pytest.raises(RegionError, match="does not export itself"):
        describe(OnlyDLPack(read_only))
    with pytest.raises(RegionError, match="DLPack device 10"):
        describe(OnlyDLPack(np.arange(3), device=(10, 0)))


@pytest.mark.parametrize("kind", ["interface", "dlpack"])
def test_cuda_memory_is_recognised_and_refused(kind: str) -> None:
    class Cuda:
        __cuda_array_interface__ = {"data": (0x7F00, False)}  # noqa: RUF012  # a foreign protocol

    obj = Cuda() if kind == "interface" else OnlyDLPack(np.arange(3), device=(2, 0))
    with pytest.raises(UnsupportedError, match=r"GPU memory.*not available"):
        describe(obj)


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        (np.arange(10)[::2], "not contiguous"),
        (np.arange(12).reshape(3, 4)[:, 1:3], "not contiguous"),
        (np.arange(10)[::-1], "not contiguous"),
        (memoryview(bytearray(10))[::2], "not contiguous"),
        (np.array([1, None], dtype=object), "Python objects"),
        (np.zeros(2, dtype=[("a", "O"), ("b", "i4")]), "Python objects"),
        ((ctypes.py_object * 2)(), "Python objects"),
        (b"", "length 0"),
        (bytearray(), "length 0"),
        (np.zeros((0, 5)), "length 0"),
        ("text", "no memory"),
        (None, "no memory"),
        ([1, 2], "no memory"),
        (17, "no memory"),
        (bytearray, "no memory"),
    ],
)
def test_refused_with_a_reason(obj: object, text: str) -> None:
    with pytest.raises(RegionError, match=text):
        describe(obj)
