"""From arguments to a running transfer: all checks first, then one call into the engine."""

from __future__ import annotations

import enum
import errno
from typing import TYPE_CHECKING, Final

from fabricio._ffi.check import check
from fabricio.errors import FabricioError, RegionError, WouldBlock
from fabricio.memory import MemoryRegion, RegionSlice
from fabricio.pages import PageLayout, PageSide
from fabricio.remote import RemoteRegion
from fabricio.transfer import Transfer
from fabricio.waiting import Once

if TYPE_CHECKING:
    from fabricio._ffi._native import CData, FabRemote
    from fabricio.channel import Channel
    from fabricio.pages import Fault, Indices


class Nothing(enum.Enum):
    """What `notify` is when there is to be no notification, since None is a message."""

    NOTHING = enum.auto()

    def __repr__(self) -> str:
        """Be short in signatures."""
        return "NOTHING"


NOTHING: Final = Nothing.NOTHING


class Submitter:
    """Starts the transfers of one channel.

    Thread: event loop only. Nothing here waits.
    """

    def __init__(self, channel: Channel) -> None:
        """Prepare the structs that every call reuses."""
        self._channel = channel
        engine = self._engine = channel.engine
        lib = engine.lib
        self._pages = engine.ffi.new("struct fab_pages *")
        self._position = engine.ffi.new("uint64_t *")
        self._first = engine.ffi.new("uint64_t *")
        self._out = engine.ffi.new("struct fab_transfer **")
        self._remote = engine.ffi.new("struct fab_remote *")
        self._sequence = 0
        self._faults: dict[int, Fault] = {
            lib.FAB_PAGES_LOCAL_RANGE: "local_range",
            lib.FAB_PAGES_REMOTE_RANGE: "remote_range",
            lib.FAB_PAGES_DUPLICATE: "duplicate",
            lib.FAB_PAGES_STRIDE: "stride",
            lib.FAB_PAGES_NO_MEMORY: "no_memory",
        }

    def resolve(
        self, local: MemoryRegion | RegionSlice, remote: RemoteRegion, *, read: bool
    ) -> tuple[MemoryRegion, int, int]:
        """Check that both sides may take part.

        Returns: this side's region, and first byte and length of what may be used of it.
        Raises: RegionError: not a region, closed on either side, of another Fabric or endpoint,
            or without the access that is needed; what `Channel.check` raises.
        """
        self._channel.check()
        if isinstance(local, MemoryRegion):
            region, start, length = local, 0, local.length_bytes
        elif isinstance(local, RegionSlice):
            region, start, length = local.region, local.offset_bytes, local.length_bytes
        else:
            raise RegionError(
                f"the local side is a {type(local).__name__}: pass what Fabric.register returned, "
                "or a slice of it"
            )
        if region.engine is not self._engine:
            raise RegionError(
                "the local region is registered with another Fabric: register the memory with the "
                "Fabric of this endpoint as well"
            )
        region.check_open()
        if not isinstance(remote, RemoteRegion):
            raise RegionError(
                f"the remote side is a {type(remote).__name__}: pass a RemoteRegion that came in a "
                "message over this endpoint, or a slice of it"
            )
        if remote.endpoint is not self._channel:
            raise RegionError(
                "the remote region came over another endpoint: have the peer share it over this one"
            )
        remote.grant.check()
        need = "r" if read else "w"
        if need not in remote.access:
            raise RegionError(
                f"the peer shared this region with access {remote.access!r}, which does not allow "
                f"{'read' if read else 'write'}: have it share the region with {need!r}"
            )
        if read and region.readonly:
            raise RegionError("the local region is read-only memory: it cannot be read into")
        return region, start, length

    def whole(
        self,
        local: MemoryRegion | RegionSlice,
        remote: RemoteRegion,
        *,
        read: bool,
        notify: object,
        confirm: bool,
    ) -> Transfer:
        """Move all bytes of the local side, to or from the beginning of the remote side."""
        region, start, length = self.resolve(local, remote, read=read)
        if length > remote.length_bytes:
            raise RegionError(
                f"the local side has {length} bytes and the remote one {remote.length_bytes}: "
                f"pass a slice of the local side that is not longer"
            )
        layout = PageLayout(
            length,
            1 if length else 0,
            PageSide(None, 0, length, length),
            PageSide(None, 0, length, remote.length_bytes),
            read,
        )
        return self.submit(region, start, remote, layout, notify=notify, confirm=confirm)

    def submit(
        self,
        region: MemoryRegion,
        start: int,
        remote: RemoteRegion,
        layout: PageLayout,
        *,
        notify: object,
        confirm: bool,
    ) -> Transfer:
        """Check every page and start.

        Args:
            region: this side's.
            start: first byte of it that the layout counts from.
            remote: the peer's.
            layout: what goes where.
            notify: message for the peer, or NOTHING.
            confirm: whether the transfer is done only when the peer has counted everything.

        Raises: RegionError: a page that may not be moved; LocalProtocolError: a notification that
            cannot be encoded; WouldBlock: too many transfers run, or messages wait; FabricError:
            out of memory. Nothing was posted and nothing sent then.
        """
        channel = self._channel
        operation = "read" if layout.read else "write"
        transfer = Transfer(
            self._engine, operation, layout.count, layout.page_bytes, channel.transfers.discard
        )
        if layout.count:
            self._check_pages(start, layout)
        limit = self._engine.options.max_transfers
        if len(channel.transfers) >= limit:
            raise WouldBlock(
                f"max_transfers={limit} transfers of this endpoint run: await some of them first, "
                "or raise max_transfers"
            )
        if not layout.count:
            # Nothing to wait for: the notification is a message like any other.
            if notify is not NOTHING:
                transfer.notifies(channel.outbox.flow(channel.queue(notify, None)))
            transfer.skip()
            return transfer
        self._start(transfer, region, remote, layout, notify=notify, confirm=confirm)
        return transfer

    def _check_pages(self, start: int, layout: PageLayout) -> None:
        """Fill the struct and have the engine look at every page."""
        engine = self._engine
        pages = self._pages
        local, remote = layout.local, layout.remote
        if local.offset_bytes > local.length_bytes:  # so that the sums below fit into 64 bits
            raise layout.fault("local_range", 0)
        pages.page_bytes = layout.page_bytes
        pages.count = layout.count
        pages.local_index = self._indices(local.indices)
        pages.local_offset = start + local.offset_bytes
        pages.local_stride = local.stride_bytes
        pages.local_bytes = start + local.length_bytes
        pages.remote_index = self._indices(remote.indices)
        pages.remote_offset = remote.offset_bytes
        pages.remote_stride = remote.stride_bytes
        pages.remote_bytes = remote.length_bytes
        found = engine.lib.fab_pages_check(pages, layout.read, self._position, self._first)
        if found:
            raise layout.fault(self._faults[found], self._position[0], self._first[0])

    def _remote_struct(self, remote: RemoteRegion) -> FabRemote:
        """Name the peer's region for one call."""
        struct = self._remote
        struct.base = remote.base
        struct.workers = remote.workers
        self._keys = self._engine.ffi.new("uint64_t[]", remote.keys)  # for as long as the call
        struct.keys = self._keys
        struct.key_count = len(remote.keys)
        return struct

    def _indices(self, indices: Indices | None) -> CData:
        """Return a pointer that is valid for as long as `indices` is held."""
        ffi = self._engine.ffi
        return ffi.NULL if indices is None else ffi.from_buffer("int64_t[]", indices)

    def _start(
        self,
        transfer: Transfer,
        region: MemoryRegion,
        remote: RemoteRegion,
        layout: PageLayout,
        *,
        notify: object,
        confirm: bool,
    ) -> None:
        channel = self._channel
        engine = self._engine
        lib = engine.lib
        flags = 0
        if layout.read:
            flags |= lib.FAB_TRANSFER_READ
        if confirm:
            flags |= lib.FAB_TRANSFER_CONFIRM
        number = 0
        if notify is not NOTHING:
            flags |= lib.FAB_TRANSFER_NOTIFY
            number = channel.queue(notify, self._sequence)
        token = engine.reader.expect(transfer.on_completion)
        rc = lib.fab_transfer_start(
            engine.handle,
            channel.peer,
            flags,
            token,
            self._sequence,
            region.check_open(),
            self._remote_struct(remote),
            self._pages,
            self._out,
        )
        if rc < 0:
            engine.reader.forget(token)
            if number:
                channel.outbox.withdraw(number)
            if rc == -errno.EINVAL:
                raise RegionError(
                    "no path leads from the NICs that have the local region to those that have "
                    "the remote one: register one of them for all NICs"
                )
            check(rc, "fab_transfer_start", provider=engine.provider)
        transfer.started(self._out[0], region, remote.grant)
        channel.transfers.add(transfer)
        self._sequence += 1
        if number:
            transfer.notifies(self._notify(transfer, number))

    def _notify(self, transfer: Transfer, number: int) -> Once | None:
        """Send the notification of a transfer that runs already.

        Returns: as `Outbox.flow`. If the engine refuses, the transfer ends, and whoever awaits it
            is told: by then its memory is in use, so the caller must get it.
        """
        try:
            return self._channel.outbox.flow(number)
        except FabricioError as error:
            transfer.end(error)
            refused = Once(self._engine.loop)
            refused.set(error)
            return refused
