"""`Fabric`: opens libfabric, registers memory, connects and listens."""

from __future__ import annotations

import asyncio
import warnings
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from fabricio import handshake
from fabricio.acceptor import Acceptor
from fabricio.connector import Connector
from fabricio.errors import (
    ClosedResourceError,
    RemoteProtocolError,
)
from fabricio.listener import Listener
from fabricio.memory import Access, MemoryRegion
from fabricio.opening import open_engine
from fabricio.options import FabricOptions
from fabricio.statistics import FabricStatistics
from fabricio.waiting import Once, close_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from fabricio.address import Address
    from fabricio.endpoint import Endpoint
    from fabricio.engine import Engine
    from fabricio.errors import FabricioError
    from fabricio.statistics import FabricAttributes


class Fabric:
    """One opened provider: `async with Fabric(provider="tcp") as fabric`.

    It belongs to the event loop that enters it, and ends with the block: endpoints part from their
    peers, regions are deregistered, engine threads are joined.

    Thread: event loop only; another loop, another thread and a forked child are refused.
    """

    def __init__(self, options: FabricOptions | None = None, **overrides: Any) -> None:  # noqa: ANN401  (FabricOptions types them)
        """Set the options; entering opens.

        Args:
            options: all of them; None: the defaults.
            overrides: single fields of `FabricOptions`, by name.

        Raises: OptionsError: an option that does not exist, or a value that is not possible.
        """
        self._engine: Engine | None = None
        self._entered = False
        self._closing = False
        self._closed: Once | None = None
        self._options = FabricOptions.merged(options, overrides)

    def __repr__(self) -> str:
        """Show provider and state."""
        if self._engine is None:
            return f"<Fabric {'closed' if self._entered else 'not entered'}>"
        engine = self._engine
        state = "closed" if self._closing or not engine.has_workers else "broken"
        if state == "broken" and engine.is_open:
            state = "open"
        return f"<Fabric {engine.provider} {engine.incarnation.hex()[:8]} {state}>"

    def __del__(self) -> None:
        """Complain about a Fabric that was dropped open; its finalizer has shut the engine."""
        engine = self._engine
        if engine is not None and not self._closing and not engine.forked:
            warnings.warn(
                f"{self!r} was dropped without aclose(): use `async with`",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    async def __aenter__(self) -> Self:
        """Open the provider and start the engine's threads.

        Returns: the Fabric.
        Raises: NoLibfabricError: there is none to load; NoProviderError: the provider does not
            exist here; OptionsError: NICs, GPUs or CPUs that are not here; FabricError: it cannot
            be opened; ClosedResourceError: entered before.
        Cancellation: everything is closed before CancelledError is raised.
        """
        if self._entered:
            raise ClosedResourceError("a Fabric is entered once: make another")
        self._entered = True
        loop = asyncio.get_running_loop()
        engine = await open_engine(loop, self._options)
        self._engine = engine
        self._closed = Once(loop)
        self._connector = Connector(engine)
        self._acceptor = Acceptor(engine)
        engine.reader.on_hello = partial(_route_hello, self._acceptor, self._connector)
        # The engine's threads must end before the process does, and with a Fabric that nobody has
        # closed; it does not know this object, so that dropping it is noticed.
        weakref.finalize(self, engine.shut).atexit = False
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        await self.aclose()

    @property
    def options(self) -> FabricOptions:
        """As given, defaults filled in."""
        return self._options

    @property
    def address(self) -> Address:
        """Where peers find this Fabric; `str` of it can be given to them in any way."""
        return self._running().address

    @property
    def attributes(self) -> FabricAttributes:
        """What was opened."""
        return self._running().attributes

    def statistics(self) -> FabricStatistics:
        """Return what was counted since the Fabric opened.

        Raises: ClosedResourceError: not entered, or closed.
        """
        engine = self._running()
        struct = engine.ffi.new("struct fab_statistics *")
        engine.lib.fab_engine_statistics(engine.handle, struct)
        duplicates = engine.duplicate_frames
        duplicates += sum(channel.duplicate_count for channel in engine.channels)
        return FabricStatistics.from_struct(
            struct,
            refused_hellos=self._acceptor.refusals.count,
            authentication_failures=self._acceptor.refusals.authentication_count,
            duplicate_frames=duplicates,
        )

    async def register(
        self, obj: object, access: Access = "rw", *, spread: bool = True
    ) -> MemoryRegion:
        """Register memory, for transfers from here and, as far as allowed, from peers.

        Args:
            obj: anything contiguous with memory: numpy array, bytearray, mmap, memoryview, array,
                CPU tensor; any shape and dtype, at least one byte. It stays exported.
            access: what may be granted to peers at most: "r", "w", "rw" or "" for nothing. Read-
                only objects need "r" or "".
            spread: True: all workers move it. False: only those on the NUMA node of its first
                byte, so that it leaves alone the link between nodes; a transfer needs workers
                that have both sides.

        Returns: the region; closed by its `deregister`, by `async with`, or with the Fabric.
        Raises: RegionError: no memory, not contiguous, empty, or read-only with "w" in `access`;
            UnsupportedError: GPU memory; ResourceExhaustedError: RLIMIT_MEMLOCK or the NIC's own
            limit; FabricError: the provider refuses.
        Cancellation: the registration is undone, later; nobody waits for it then.
        Thread: event loop only.   Source: fi_mr(3).
        """
        return await MemoryRegion.register(self._usable(), obj, access, spread=spread)

    async def connect(self, target: Address | str) -> Endpoint:
        """Connect to a peer that listens, or will within `connect_timeout_s`.

        Args:
            target: the peer's address, or its text, or "host:port" of its rendezvous.

        Returns: an endpoint, yours to close.
        Raises: OptionsError: no address, or one of another provider, or the function given as
            `secret=` returns none; PeerUnreachableError: no
            answer in time, or by another process than the address names; RemoteProtocolError:
            the two sides do not fit together, and the text says why; AuthenticationError: they do
            not share the same secret.
        Cancellation: the attempt is given up, and the peer told so; its application never hears
            of it.
        Thread: event loop only.   Source: fi_av(3).
        """
        self._usable()
        return await self._connector.connect(target)

    def listen(
        self,
        host_port: str | None = None,
        *,
        on_refused: Callable[[FabricioError], object] | None = None,
    ) -> Listener:
        """Prepare to take peers: `async with fabric.listen() as listener`.

        Or `async for endpoint in fabric.listen()`, which takes them until the Fabric is closed.

        Args:
            host_port: TCP port that says this Fabric's address to whoever connects there, such as
                "0.0.0.0:7000"; port 0: any free one. None: peers must know the address.
            on_refused: called from the loop for each peer that this side refuses, or that refuses
                this side, with the error that `connect` would have raised here: such as
                AuthenticationError, or OptionsError where the function given as `secret=` has
                failed. The listener goes on. None: a warning in the log of "fabricio", one in ten
                seconds at most, is all.

        Returns: an async iterator of endpoints.
        Raises: OptionsError: not "host:port".
        Thread: event loop only.
        """
        return Listener(self._usable(), self._acceptor, host_port, on_refused)

    async def aclose(self) -> None:
        """Close endpoints, then regions, then the engine. Idempotent.

        Endpoints send what was accepted and part from their peers, which is bounded by twice
        `peer_timeout_s`. Whatever still runs ends with ClosedResourceError. Memory is let go only
        when nothing can touch it any more.

        Cancellation: waits for no peer any longer; everything is freed before CancelledError is
        raised.
        Thread: event loop only.   Source: fi_domain(3), fi_endpoint(3).
        """
        self._entered = True
        engine = self._engine
        if engine is None or engine.forked:
            return
        if self._closed is not None and self._closed.happened:
            return
        engine.check_loop()
        assert self._closed is not None
        if self._closing:
            await self._closed.wait()
            return
        self._closing = True
        try:
            try:
                await self._close_parts(engine)
            finally:
                await engine.close()
        finally:
            self._closed.set()

    async def _close_parts(self, engine: Engine) -> None:
        """Close listeners and endpoints, all at once."""
        self._acceptor.close()
        self._connector.close()
        closings = [taker.aclose() for taker in self._acceptor.takers]
        channels = list(engine.channels)
        closings += [channel.aclose() for channel in channels]
        try:
            await close_all(engine.loop, closings)
        except asyncio.CancelledError:
            # No peer is waited for any longer, but each is told.
            for channel in channels:
                await channel.last_word()
            raise

    def _running(self) -> Engine:
        """Return the engine, if there is one to ask."""
        if self._engine is None:
            raise ClosedResourceError(
                "this Fabric is not open: enter it first, with `async with Fabric(...) as fabric`"
            )
        if not self._engine.has_workers:
            self._engine.check()
        return self._engine

    def _usable(self) -> Engine:
        """Return the engine, if it may be used from here and now."""
        engine = self._running()
        if self._closing:
            raise ClosedResourceError("this Fabric is closed: open another")
        engine.check()
        return engine


def _route_hello(acceptor: Acceptor, connector: Connector, data: bytes) -> None:
    """Take a frame from a peer that is none yet. Knows no Fabric, so that one can be dropped."""
    try:
        greeting = handshake.decode(data)
    except RemoteProtocolError:
        acceptor.refusals.count += 1
        return
    if isinstance(greeting, handshake.Hello | handshake.ForeignHello):
        acceptor.hello(greeting, data)
    elif isinstance(greeting, handshake.HelloProof):
        acceptor.proof(greeting, data)
    else:
        connector.answered(greeting, data)
        if isinstance(greeting, handshake.End):
            acceptor.ended(greeting)  # either side may; who does not know the attempt drops it
