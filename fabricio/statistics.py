"""Frozen snapshots of what the engine counted and of what it opened."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from fabricio._ffi._native import FFI, FabAttributes, FabStatistics

WritesLast = Literal["region", "connection", "process"]

# In the order of `enum fab_writes_last`.
WRITES_LAST: tuple[WritesLast, ...] = ("region", "connection", "process")


@dataclass(frozen=True, slots=True)
class FabricAttributes:
    """What the opened provider is; the first lane speaks for all.

    Attributes:
        provider: libfabric's name of it.
        domain: libfabric's name of the NIC.
        worker_count: engine threads.
        lane_counts: NICs of each worker.
        address_bytes: length of the longest fabric address of all lanes.
        frame_bytes: largest frame, header of the message layer included.
        immediate_bytes: immediate data that one operation carries.
        key_bytes: length of a remote key.
        virtual_addresses: whether peers address a region by virtual addresses.
        wait_fd: whether the completion queue can be slept on.
        segments: runs of adjacent pages that one operation may carry.
        inflight_count: operations that a lane may have in flight.
        writes_last: what ends for good the writes of a peer that has fallen silent: closing the
            "region", after that the end of the "connection", or that of its "process".
        max_operation_bytes: longest RMA operation.
    """

    provider: str
    domain: str
    worker_count: int
    lane_counts: tuple[int, ...]
    address_bytes: int
    frame_bytes: int
    immediate_bytes: int
    key_bytes: int
    virtual_addresses: bool
    wait_fd: bool
    segments: int
    inflight_count: int
    writes_last: WritesLast
    max_operation_bytes: int

    @classmethod
    def from_struct(cls, ffi: FFI, struct: FabAttributes, lane_counts: tuple[int, ...]) -> Self:
        """Copy a `struct fab_attributes`, and what it does not say."""
        names = {field.name for field in fields(cls)} - {"lane_counts"}
        values: dict[str, Any] = {name: getattr(struct, name) for name in names}
        values["lane_counts"] = lane_counts
        for name in ("provider", "domain"):
            values[name] = ffi.string(values[name]).decode("utf-8", "replace")
        for name in ("virtual_addresses", "wait_fd"):
            values[name] = bool(values[name])
        values["writes_last"] = WRITES_LAST[values["writes_last"]]
        return cls(**values)


@dataclass(frozen=True, slots=True)
class FabricStatistics:
    """Counts since the Fabric opened, over all its workers; each only grows.

    Attributes:
        operations_posted: RMA operations that the provider took; frames are counted apart.
        operations_completed: those of them that completed well here, confirmed or not.
        operations_failed: those of them that completed with an error; and RMA operations and
            frames that the provider refused, by another code than -FI_EAGAIN.
        again: turns of posting that ended since the provider said -FI_EAGAIN, or since a lane had
            as much in flight as it may.
        bytes_written: bytes of the writes among `operations_completed`.
        bytes_read: bytes of the reads among `operations_completed`.
        pages: pages, written or read, whose last byte was in one of `operations_completed`.
        immediates_received: operations of peers that named a transfer here, stale ones included.
        frames_sent: frames that the provider took: messages, hellos and the engine's own.
        frames_received: frames of all these kinds that came, whatever was then made of them.
        transfers_confirmed: transfers of peers, reads as well, that this side found complete.
        stale_frames: dropped frames: for an earlier peer or incarnation, about a transfer that is
            over, or a hello beyond those that the loop may still have to take.
        stale_immediates: immediate data for no transfer that can be, dropped.
        malformed_frames: dropped frames: too short, of another version or unknown kind; and
            receives that failed, as those of a frame longer than the buffer do.
        stray_completions: completions of operations that nobody knows, dropped.
        lanes_failed: lanes that failed on the way to one peer, each counted once for each peer.
        parts_restarted: times that a transfer began again on a worker since a lane had failed.
        sleeps: times a worker gave up its core, to be woken or to nap.
        wakeups: times the loop was woken, for one completion or for many.
        refused_hellos: frames of the handshake that this side refused, dropped for the number of
            those that wait, or did not understand; each repetition counts.
        authentication_failures: peers that connected and did not share the secret, by the finding
            of either side.
        duplicate_frames: frames of the message layer that came twice, dropped.
    """

    operations_posted: int
    operations_completed: int
    operations_failed: int
    again: int
    bytes_written: int
    bytes_read: int
    pages: int
    immediates_received: int
    frames_sent: int
    frames_received: int
    transfers_confirmed: int
    stale_frames: int
    stale_immediates: int
    malformed_frames: int
    stray_completions: int
    lanes_failed: int
    parts_restarted: int
    sleeps: int
    wakeups: int
    refused_hellos: int
    authentication_failures: int
    duplicate_frames: int

    @classmethod
    def from_struct(
        cls,
        struct: FabStatistics,
        *,
        refused_hellos: int,
        authentication_failures: int,
        duplicate_frames: int,
    ) -> Self:
        """Copy a `struct fab_statistics` and add what the Python side counts."""
        own = {
            "refused_hellos": refused_hellos,
            "authentication_failures": authentication_failures,
            "duplicate_frames": duplicate_frames,
        }
        names = (field.name for field in fields(cls))
        counts = {name: getattr(struct, name) for name in names if name not in own}
        return cls(**counts, **own)
