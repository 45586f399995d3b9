"""`Engine`: one opened C engine, who may use it, and how it ends in every case.

An engine belongs to one loop, one thread and one process. It ends

- in order, by `close`: workers stop, say so, are joined;
- when its `Fabric` was dropped or the interpreter exits, by `shut`: the same without a loop, since
  workers must not outlive libfabric, whose destructors run at the end of the process;
- in a forked child at once: the child owns none of it and frees nothing.
"""

from __future__ import annotations

import asyncio
import atexit
import enum
import os
import secrets
import threading
from typing import TYPE_CHECKING, Protocol

from fabricio._ffi.check import check, error_from
from fabricio.address import Address
from fabricio.completion import Completion, CompletionReader
from fabricio.errors import BrokenResourceError, ClosedResourceError, FabricioError
from fabricio.statistics import FabricAttributes
from fabricio.waiting import Once

if TYPE_CHECKING:
    from fabricio._ffi._native import FFI, CData, FabOptions, Lib
    from fabricio._ffi._native import Engine as Handle
    from fabricio.channel import Channel
    from fabricio.options import FabricOptions
    from fabricio.placement import WorkerPlan

_EXIT_WAIT_S = 5.0
_WINDOW_SLACK_BYTES = 1 << 20

# Engines whose workers run: for the fork and exit hooks alone.
_running: set[Engine] = set()


class EngineState(enum.Enum):
    """Where an engine is in its life."""

    OPENING = enum.auto()
    OPEN = enum.auto()
    BROKEN = enum.auto()
    CLOSING = enum.auto()
    CLOSED = enum.auto()
    FORKED = enum.auto()


# Members of an enum are slow to look up, and these are compared at every call.
_OPEN = EngineState.OPEN
_FORKED = EngineState.FORKED


class Dependent(Protocol):
    """Something that ends with the engine."""

    def engine_failed(self, cause: Exception) -> None:
        """Take the news that the engine is dead, but not closed."""

    def engine_closed(self) -> None:
        """Take the news that the engine is gone, so that the memory is quiet."""


