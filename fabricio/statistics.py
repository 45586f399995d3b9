"""Frozen snapshots of what the engine counted and of what it opened."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from fabricio._ffi._native import FFI, FabAttributes, FabStatistics


@dataclass(frozen=True, slots=True)
class FabricAttributes:
    """What the opened provider is; the first lane speaks for all.

    Attributes:
        provider: libfabric's name of it.
        domain: libfabric's name of the NIC.
        worker_count: engine threads.
        lane_count: NICs per worker.
        address_bytes: length of the fabric address of one lane.
        frame_bytes: largest frame, header of the message layer included.
        immediate_bytes: immediate data that one operation carries.
        key_bytes: length of a remote key.
        virtual_addresses: whether peers address a region by virtual addresses.
        wait_fd: whether the completion queue can be slept on.
        segments: pages that one operation may carry.
        inflight_count: operations in flight per lane.
        max_operation_bytes: longest RMA operation.
    """

    provider: str
    domain: str
    worker_count: int
    lane_count: int
    address_bytes: int
    frame_bytes: int
    immediate_bytes: int
    key_bytes: int
    virtual_addresses: bool
    wait_fd: bool
    segments: int
    inflight_count: int
    max_operation_bytes: int

    @classmethod
    def from_struct(cls, ffi: FFI, struct: FabAttributes) -> Self:
        """Copy a `struct fab_attributes`."""
        values: dict[str, Any] = {field.name: getattr(struct, field.name) for field in fields(cls)}
        for name in ("provider", "domain"):
            values[name] = ffi.string(values[name]).decode("utf-8", "replace")
        for name in ("virtual_addresses", "wait_fd"):
            values[name] = bool(values[name])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class FabricStatistics:
    """Counts since the Fabric opened, over all its workers; each only grows.

    Attributes:
        operations_posted: RMA operations and frames handed to the provider.
        operations_completed: those that completed well.
        operations_failed: those that completed with an error.
        again: times the provider said -FI_EAGAIN.
        bytes_written: bytes of completed writes.
        bytes_read: bytes of completed reads.
        pages: pages moved.
        immediates_received: operations of peers that named a transfer here.
        frames_sent: frames sent, the engine's own included.
        frames_received: frames received, the engine's own included.
        transfers_confirmed: transfers of peers that were confirmed as complete.
        stale_frames: frames for an earlier peer or incarnation, dropped.
        stale_immediates: immediate data for no transfer that can be, dropped.
        malformed_frames: frames that were none, dropped.
        stray_completions: completions of operations that nobody knows, dropped.
        sleeps: times a worker went to sleep.
        wakeups: times the loop was woken.
        refused_hellos: connects that were refused or not understood.
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
    sleeps: int
    wakeups: int
    refused_hellos: int
    duplicate_frames: int

    @classmethod
    def from_struct(
        cls,
        struct: FabStatistics,
        *,
        refused_hellos: int,
        duplicate_frames: int,
    ) -> Self:
        """Copy a `struct fab_statistics` and add what the Python side counts."""
        own = {"refused_hellos": refused_hellos, "duplicate_frames": duplicate_frames}
        names = (field.name for field in fields(cls))
        counts = {name: getattr(struct, name) for name in names if name not in own}
        return cls(**counts, **own)
