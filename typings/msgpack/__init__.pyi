# The part of msgpack that fabricio uses; the package ships no types of its own.
from collections.abc import Callable
from typing import Any, Final, NamedTuple

class ExtType(NamedTuple):
    code: int
    data: bytes

class Packer:
    def __init__(
        self,
        *,
        default: Callable[[Any], object] | None = ...,
        use_single_float: bool = ...,
        autoreset: bool = ...,
        use_bin_type: bool = ...,
        strict_types: bool = ...,
        datetime: bool = ...,
        unicode_errors: str | None = ...,
        buf_size: int = ...,
    ) -> None: ...
    def pack(self, obj: object) -> bytes: ...

class Unpacker:
    def __init__(
        self,
        file_like: object | None = ...,
        *,
        read_size: int = ...,
        use_list: bool = ...,
        raw: bool = ...,
        timestamp: int = ...,
        strict_map_key: bool = ...,
        object_hook: Callable[[dict[Any, Any]], object] | None = ...,
        ext_hook: Callable[[int, bytes], object] = ...,
        max_buffer_size: int = ...,
        max_str_len: int = ...,
        max_bin_len: int = ...,
        max_array_len: int = ...,
        max_map_len: int = ...,
        max_ext_len: int = ...,
    ) -> None: ...
    def feed(self, next_bytes: object) -> None: ...
    def skip(self) -> None: ...
    def unpack(self) -> Any: ...  # noqa: ANN401  # any msgpack value
    def tell(self) -> int: ...

def packb(
    o: object,
    *,
    default: Callable[[Any], object] | None = ...,
    use_bin_type: bool = ...,
    strict_types: bool = ...,
    datetime: bool = ...,
) -> bytes: ...
def unpackb(
    packed: object,
    *,
    use_list: bool = ...,
    raw: bool = ...,
    timestamp: int = ...,
    strict_map_key: bool = ...,
    object_hook: Callable[[dict[Any, Any]], object] | None = ...,
    ext_hook: Callable[[int, bytes], object] = ...,
    max_buffer_size: int = ...,
    max_str_len: int = ...,
    max_bin_len: int = ...,
    max_array_len: int = ...,
    max_map_len: int = ...,
    max_ext_len: int = ...,
) -> Any: ...  # noqa: ANN401  # any msgpack value

class UnpackException(Exception): ...
class BufferFull(UnpackException): ...
class OutOfData(UnpackException): ...
class FormatError(ValueError, UnpackException): ...
class StackError(ValueError, UnpackException): ...
class ExtraData(ValueError): ...

version: Final[tuple[int, int, int]]
