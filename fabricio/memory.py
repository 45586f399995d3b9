"""Memory regions of this side, and shared ones on their way to a peer."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Literal, Self

from fabricio.buffers import describe
from fabricio.descriptor import READ, WRITE
from fabricio.errors import (
    CompletionError,
    LocalProtocolError,
    PeerLostError,
    RegionError,
    ResourceExhaustedError,
)
from fabricio.placement import workers_for_node
from fabricio.registration import Registration
from fabricio.waiting import Once

if TYPE_CHECKING:
    from types import TracebackType

    from fabricio._ffi._native import Region
    from fabricio.address import Address
    from fabricio.buffers import Buffer
    from fabricio.engine import Engine
    from fabricio.revocation import Holder

Access = Literal["", "r", "w", "rw"]

_ACCESS_BITS: dict[str, int] = {"": 0, "r": READ, "w": WRITE, "rw": READ | WRITE}
ACCESS_NAMES: tuple[Access, ...] = ("", "r", "w", "rw")


class SharedRegion:
    """A part of a region, ready to be put into a message; it arrives as a `RemoteRegion`."""

    __slots__ = ("access", "length_bytes", "offset_bytes", "region")

    def __init__(
        self, region: MemoryRegion, offset_bytes: int, length_bytes: int, access: int
    ) -> None:
        """Keep what `MemoryRegion.share` has checked."""
        self.region = region
        self.offset_bytes = offset_bytes
        self.length_bytes = length_bytes
        self.access = access

    def __repr__(self) -> str:
        """Show length and access."""
        return f"<SharedRegion {self.length_bytes} bytes {ACCESS_NAMES[self.access]!r}>"

    def encode(self, holder: Holder) -> bytes:
        """Return the descriptor for a message, and remember who gets it.

        Args:
            holder: what sends the message; asked to let go when the region is deregistered.

        Raises: LocalProtocolError: the region is another Fabric's; RegionError: it is closed.
        """
        if self.region.engine is not holder.engine:
            raise LocalProtocolError(
                "a region of another Fabric is in this message: register the memory with the "
                "Fabric whose endpoint sends it"
            )
        return self.region.lend(holder, self.offset_bytes, self.length_bytes, self.access)


class RegionSlice:
    """Some bytes of a `MemoryRegion`, usable wherever the region is.

    Attributes:
        region: the region it is a part of.
        offset_bytes: its first byte, counted from the region's.
        length_bytes: 0 or more.
    """

    __slots__ = ("length_bytes", "offset_bytes", "region")

    def __init__(self, region: MemoryRegion, offset_bytes: int, length_bytes: int) -> None:
        """Keep what slicing has checked."""
        self.region = region
        self.offset_bytes = offset_bytes
        self.length_bytes = length_bytes

    def __repr__(self) -> str:
        """Show the range."""
        end = self.offset_bytes + self.length_bytes
        return f"<RegionSlice [{self.offset_bytes}:{end}] of {self.region!r}>"

    def __getitem__(self, key: slice) -> RegionSlice:
        """Return a part, by bytes counted from this slice's first.

        Raises: RegionError: not within this slice, or with a step.
        """
        start, stop = slice_bounds(key, self.length_bytes)
        return RegionSlice(self.region, self.offset_bytes + start, stop - start)

    def share(self, access: Access) -> SharedRegion:
        """Allow peers to reach these bytes; see `MemoryRegion.share`."""
        bits = self.region.grant(access)
        return SharedRegion(self.region, self.offset_bytes, self.length_bytes, bits)


class MemoryRegion:
    """Registered memory. Made by `Fabric.register`.

    The memory's object stays exported (a `bytearray` cannot be resized) until `deregister` is
    done or the Fabric is closed.

    Attributes:
        address: virtual address of the first byte.
        length_bytes: at least 1.
        access: what peers may be granted at most: "", "r", "w" or "rw".
        path: "direct": the NIC reaches the memory itself.
        workers: bit mask of the engine's workers that have it registered.
        engine: the engine it is registered with.

    Thread: event loop only.
    """

    path: Literal["direct"] = "direct"

    def __init__(self, engine: Engine, buffer: Buffer, access: int, *, spread: bool = True) -> None:
        """Ask the engine to register; `Fabric.register` then waits for `opened`."""
        self.engine = engine
        self.address = buffer.address
        self.length_bytes = buffer.nbytes
        self.access: Access = ACCESS_NAMES[access]
        self.readonly = buffer.readonly
        self._bits = access
        self._buffer: Buffer | None = buffer
        self._closing = False
        self._closed = Once(engine.loop)
        self._drained = Once(engine.loop)
        self._calm = Once(engine.loop)  # happens when no peer may write into it any more
        self.workers = _workers(engine, buffer.address, spread=spread)
        self._registration = Registration(engine, buffer, access, self.workers, self._check)
        self._revoked: set[Registration] = set()  # earlier ones, not closed, or still written
        engine.dependents.add(self)
        engine.region_count += 1

    @classmethod
    async def register(
        cls, engine: Engine, obj: object, access: str, *, spread: bool = True
    ) -> Self:
        """Register an object's memory; see `Fabric.register`."""
        bits = _access_bits(access)
        limit = engine.options.max_regions
        if engine.region_count >= limit:
            raise ResourceExhaustedError(
                f"this Fabric has max_regions={limit} regions: deregister some, register larger "
                "ones and share slices of them, or raise max_regions"
            )
        buffer = describe(obj)
        if buffer.readonly and bits & WRITE:
            raise RegionError(
                f"this {type(obj).__name__} is read-only, so peers cannot be let write: pass "
                f'access="r" or access=""'
            )
        region = cls(engine, buffer, bits, spread=spread)
        try:
            await region._registration.opened.wait()
        except BaseException:
            region._begin_close()
            raise
        return region

    def __repr__(self) -> str:
        """Show length, access and state."""
        state = " deregistered" if self._closing else ""
        return f"<MemoryRegion {self.length_bytes} bytes {self.access!r}{state}>"

    def __getitem__(self, key: slice) -> RegionSlice:
        """Return a part of it, by bytes: `region[4096:8192]`.

        Args:
            key: start and stop in bytes; negative ones count from the end; no step.

        Raises: RegionError: not within the region, or with a step.
        """
        start, stop = slice_bounds(key, self.length_bytes)
        return RegionSlice(self, start, stop - start)

    async def __aenter__(self) -> Self:
        """Return the region; leaving the block deregisters it."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Deregister."""
        await self.deregister()

    @property
    def closed(self) -> bool:
        """Whether `deregister` was called, or the Fabric closed."""
        return self._closing

    def share(self, access: Access) -> SharedRegion:
        """Allow peers to reach the whole region, by a token that goes into messages.

        Args:
            access: "r", "w" or "rw"; no more than the region was registered with.

        Returns: an object for `Endpoint.send` and `notify=`, any number of times, on any endpoint
            of this Fabric; the peer gets a `RemoteRegion`.
        Raises: RegionError: access not granted by `register`, or the region is deregistered.
        Thread: event loop only.
        """
        return SharedRegion(self, 0, self.length_bytes, self.grant(access))

    def grant(self, access: str) -> int:
        """Check that an access may be given to peers, and return its bits."""
        bits = _access_bits(access)
        self.check_open()
        if bits == 0:
            raise RegionError('share("") gives nothing: use "r", "w" or "rw"')
        if bits & ~self._bits:
            raise RegionError(
                f"share({access!r}) is more than the region was registered with, "
                f"access={self.access!r}: register it with access={access!r} or more"
            )
        return bits

    def lend(self, holder: Holder, offset_bytes: int, length_bytes: int, access: int) -> bytes:
        """Encode a part of the region for a message, and remember who gets it."""
        self.check_open()
        registration = self._registration
        data = registration.describe(offset_bytes, length_bytes, access)
        registration.lend(holder, writable=bool(access & WRITE))
        if access & WRITE:
            holder.let_write(self)
        return data

    def check_open(self) -> Region:
        """Return the engine's region.

        Raises: RegionError: it is deregistered; ClosedResourceError: this is a forked child.
        """
        if self.engine.forked:
            self.engine.check_loop()
        if self._closing:
            raise RegionError("this region is deregistered: register the memory again")
        return self._registration.handle

    async def revoke(self) -> None:
        """Take the region back from every peer it was shared with; here it goes on as it was.

        Peers are told, and let go as soon as their running transfers end; what they start later
        raises RegionError there. The keys that they had are closed then, and new ones made: share
        the region again with whom you like, at any time.

        Returns when all have let go, and this side's transfers of before are over.

        Raises: CompletionError, PeerLostError: the keys are closed, but a peer that could write has
            not let go, and a write that it had begun may still land: as for `deregister`;
            RegionError: it is deregistered; FabricError: it could not be registered anew, and
            nothing has changed.
        Cancellation: before the new keys are there nothing has changed; after that the peers lose
            it all the same, and nobody waits for it.
        Thread: event loop only.   Source: fi_mr(3).
        """
        self.engine.check_loop()
        self.check_open()
        old = self._registration
        if not old.holders:
            return
        assert self._buffer is not None
        new = Registration(self.engine, self._buffer, self._bits, self.workers, self._check)
        self._revoked.add(new)
        try:
            await new.opened.wait()
            self.check_open()
        except BaseException:
            new.close()
            raise
        if self._registration is old:
            self._revoked.discard(new)
            self._revoked.add(old)
            self._registration = new
        else:
            new.close()  # another task was faster
        old.close()
        await old.closed.wait()
        if (held := self._held()) is not None:
            raise held

    async def deregister(self) -> None:
        """Close the region, once no transfer uses it, and let go of its memory. Idempotent.

        At once, nothing new can be done with it here. Peers that it was shared with are told, and
        let go as soon as their running transfers end; what they start later raises RegionError
        there. Who has not answered after `peer_timeout_s` is not waited for any longer.

        Raises: CompletionError: the region is closed, but a peer that could write into it has not
            let go, and a write that it had begun may still land: `quiesced` is False, the memory
            stays exported, and `drained` waits until it is not. PeerLostError, if it has fallen
            silent altogether. Neither where the NIC checks keys (`FabricAttributes.writes_last`);
            FabricioError: called from another loop or thread;
            FabricError: out of memory, and the region is closed with the Fabric.
        Cancellation: the region is closed all the same, later; nobody waits for it then.
        Thread: event loop only.   Source: fi_mr(3).
        """
        if self.engine.forked:
            return  # in a forked child it is the parent's
        self.engine.check_loop()
        self._begin_close()
        await self._closed.happens()
        if not self._drained.happened:
            self._closed.check()

    async def drained(self) -> None:
        """Wait until the region is deregistered, and nobody can touch its memory any more.

        Where a peer was lost that could write into it, that is when its connections have
        ended, which are cut off, or, on shm, when its process has.

        Cancellation: the memory stays exported as before.
        """
        await self._drained.happens()

    def lose_writer(self, loss: PeerLostError, address: Address, holder: Holder) -> None:
        """Take the news that a peer which may write into it has fallen silent.

        Args:
            loss: says so.
            address: the peer's.
            holder: the channel that led there.
        """
        for registration in self._registrations():
            if holder in registration.holders and self._buffer is not None:
                registration.silent_writers.add(loss, address, self._buffer)

    def engine_failed(self, cause: Exception) -> None:
        """Wait no longer: the engine answers no more. The memory is let go when it is closed."""
        self._closing = True
        for registration in self._registrations():
            registration.engine_failed(cause)
        self._closed.set()

    def engine_closed(self) -> None:
        """Let go of the memory: nothing can use it any more."""
        self._closing = True
        for registration in self._registrations():
            registration.engine_closed()
        self._buffer = None
        if not self.engine.loop.is_closed():
            self._check()
            self._closed.set()

    def _registrations(self) -> tuple[Registration, ...]:
        return self._registration, *self._revoked

    def _begin_close(self) -> None:
        self._closing = True
        for registration in self._registrations():
            registration.close()

    @property
    def _may_be_written(self) -> bool:
        return any(each.may_be_written for each in self._registrations())

    def _check(self) -> None:
        """Look what of it is over; called when that may have changed."""
        self._revoked = {
            each for each in self._revoked if not each.closed.happened or each.may_be_written
        }
        if not self._may_be_written:
            self._calm.set()
        if not self._closing or not all(each.closed.happened for each in self._registrations()):
            return
        if not self._may_be_written:
            if self in self.engine.dependents:
                self.engine.dependents.discard(self)
                self.engine.region_count -= 1
            self._buffer = None
            self._drained.set()
        errors = [each.closed.error for each in self._registrations()]
        self._closed.set(next(filter(None, errors), self._held()))

    def _held(self) -> CompletionError | None:
        """Say who may still write into it."""
        if not self._may_be_written:
            return None
        if self._calm.happened:
            self._calm = Once(self.engine.loop)
        silent = [each.silent_writers for each in self._registrations() if each.silent_writers]
        if not silent:
            late = CompletionError(
                f"a peer that can write into this region of {self.length_bytes} bytes has not let "
                f"go of it within peer_timeout_s={self.engine.options.peer_timeout_s}: its key is "
                "closed, but what was begun may still land, so its memory stays exported. "
                "`await error.drained()` before you use it for something else",
                operation="write",
                code=errno.ETIMEDOUT,
                name="FI_ETIMEDOUT",
                provider=self.engine.provider,
                quiesced=False,
            )
            late._drain = self._calm.happens
            return late
        count = sum(map(len, silent))
        address, loss = silent[0].first()
        error = PeerLostError(
            f"{count} {'peer' if count == 1 else 'peers'} that could write into this region of "
            f"{self.length_bytes} bytes did not let go of it before the endpoint was lost: its key "
            "is closed, but what was begun may still land, so its memory stays exported. `await "
            "error.drained()` before you use it for something else",
            operation="write",
            code=loss.code,
            name=loss.name,
            provider=loss.provider,
            quiesced=False,
        )
        error.peer, error.since = address, loss.since
        error._drain = self._calm.happens
        return error


