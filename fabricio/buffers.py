"""Any object that has memory -> where it is, how long, and what keeps it there.

The buffer protocol comes first (bytearray, mmap, array, memoryview, numpy ...), then numpy's
`__array_interface__` (dtypes that the buffer protocol cannot express), then DLPack (CPU tensors).
Nothing is imported for it: neither numpy nor torch has to exist.
"""

from __future__ import annotations

import ctypes
import math
import re
from dataclasses import dataclass
from typing import Any

from fabricio.errors import RegionError, UnsupportedError

# Device types of DLPack's dlpack.h: memory that the CPU addresses, and CUDA's.
_DLPACK_HOST = {1: "cpu", 3: "cpu"}
_DLPACK_CUDA = {2, 13}

_PYBUF_ANY_CONTIGUOUS = 0x98


@dataclass(frozen=True, slots=True)
class Buffer:
    """A contiguous piece of memory.

    Attributes:
        address: of its first byte.
        nbytes: its length in bytes; above 0.
        readonly: whether the object forbids writing.
        device: "cpu".
        owner: keeps the memory at its address, and a bytearray from being resized, for as long as
            it is referenced.
    """

    address: int
    nbytes: int
    readonly: bool
    device: str
    owner: object


def describe(obj: object) -> Buffer:
    """Find the memory of an object.

    Args:
        obj: C- or Fortran-contiguous, any shape and dtype but Python objects, at least one byte.

    Returns:
        Address, length and owner; taking it exports the object.

    Raises:
        RegionError: no memory, not contiguous, Python objects, or empty.
        UnsupportedError: CUDA memory, which this version cannot register.
    """
    if hasattr(obj, "__cuda_array_interface__"):
        raise _cuda(obj)
    try:
        view = memoryview(obj)  # type: ignore[arg-type]  # whether it is a buffer shows here
    # numpy raises ValueError or BufferError for a dtype that the protocol cannot express.
    except (TypeError, ValueError, BufferError) as error:
        interface = getattr(obj, "__array_interface__", None)
        if isinstance(interface, dict):
            return _from_array_interface(obj, interface)
        if hasattr(obj, "__dlpack__"):
            return _from_dlpack(obj)
        raise RegionError(
            f"a {type(obj).__name__} has no memory to register ({error}): pass an object with the "
            "buffer protocol, such as a numpy array, a bytearray or an mmap"
        ) from error
    return _from_view(obj, view)


def _from_view(obj: object, view: memoryview) -> Buffer:
    if _holds_objects(view.format):
        raise _objects(obj)
    if not view.contiguous:
        raise _not_contiguous(obj)
    if view.nbytes == 0:
        raise _empty(obj)
    return Buffer(_address_of(view), view.nbytes, view.readonly, "cpu", view)


def _holds_objects(struct_format: str) -> bool:
    """Whether a format of the buffer protocol names Python objects; its field names do not."""
    return "O" in re.sub(r":[^:]*:", "", struct_format)


class _PyBuffer(ctypes.Structure):
    """Py_buffer, which is part of the stable ABI."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


# ctypes' own from_buffer refuses read-only memory, hence the C API itself. PyObject_GetBuffer
# raises the exception that it set.
_get_buffer = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int
)(("PyObject_GetBuffer", ctypes.pythonapi))
_release_buffer = ctypes.PYFUNCTYPE(None, ctypes.POINTER(_PyBuffer))(
    ("PyBuffer_Release", ctypes.pythonapi)
)


def _address_of(view: memoryview) -> int:
    raw = _PyBuffer()
    _get_buffer(view, ctypes.byref(raw), _PYBUF_ANY_CONTIGUOUS)
    try:
        return int(raw.buf or 0)
    finally:
        _release_buffer(ctypes.byref(raw))


def _from_array_interface(obj: object, interface: dict[str, Any]) -> Buffer:
    # Byte order, kind, size of an item and, for dates, the unit.
    typestr = re.fullmatch(r"[<>|=](\w)(\d*)(?:\[.*\])?", str(interface.get("typestr")))
    data = interface.get("data")
    if typestr is None or not isinstance(data, tuple):
        raise RegionError(f"a {type(obj).__name__} whose __array_interface__ names no memory")
    if typestr[1] == "O" or getattr(getattr(obj, "dtype", None), "hasobject", False):
        raise _objects(obj)
    address, readonly = data
    itemsize = int(typestr[2] or 0)
    return _from_strided(
        obj, obj, address, bool(readonly), interface["shape"], interface.get("strides"), itemsize
    )


class _DLTensor(ctypes.Structure):
    """DLTensor of dlpack.h, the head of DLManagedTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _from_dlpack(obj: Any) -> Buffer:  # noqa: ANN401  # the protocol has no type
    device_type, _ = obj.__dlpack_device__()
    if device_type in _DLPACK_CUDA:
        raise _cuda(obj)
    if device_type not in _DLPACK_HOST:
        raise RegionError(f"a {type(obj).__name__} on DLPack device {device_type}: copy it to host")
    try:
        capsule = obj.__dlpack__()
    # Each producer has its own reasons, such as a tensor that requires gradients.
    except Exception as error:
        raise RegionError(f"a {type(obj).__name__} does not export itself: {error}") from error
    pointer = _capsule_pointer(capsule, b"dltensor")
    tensor = ctypes.cast(pointer, ctypes.POINTER(_DLTensor)).contents
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    itemsize = (tensor.bits * tensor.lanes + 7) // 8
    strides = None
    if tensor.strides:
        strides = tuple(tensor.strides[axis] * itemsize for axis in range(tensor.ndim))
    address = (tensor.data or 0) + tensor.byte_offset
    # An unused capsule's destructor lets the tensor go, hence it is the owner.
    return _from_strided(obj, (obj, capsule), address, False, shape, strides, itemsize)


def _from_strided(
    obj: object,
    owner: object,
    address: int,
    readonly: bool,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    itemsize: int,
) -> Buffer:
    nbytes = math.prod(shape) * itemsize
    if nbytes == 0:
        raise _empty(obj)
    if strides is not None:
        # Contiguous in some order of the axes that matter, the fastest first.
        expected = itemsize
        for stride, count in sorted(
            (stride, count) for stride, count in zip(strides, shape, strict=True) if count > 1
        ):
            if stride != expected:
                raise _not_contiguous(obj)
            expected *= count
    return Buffer(address, nbytes, readonly, "cpu", owner)


def _objects(obj: object) -> RegionError:
    return RegionError(
        f"a {type(obj).__name__} of Python objects holds references, not data: use numbers"
    )


def _not_contiguous(obj: object) -> RegionError:
    return RegionError(
        f"this {type(obj).__name__} is not contiguous: register the whole array and name a part "
        "of it by bytes, or make a contiguous copy"
    )


def _empty(obj: object) -> RegionError:
    return RegionError(f"this {type(obj).__name__} has length 0: register at least one byte")


def _cuda(obj: object) -> UnsupportedError:
    return UnsupportedError(
        f"this {type(obj).__name__} is in GPU memory, whose registration is not available on this "
        "provider: copy it to host memory first",
        call="fi_mr_regattr",
    )
