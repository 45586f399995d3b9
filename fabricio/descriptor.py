"""How a memory region is described to a peer: sans-IO, fixed layout, little endian.

    version u8, access u8, lane count u16, incarnation 16 B, region u64, base u64, length u64,
    then one key u64 per lane

`base` is what the peer names as the address of the first byte: a virtual address where the provider
uses those, else an offset into the registration.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Self

from fabricio.frames import refuse

READ = 1
WRITE = 2

_VERSION = 1
_HEAD = struct.Struct("<BBH16sQQQ")
_SPACE_BYTES = 1 << 64


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A range of memory that a peer may access.

    Attributes:
        access: READ, WRITE or both.
        incarnation: of the Fabric that the region belongs to.
        region: that Fabric's own number of the region.
        base: address of the first byte, as peers name it.
        length_bytes: 0 or more.
        keys: remote key on each lane.
    """

    access: int
    incarnation: bytes
    region: int
    base: int
    length_bytes: int
    keys: tuple[int, ...]

    def encode(self) -> bytes:
        """Return the bytes that `decode` reads."""
        head = _HEAD.pack(
            _VERSION,
            self.access,
            len(self.keys),
            self.incarnation,
            self.region,
            self.base,
            self.length_bytes,
        )
        return head + struct.pack(f"<{len(self.keys)}Q", *self.keys)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read a descriptor that a peer sent.

        Raises:
            RemoteProtocolError: not a descriptor, or one that nobody could have meant.
        """
        if len(data) < _HEAD.size:
            refuse(f"a region descriptor of {len(data)} bytes, not of {_HEAD.size} at least")
        version, access, lanes, incarnation, region, base, length = _HEAD.unpack_from(data)
        if version != _VERSION:
            refuse(f"a region descriptor of version {version}, where this side knows {_VERSION}")
        if not 0 < access <= READ | WRITE:
            refuse(f"a region descriptor with unknown access bits {access:#x}")
        if lanes == 0 or len(data) != _HEAD.size + 8 * lanes:
            refuse(
                f"a region descriptor of {len(data)} bytes for {lanes} lanes, not of {_HEAD.size} "
                "and 8 per lane, for one lane at least"
            )
        if base + length > _SPACE_BYTES:
            refuse(
                f"a region descriptor of {length} bytes at {base:#x}, beyond the end of the "
                "address space"
            )
        keys = struct.unpack_from(f"<{lanes}Q", data, _HEAD.size)
        return cls(access, incarnation, region, base, length, keys)