def slice_bounds(key: slice, length_bytes: int) -> tuple[int, int]:
    """Return start and stop of a slice by bytes, refusing what Python would clip silently.

    Raises: RegionError: a step, a bound that is no integer, or a range that is not inside.
    """
    if not isinstance(key, slice) or key.step not in (None, 1):
        raise RegionError("regions are sliced by bytes, without a step: region[start:stop]")
    try:
        start, stop, _ = key.indices(length_bytes)
    except TypeError as error:
        raise RegionError(f"region slice bounds are integers: {error}") from error
    for name, bound in (("start", key.start), ("stop", key.stop)):
        if bound is not None and not -length_bytes <= int(bound) <= length_bytes:
            raise RegionError(
                f"slice {name} {bound} is outside of the region, which has {length_bytes} bytes"
            )
    if start > stop:
        raise RegionError(f"slice start {start} is behind its stop {stop}")
    return start, stop


def _workers(engine: Engine, address: int, *, spread: bool) -> int:
    """Return the bit mask of the workers that register this memory."""
    if spread:
        return (1 << len(engine.plans)) - 1
    node = engine.lib.fab_memory_node(address)
    places = workers_for_node(engine.plans, None if node < 0 else node)
    return sum(1 << place for place in places)


def _access_bits(access: str) -> int:
    bits = _ACCESS_BITS.get(access) if isinstance(access, str) else None
    if bits is None:
        raise RegionError(f'access={access!r} is unknown: use "", "r", "w" or "rw"')
    return bits
