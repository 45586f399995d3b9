"""A peer's memory regions, and who here uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import msgpack

from fabricio.codec import REGION_EXT_CODE
from fabricio.errors import LocalProtocolError, RegionError
from fabricio.memory import (
    ACCESS_NAMES,
    MemoryRegion,
    RegionSlice,
    SharedRegion,
    slice_bounds,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricio.descriptor import Descriptor
    from fabricio.memory import Access
    from fabricio.revocation import Holder


class Grant:
    """What a peer has granted by sharing one of its regions: one for all its descriptors.

    Attributes:
        revoked: whether the peer has taken it back.
        transfers: how many of this side may still touch the region.

    Thread: event loop only.
    """

    __slots__ = ("__weakref__", "_on_let_go", "revoked", "transfers")

    def __init__(self) -> None:
        """Begin as granted and unused."""
        self.revoked = False
        self.transfers = 0
        self._on_let_go: Callable[[], object] | None = None

    def begin(self) -> None:
        """Count a transfer in."""
        self.transfers += 1

    def end(self) -> None:
        """Count a transfer out: the NIC does nothing for it any more."""
        self.transfers -= 1
        self._check_let_go()

    def revoke(self, on_let_go: Callable[[], object]) -> None:
        """Allow no more transfers.

        Args:
            on_let_go: called once, at once if nothing runs, else when the last transfer has ended.
        """
        self.revoked = True
        self._on_let_go = on_let_go
        self._check_let_go()

    def check(self) -> None:
        """Refuse what the peer has taken back.

        Raises: RegionError: it has.
        """
        if self.revoked:
            raise RegionError(
                "the peer has deregistered this region: have it register memory again and share it"
            )

    def _check_let_go(self) -> None:
        if self._on_let_go is not None and not self.transfers:
            on_let_go, self._on_let_go = self._on_let_go, None
            on_let_go()


class RemoteRegion:
    """A peer's memory, as it came in a message; usable on the endpoint that it came over.

    Attributes:
        endpoint: where it can be used.
        length_bytes: 0 or more.
        access: "r", "w" or "rw".
        base: address of the first byte, as the provider wants it named.
        workers: bit mask of the peer's workers that have it registered.
        keys: remote keys of the peer's lanes, or one for all.
        grant: shared with all that the peer's region was sliced into.
    """

    __slots__ = ("access", "base", "endpoint", "grant", "keys", "length_bytes", "workers")

    def __init__(
        self,
        endpoint: object,
        base: int,
        length_bytes: int,
        access: Access,
        workers: int,
        keys: tuple[int, ...],
        grant: Grant,
    ) -> None:
        """Keep what a descriptor said."""
        self.endpoint = endpoint
        self.base = base
        self.length_bytes = length_bytes
        self.access = access
        self.workers = workers
        self.keys = keys
        self.grant = grant

    @classmethod
    def from_descriptor(cls, endpoint: object, descriptor: Descriptor, grant: Grant) -> Self:
        """Bind a descriptor to the endpoint that it came over."""
        return cls(
            endpoint,
            descriptor.base,
            descriptor.length_bytes,
            ACCESS_NAMES[descriptor.access],
            descriptor.workers,
            descriptor.keys,
            grant,
        )

    def __repr__(self) -> str:
        """Show length, access and state, never the key."""
        state = " revoked" if self.grant.revoked else ""
        return f"<RemoteRegion {self.length_bytes} bytes {self.access!r}{state}>"

    def __getitem__(self, key: slice) -> RemoteRegion:
        """Return a part of it, by bytes.

        Raises: RegionError: not within the region, or with a step.
        """
        start, stop = slice_bounds(key, self.length_bytes)
        return RemoteRegion(
            self.endpoint,
            self.base + start,
            stop - start,
            self.access,
            self.workers,
            self.keys,
            self.grant,
        )


def pack_shared(value: object, holder: Holder) -> msgpack.ExtType:
    """Encode what a message may hold besides plain values: a `SharedRegion`.

    Args:
        value: something that msgpack does not know.
        holder: the channel that sends it.

    Raises: LocalProtocolError: another kind of region; RegionError: a closed region; TypeError:
        anything else.
    """
    if isinstance(value, SharedRegion):
        return msgpack.ExtType(REGION_EXT_CODE, value.encode(holder))
    if isinstance(value, (MemoryRegion, RegionSlice)):
        raise LocalProtocolError("a region is in this message: put region.share(access) into it")
    if isinstance(value, RemoteRegion):
        raise LocalProtocolError(
            "a peer's region is in this message: only its owner can share it, with each peer"
        )
    raise TypeError(f"{type(value).__name__} is no message value")