class Engine:
    """An engine and what its users need to know.

    Attributes:
        loop: the loop it belongs to.
        ffi: cffi's.
        lib: the engine's functions and constants.
        handle: `struct fab_engine *`, owned, gone once closed.
        reader: gives out completions.
        options: as it was opened.
        provider: the provider asked for.
        plans: the NICs and the CPU of each worker.
        incarnation: random name of this opening.
        attributes: what was opened; set by `open`.
        address: where peers find it; set by `open`.
        dependents: whoever must hear when the engine is dead or gone.
        channels: those of all peers that are not removed yet.
        adding: peers that the engine is taking in; each becomes a channel.
        region_count: regions that are not deregistered.
        duplicate_frames: counted by endpoints that are closed by now.

    Thread: event loop only, save `shut`.
    """

    attributes: FabricAttributes
    address: Address

    def __init__(
        self,
        native: tuple[FFI, Lib],
        loop: asyncio.AbstractEventLoop,
        options: FabricOptions,
        provider: str,
        plans: tuple[WorkerPlan, ...],
    ) -> None:
        """Start the workers; `open` waits for them.

        Args:
            native: `ffi` and `lib`.
            loop: the running loop.
            options: everything but the provider is taken from here.
            provider: exact libfabric name.
            plans: one for each worker.

        Raises: FabricError: threads or descriptors ran out.
        """
        self.ffi, self.lib = native
        self.loop = loop
        self.options = options
        self.provider = provider
        self.plans = plans
        self.incarnation = secrets.token_bytes(16)
        self.dependents: set[Dependent] = set()
        self.channels: set[Channel] = set()
        self.adding = 0
        self.region_count = 0
        self.duplicate_frames = 0
        self._state = EngineState.OPENING
        self._broken_by: Exception | None = None
        self._thread = threading.get_ident()
        self._opened = Once(loop)
        self._stopped = Once(loop)
        out = self.ffi.new("struct fab_engine **")
        struct, keep = self._options_struct()
        check(self.lib.fab_engine_open(struct, out), "fab_engine_open", provider=provider)
        del keep
        self.handle: Handle = out[0]
        self._workers_opening = self._workers_running = struct.worker_count
        self.reader = CompletionReader(
            loop, self.ffi, self.lib, self.handle, on_worker=self._on_worker, on_crash=self.fail
        )
        _running.add(self)
        self.reader.start()

    async def open(self) -> None:
        """Wait until every worker has opened libfabric.

        Raises: FabricError, NoProviderError: what the first failing worker met; the engine is
            closed then.
        Cancellation: the engine is closed before CancelledError is raised.
        """
        try:
            await self._opened.wait()
            struct = self.ffi.new("struct fab_attributes *")
            self.lib.fab_engine_attributes(self.handle, struct)
            counts = tuple(
                self.lib.fab_engine_lane_count(self.handle, worker)
                for worker in range(struct.worker_count)
            )
            self.attributes = FabricAttributes.from_struct(self.ffi, struct, counts)
            provider = self.attributes.provider
            self.address = Address(provider, self.incarnation, self._lanes(counts), counts)
        except BaseException:
            await self.close()
            raise
        self._state = EngineState.OPEN

    @property
    def is_open(self) -> bool:
        """Whether it works: opened, not broken, not closing."""
        return self._state is EngineState.OPEN

    @property
    def has_workers(self) -> bool:
        """Whether workers of this process run, so that somebody must close it."""
        return self._state not in (EngineState.CLOSED, EngineState.FORKED)

    @property
    def forked(self) -> bool:
        """Whether this is a forked child's copy."""
        return self._state is EngineState.FORKED

    def check(self) -> None:
        """Refuse whoever may not use it, or may not any more.

        Raises: ClosedResourceError: closed, or opened by the parent of this process;
            BrokenResourceError: the engine is dead; FabricioError: another loop or thread.
        """
        if self._state is not _OPEN:
            raise self._refusal()
        self.check_loop()

    def check_loop(self) -> None:
        """Refuse another loop, another thread and a forked child.

        Raises: FabricioError: another loop or thread; ClosedResourceError: a forked child.
        """
        if self._state is _FORKED:
            raise self._refusal()
        try:
            if asyncio.get_running_loop() is self.loop:
                return
        except RuntimeError:
            pass
        where = (
            "another event loop than the one"
            if threading.get_ident() == self._thread
            else "another thread than the one"
        )
        raise FabricioError(
            f"this Fabric is used from {where} that opened it: open one Fabric per loop, or reach "
            f"it with asyncio.run_coroutine_threadsafe or loop.call_soon_threadsafe"
        )

    def fail(self, cause: Exception) -> None:
        """Declare the engine dead: everything that waits on it is told.

        Args:
            cause: what broke it; becomes `__cause__` of what others get.
        """
        if self._state not in (EngineState.OPENING, EngineState.OPEN):
            return
        self._broken_by = cause
        self._state = EngineState.BROKEN
        error = self._refusal()
        self._opened.set(error)
        self.reader.fail_all(error)
        for dependent in list(self.dependents):
            dependent.engine_failed(error)

    async def close(self) -> None:
        """Stop the workers, wait for them, free the engine.

        Cancellation: it is closed all the same, and CancelledError raised then.
        """
        if not self.has_workers:
            return
        self._state = EngineState.CLOSING
        self.lib.fab_engine_stop(self.handle)
        try:
            await self._stopped.outlast()
        finally:
            self._free()

    def shut(self) -> None:
        """Stop, join and free without waiting on the loop: nobody is left who could.

        Thread: any.
        """
        if not self.has_workers:
            return
        if threading.get_ident() == self._thread or not self.loop.is_running():
            self._free()
        else:
            self.loop.call_soon_threadsafe(self._free)

    def shut_at_exit(self) -> None:
        """Do as `shut`, and do not return before it is done."""
        if self.has_workers and threading.get_ident() != self._thread and self.loop.is_running():
            done = threading.Event()
            self.loop.call_soon_threadsafe(self._free)
            self.loop.call_soon_threadsafe(done.set)
            done.wait(_EXIT_WAIT_S)
        self._free()

    def abandon(self) -> None:
        """Forget the workers: this is a forked child, which has none of them."""
        if self.has_workers:
            self._state = EngineState.FORKED
            self.reader.abandon()

    def _free(self) -> None:
        """Join the workers, which ended or are ending, and let go of all memory. Idempotent."""
        if not self.has_workers:
            return
        self._state = EngineState.CLOSED
        _running.discard(self)
        self.reader.stop()
        if not self.loop.is_closed():
            self.reader.fail_all(self._refusal())
        self.lib.fab_engine_close(self.handle)
        for dependent in list(self.dependents):
            dependent.engine_closed()
        self.dependents.clear()

    def _refusal(self) -> FabricioError:
        """Say why it cannot be used, in its present state."""
        if self._state is EngineState.FORKED:
            return ClosedResourceError(
                "this Fabric was opened before fork() by the parent process, which goes on using "
                "it: open a Fabric of its own in the child"
            )
        if self._state is EngineState.BROKEN:
            cause = self._broken_by
            error = BrokenResourceError(
                f"the engine of this Fabric is dead: {cause}. Close the Fabric and open another"
            )
            error.__cause__ = cause
            return error
        return ClosedResourceError("this Fabric is closed: open another")

    def _on_worker(self, completion: Completion) -> None:
        lib = self.lib
        if completion.kind == lib.FAB_WORKER_CLOSED:
            self._workers_running -= 1
            if self._workers_running == 0:
                self._stopped.set()
        elif completion.status:
            error = self.error(completion)
            if completion.kind == lib.FAB_WORKER_OPENED:
                self._opened.set(error)
            else:
                self.fail(error)
        elif completion.kind == lib.FAB_WORKER_OPENED:
            self._workers_opening -= 1
            if self._workers_opening == 0:
                self._opened.set()

    def error(self, completion: Completion, operation: str | None = None) -> FabricioError:
        """Make the exception for a completion whose status is not 0.

        Args:
            completion: what the reader gave.
            operation: "write", "read" or "send" where something was posted, else None.
        """
        if isinstance(completion.cause, FabricioError):
            return completion.cause
        failure = completion.failure or (completion.status, 0, "", "")
        return error_from(failure, operation=operation, provider=self.provider)

    def _lanes(self, counts: tuple[int, ...]) -> tuple[bytes, ...]:
        length = self.attributes.address_bytes
        buffer = self.ffi.new("char[]", length)
        lanes = []
        for worker, count in enumerate(counts):
            for lane in range(count):
                rc = self.lib.fab_engine_address(self.handle, worker, lane, buffer, length)
                check(rc, "fi_getname", provider=self.provider)
                lanes.append(self.ffi.buffer(buffer)[:])
        return tuple(lanes)

    def _options_struct(self) -> tuple[FabOptions, list[CData]]:
        """Return the struct, and what must outlive the call that reads it."""
        options = self.options
        struct = self.ffi.new("struct fab_options *")
        keep: list[CData] = []

        def text(value: str | None) -> CData:
            if value is None:
                return self.ffi.NULL
            keep.append(self.ffi.new("char[]", value.encode()))
            return keep[-1]

        struct.provider = text(self.provider)
        struct.source = text(options.source)
        plans = self.ffi.new("struct fab_plan[]", len(self.plans))
        for struct_plan, plan in zip(plans, self.plans, strict=True):
            nics = self.ffi.new("const char *[]", [text(nic) for nic in plan.nics])
            sources = self.ffi.new("const char *[]", [text(source) for source in plan.sources])
            struct_plan.nics, struct_plan.sources = nics, sources
            struct_plan.lane_count = len(plan.nics)
            struct_plan.cpu = -1 if plan.cpu is None else plan.cpu
            keep += [nics, sources]
        keep.append(plans)
        struct.plans, struct.worker_count = plans, len(self.plans)
        busy = options.polling == "busy"
        struct.polling = self.lib.FAB_POLLING_BUSY if busy else self.lib.FAB_POLLING_ADAPTIVE
        struct.frame_bytes = options.frame_bytes
        struct.receive_count = options.receive_count
        struct.quantum = options.quantum or 0
        struct.inflight_count = options.inflight_count or 0
        struct.inflight_bytes = options.inflight_bytes or 0
        struct.max_operation_bytes = options.max_operation_bytes or 0
        struct.segments = options.segments or 0
        struct.merge = options.merge
        struct.warmup = options.warmup
        struct.stripe_bytes = options.stripe_bytes or 0
        struct.spin_ns = max(1, round(options.spin_us * 1e3))  # 0 would mean the default
        struct.nap_ns = round(options.nap_us * 1e3)
        struct.peer_timeout_ns = round(options.peer_timeout_s * 1e9)
        # A frame has a header besides the bytes that the window counts.
        window = options.receive_window_bytes
        struct.frame_window_bytes = window + window // 4 + _WINDOW_SLACK_BYTES
        return struct, keep


def _abandon_all() -> None:
    for engine in list(_running):
        engine.abandon()
    _running.clear()


def _shut_all() -> None:
    for engine in list(_running):
        engine.shut_at_exit()


os.register_at_fork(after_in_child=_abandon_all)
atexit.register(_shut_all)
