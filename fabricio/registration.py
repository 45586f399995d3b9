"""`Registration`: memory registered with the engine once, under one key, and who was told of it."""

from __future__ import annotations

import secrets
import weakref
from typing import TYPE_CHECKING

from fabricio._ffi.check import check
from fabricio.custody import SilentWriters
from fabricio.descriptor import Descriptor
from fabricio.errors import FabricioError
from fabricio.revocation import Revocation
from fabricio.waiting import Once

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricio._ffi._native import Region
    from fabricio.buffers import Buffer
    from fabricio.completion import Completion
    from fabricio.engine import Engine
    from fabricio.revocation import Holder


class Registration:
    """One `struct fab_region`. A `MemoryRegion` has one, and another after each `revoke`.

    Attributes:
        handle: the engine's.
        opened: happens when the engine has registered it, or cannot.
        closed: happens when the engine has closed it, or never will.
        holders: channels that a message with its descriptor was made for.
        silent_writers: peers that fell silent, and may still write into it.

    Thread: event loop only.   Source: fi_mr(3).
    """

    def __init__(
        self,
        engine: Engine,
        buffer: Buffer,
        access: int,
        workers: int,
        on_change: Callable[[], object],
    ) -> None:
        """Ask the engine to register; `opened` follows.

        Args:
            engine: the engine.
            buffer: the memory, which must stay until `closed`.
            access: bits of the access that peers may get.
            workers: bit mask of the workers that register it.
            on_change: called when it was closed, and when a peer that could still write into it
                after that no longer can.

        Raises: FabricError: out of memory.
        """
        self._engine = engine
        self._workers = workers
        self._on_change = on_change
        self._writable = False
        self._revocation = Revocation(engine.loop, engine.options.peer_timeout_s)
        self._closing = False
        self.opened = Once(engine.loop)
        self.closed = Once(engine.loop)
        self.holders: weakref.WeakSet[Holder] = weakref.WeakSet()
        self.silent_writers = SilentWriters(engine, workers, on_change)
        self._token = engine.reader.expect(self._on_completion)
        out = engine.ffi.new("struct fab_region **")
        rc = engine.lib.fab_region_register(
            engine.handle,
            self._token,
            buffer.address,
            buffer.nbytes,
            access,
            secrets.randbits(8 * min(engine.attributes.key_bytes, 8)),
            workers,
            out,
        )
        if rc < 0:
            engine.reader.forget(self._token)
        check(rc, "fi_mr_reg", provider=engine.provider)
        self.handle: Region = out[0]

    @property
    def may_be_written(self) -> bool:
        """Whether a peer may write into it though it is closed, or will be."""
        if self._engine.attributes.writes_last == "region":
            return False
        return bool(self.silent_writers) or (self._writable and self._revocation.overdue)

    def lend(self, holder: Holder, *, writable: bool) -> None:
        """Remember who gets its descriptor, and whether to write."""
        self.holders.add(holder)
        self._writable |= writable

    def describe(self, offset_bytes: int, length_bytes: int, access: int) -> bytes:
        """Encode a part of it for a message."""
        engine = self._engine
        lib = engine.lib
        return Descriptor(
            access,
            engine.incarnation,
            self._token,
            lib.fab_region_base(self.handle) + offset_bytes,
            length_bytes,
            self._workers,
            tuple(
                lib.fab_region_key(self.handle, worker, lane)
                for worker, count in enumerate(engine.address.lane_counts)
                for lane in range(count)
            ),
        ).encode()

    def close(self) -> None:
        """Ask the holders to let go, wait for them in bounds, and close it. Idempotent."""
        if not self._closing:
            self._closing = True
            self._revocation.start(self._token, list(self.holders), self._close, self._on_change)

    def engine_failed(self, cause: Exception) -> None:
        """Wait no longer: the engine answers no more."""
        self._revocation.cancel()
        self.opened.set(cause)
        self.closed.set()

    def engine_closed(self) -> None:
        """Take the news that it is gone, with the engine."""
        self._revocation.cancel()
        self.silent_writers.engine_closed()
        if not self._engine.loop.is_closed():
            self.closed.set()

    def _close(self) -> None:
        engine = self._engine
        if not engine.is_open:
            return  # the engine's end closes it, and says so
        rc = engine.lib.fab_region_deregister(engine.handle, self.handle)
        try:
            check(rc, "fi_close", provider=engine.provider)
        except FabricioError as error:
            # What failed is the queue to the worker; the engine's end closes the region then.
            self.closed.set(error)

    def _on_completion(self, completion: Completion) -> None:
        engine = self._engine
        if completion.kind == engine.lib.FAB_REGION_DEREGISTERED:
            self.closed.set()
            self.silent_writers.region_closed()
            self._on_change()
        elif completion.kind == engine.lib.FAB_REGION_REGISTERED and not completion.status:
            self.opened.set()
        elif completion.cause is None:
            self.opened.set(engine.error(completion))
