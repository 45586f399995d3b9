"""Message values as bytes and back: msgpack, with every way to fail named.

Whatever `ValueCodec.encode` accepts, the peer's `ValueCodec.decode` can take: what msgpack writes
but cannot read again (tuples as map keys, foreign extension types, nesting beyond its stack) is
refused here, where only the message is lost, and not there, where the endpoint would be.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any

import msgpack
from msgpack import ExtType

from fabricio.errors import LocalProtocolError, RemoteProtocolError
from fabricio.frames import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# The one extension type on the wire: a shared region. Timestamps have msgpack's own, -1.
REGION_EXT_CODE = 1

# msgpack's own class for dates that it does not read as datetime, by example.
_Timestamp = type(msgpack.unpackb(b"\xd6\xff\x00\x00\x00\x00"))

# Containers within containers; msgpack reads up to 1024.
MAX_NESTING = 512

# What so few bytes can claim to hold is little, whatever they claim.
_HARMLESS_BYTES = 256

# The packer keeps its buffer for the next message; a longer one is given back.
_PACKER_BYTES = 4096
_KEPT_BYTES = 1 << 20

_SCALARS = frozenset({NoneType, bool, int, float, str, bytes, bytearray, memoryview})

Bytes = bytes | bytearray | memoryview


def check_elements(data: Bytes) -> None:
    """Check that one msgpack value is all there, before anything is made of it.

    msgpack makes room for as many elements as an array says that it holds before it reads the first
    of them, at each of up to 1024 levels: some kilobytes could ask for gigabytes.

    Raises: whatever msgpack does; nothing if more follows the value.
    """
    # A value that is no container holds no elements.
    if len(data) > _HARMLESS_BYTES and (0x80 <= data[0] <= 0x9F or 0xDC <= data[0] <= 0xDF):
        unpacker = msgpack.Unpacker(max_buffer_size=len(data))
        unpacker.feed(data)
        unpacker.skip()


class ValueCodec:
    """Encodes and decodes message values for one endpoint.

    Values are None, bool, int (64 bits, signed or unsigned), float, str, bytes-like, datetime with
    a time zone, list, tuple, dict, and what `pack_default` turns into extension type 1. Tuples
    arrive as lists, bytes-like objects as bytes, datetimes in UTC.

    Thread: any one at a time.   Source: msgpack specification.
    """

    def __init__(
        self,
        *,
        max_message_bytes: int,
        pack_default: Callable[[Any], Any] | None,
        ext_hook: Callable[[int, bytes], Any] | None,
    ) -> None:
        """Set the limit and the two hooks.

        Args:
            max_message_bytes: longest encoding that `encode` returns.
            pack_default: turns an object that msgpack does not know into
                `msgpack.ExtType(REGION_EXT_CODE, ...)`, or raises TypeError or a FabricioError.
            ext_hook: `(code, data) -> object` for extension type 1; may raise
                RemoteProtocolError. None: extension types are refused.
        """
        self._max_message_bytes = max_message_bytes
        self._pack_default = pack_default
        self._ext_hook = ext_hook
        self._pack = self._new_pack()
        self._unpack = partial(
            msgpack.unpackb, raw=False, strict_map_key=False, timestamp=3, ext_hook=self._ext
        )

    def encode(self, value: object) -> bytes:
        """Encode one value.

        Raises:
            LocalProtocolError: it cannot be encoded, could not be decoded, or is too large.
            FabricioError: whatever `pack_default` raised.
        """
        try:
            data: bytes = self._pack(value)
        except (TypeError, ValueError, OverflowError, BufferError, RecursionError) as error:
            raise LocalProtocolError(
                f"the message cannot be encoded: {error}; use None, bool, int of 64 bits, float, "
                "str, bytes, list, dict, datetime with a time zone, or shared regions"
            ) from error
        size = len(data)
        if size > _KEPT_BYTES:
            self._pack = self._new_pack()
        if size > self._max_message_bytes:
            raise LocalProtocolError(
                f"the message has {size} bytes, and max_message_bytes={self._max_message_bytes}: "
                "send it in parts, as pages, or raise the option on both sides"
            )
        if type(value) not in _SCALARS:
            _refuse_unreadable(value)
        return data

    def decode(self, data: Bytes) -> object:
        """Decode one whole message.

        Raises:
            RemoteProtocolError: these bytes are not exactly one value that fabricio sends.
        """
        try:
            check_elements(data)
            return self._unpack(data)
        except RemoteProtocolError:
            raise
        # Lengths, nesting, UTF-8, unhashable keys, dates, regions: all is the peer's doing.
        except Exception as error:
            raise RemoteProtocolError(
                f"the peer sent a message of {len(data)} bytes that cannot be decoded: "
                f"{type(error).__name__} {error}. Install the same release of fabricio on both "
                "sides"
            ) from error

    def _new_pack(self) -> Callable[[object], bytes]:
        packer = msgpack.Packer(
            default=self._pack_default, use_bin_type=True, datetime=True, buf_size=_PACKER_BYTES
        )
        pack: Callable[[object], bytes] = packer.pack
        return pack

    def _ext(self, code: int, data: bytes) -> object:
        if code != REGION_EXT_CODE or self._ext_hook is None:
            refuse(f"a message with unknown extension type {code}")
        return self._ext_hook(code, data)


def _refuse_unreadable(value: object) -> None:
    """Walk the containers of an encodable value, level by level.

    Raises:
        LocalProtocolError: it holds something that the peer could not decode.
    """
    level: list[object] = [value]
    depth = 0
    while level:
        depth += 1
        if depth > MAX_NESTING:
            raise LocalProtocolError(
                f"the message nests deeper than {MAX_NESTING} levels: send it flatter"
            )
        inner: list[object] = []
        for node in level:
            children: Iterable[object]
            if isinstance(node, (ExtType, _Timestamp)):
                raise LocalProtocolError(
                    f"the message holds a msgpack {type(node).__name__}, which the peer would "
                    "refuse: use bytes, or a datetime with a time zone"
                )
            if isinstance(node, dict):
                _refuse_keys(node, inner)
                children = node.values()
            elif isinstance(node, (list, tuple)):
                children = node
            else:
                _refuse_date(node)
                continue
            if not _SCALARS.issuperset(map(type, children)):
                inner += [child for child in children if type(child) not in _SCALARS]
        level = inner


def _refuse_keys(node: dict[object, object], inner: list[object]) -> None:
    if _SCALARS.issuperset(map(type, node)):
        return
    for key in node:
        if isinstance(key, (tuple, list, dict)) and not isinstance(key, ExtType):
            raise LocalProtocolError(
                f"the message has {key!r:.80} as a key of a dict, which would arrive as a list, "
                "and lists cannot be keys: use a str, bytes or int"
            )
        if type(key) not in _SCALARS:
            inner.append(key)


def _refuse_date(node: object) -> None:
    if isinstance(node, datetime):
        try:
            node.astimezone(UTC)
        except OverflowError as error:
            raise LocalProtocolError(
                f"the message holds {node!r}, which UTC cannot express: use a date within its range"
            ) from error
