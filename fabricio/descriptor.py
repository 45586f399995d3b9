"""How a memory region is described to a peer: sans-IO, fixed layout, little endian.

    version u8, access u8, key count u16, incarnation 16 B, region u64, base u64, length u64,
    workers u64, then the keys u64: one for each lane of the Fabric, or one for all

`workers` is a bit mask: the workers of the Fabric that have the region registered.

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
_HEAD = struct.Struct("<BBH16sQQQQ")
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
        workers: bit mask of the workers that have it registered.
        keys: remote key on each lane of the Fabric, 0 where it is not registered.
    """

    access: int
    incarnation: bytes
    region: int
    base: int
    length_bytes: int
    workers: int
    keys: tuple[int, ...]

    def encode(self) -> bytes:
        """Return the bytes that `decode` reads."""
        keys = self.keys[:1] if len(set(self.keys)) == 1 else self.keys
        head = _HEAD.pack(
            _VERSION,
            self.access,
            len(keys),
            self.incarnation,
            self.region,
            self.base,
            self.length_bytes,
            self.workers,
        )
        return head + struct.pack(f"<{len(keys)}Q", *keys)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read a descriptor that a peer sent.

        Raises:
            RemoteProtocolError: not a descriptor, or one that nobody could have meant.
        """
        if len(data) < _HEAD.size:
            refuse(f"a region descriptor of {len(data)} bytes, not of {_HEAD.size} at least")
        version, access, count, incarnation, region, base, length, workers = _HEAD.unpack_from(data)
        if version != _VERSION:
            refuse(f"a region descriptor of version {version}, where this side knows {_VERSION}")
        if not 0 < access <= READ | WRITE:
            refuse(f"a region descriptor with unknown access bits {access:#x}")
        if count == 0 or len(data) != _HEAD.size + 8 * count:
            refuse(
                f"a region descriptor of {len(data)} bytes for {count} keys, not of {_HEAD.size} "
                "and 8 per key, for one key at least"
            )
        if base + length > _SPACE_BYTES:
            refuse(
                f"a region descriptor of {length} bytes at {base:#x}, beyond the end of the "
                "address space"
            )
        if workers == 0:
            refuse("a region descriptor of a region that no worker has")
        keys = struct.unpack_from(f"<{count}Q", data, _HEAD.size)
        return cls(access, incarnation, region, base, length, workers, keys)
