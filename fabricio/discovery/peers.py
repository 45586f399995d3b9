"""`Peers`: endpoints to all members, as they come and go."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from fabricio.discovery.backoff import Backoff
from fabricio.discovery.membership import PeerJoined
from fabricio.discovery.source import check_seconds
from fabricio.discovery.tasks import end
from fabricio.errors import (
    ClosedResourceError,
    FabricioError,
    OptionsError,
    PeerUnreachableError,
)
from fabricio.rendezvous import fetch_address

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
    from types import TracebackType

    from fabricio.discovery.membership import Peer, PeerEvent
    from fabricio.endpoint import Endpoint
    from fabricio.fabric import Fabric

_LOG = logging.getLogger("fabricio")

_FIRST_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class PeerConnected:
    """There is an endpoint to a member."""

    peer: Peer
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class PeerDisconnected:
    """An endpoint that `PeerConnected` told of can be used no more.

    Attributes:
        peer: the member.
        endpoint: the same endpoint.
        reason: what the endpoint's own calls raise; None: the member left, and the endpoint is
            being closed.
    """

    peer: Peer
    endpoint: Endpoint
    reason: Exception | None


ConnectionEvent = PeerConnected | PeerDisconnected


class Peers:
    """Connects to every peer that joins, and closes the endpoint of every one that leaves.

    `async with Peers(fabric, discovery) as peers`, then iterate over `PeerConnected` and
    `PeerDisconnected`. Every member has a task of its own, so none waits for another: one that does
    not answer, or whose endpoint was lost, is tried again with pauses that grow, for as long as it
    is a member. This Fabric itself, which most discoveries list too, is told by its incarnation and
    left out.

    Both of two peers that discover each other connect. So a pair has two endpoints, each made by
    one side: what a side wants, it asks for on the one that it made, and what a `Listener` gives
    it, it serves. `only` has some peers left alone; `lambda peer: own < peer` lets one endpoint be
    made per pair, by the side that sorts first.

    Thread: event loop only.
    """

    def __init__(
        self,
        fabric: Fabric,
        discovery: AsyncIterator[PeerEvent],
        *,
        only: Callable[[Peer], bool] | None = None,
        connect_count: int = 16,
        max_pause_s: float = 10.0,
    ) -> None:
        """Prepare; entering begins to connect.

        Args:
            fabric: entered, and not closed before this is.
            discovery: entered likewise: any iterator of `PeerJoined` and `PeerLeft`.
            only: whether to connect to this peer; None: to all.
            connect_count: first attempts under way at once, and as many further ones.
            max_pause_s: longest pause in seconds between two attempts at one peer.

        Raises: OptionsError: a value that is not possible.
        """
        check_seconds(max_pause_s=max_pause_s)
        if connect_count < 1:
            raise OptionsError(f"connect_count={connect_count} is not possible: give 1 or more")
        self._fabric = fabric
        self._discovery = discovery
        self._only = only
        self._max_pause_s = max_pause_s
        # Peers that have failed must not keep those from their turn that have not been tried yet.
        self._first_slots = asyncio.Semaphore(connect_count)
        self._further_slots = asyncio.Semaphore(connect_count)
        self._members: dict[Peer, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._endpoints: dict[Peer, Endpoint] = {}
        self._failures: dict[Peer, Exception] = {}
        self._events: dict[Endpoint, ConnectionEvent] = {}
        self._news = asyncio.Event()
        self._failure: BaseException | None = None
        self._entered = False
        self._closed = False

    def __repr__(self) -> str:
        """Show how many members there are, and endpoints to them."""
        return f"<Peers members={len(self._members)} endpoints={len(self._endpoints)}>"

    @property
    def endpoints(self) -> Mapping[Peer, Endpoint]:
        """The endpoints that there are now, by member; a view."""
        return MappingProxyType(self._endpoints)

    @property
    def failures(self) -> Mapping[Peer, Exception]:
        """Why there is none to a member at the moment: how the last attempt failed; a view."""
        return MappingProxyType(self._failures)

    async def __aenter__(self) -> Self:
        """Begin to follow.

        Raises: ClosedResourceError: entered before.
        """
        if self._entered:
            raise ClosedResourceError("Peers are entered once: make others")
        self._entered = True
        self._start(self._follow(), "follows the membership")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        await self.aclose()

    def __aiter__(self) -> Self:
        """Iterate over endpoints that come and go."""
        return self

    async def __anext__(self) -> ConnectionEvent:
        """Wait for the next endpoint that comes or goes.

        One that came and went while nobody iterated is not mentioned.

        Raises: DiscoveryError: the discovery's; ClosedResourceError, BrokenResourceError: the
            Fabric's; StopAsyncIteration: this is closed. Endpoints that there are live on.
        Cancellation: no event is lost.
        """
        if not self._entered:
            raise ClosedResourceError("these Peers are not open: use `async with` on them")
        while True:
            if self._closed:
                raise StopAsyncIteration
            if self._events:
                return self._events.pop(next(iter(self._events)))
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            self._news.clear()
            await self._news.wait()

    async def aclose(self) -> None:
        """Connect no more, and close all endpoints at once, each in order. Idempotent.

        Cancellation: waits for no peer any longer; all endpoints are closed all the same.
        """
        self._closed = True
        self._news.set()
        await end(self._tasks)

    async def _follow(self) -> None:
        """Have one task for each member."""
        async for event in self._discovery:
            if self._closed:
                return  # whoever closes waits for the tasks that there are
            if isinstance(event, PeerJoined):
                if self._only is None or self._only(event.peer):
                    keeping = self._keep(event.peer)
                    self._members[event.peer] = self._start(keeping, event.peer.host_port)
            elif (task := self._members.pop(event.peer, None)) is not None:
                task.cancel()

    async def _keep(self, peer: Peer) -> None:
        """Have an endpoint to one member, until cancelled."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(min(_FIRST_PAUSE_S, self._max_pause_s), self._max_pause_s)
        slots = self._first_slots
        try:
            while True:
                try:
                    async with slots:
                        endpoint = await self._connect(peer)
                except (FabricioError, OSError, UnicodeError) as error:
                    self._fabric.listen()  # only prepared; raises where the Fabric is at its end
                    self._failed(peer, error)
                    slots = self._further_slots
                else:
                    if endpoint is None:
                        return
                    start = loop.time()
                    await self._hold(peer, endpoint)
                    slots = self._first_slots
                    if loop.time() - start > self._max_pause_s:
                        backoff.reset()
                await asyncio.sleep(backoff.next_s())
        finally:
            self._failures.pop(peer, None)

    async def _connect(self, peer: Peer) -> Endpoint | None:
        """Connect; None: the peer is this Fabric."""
        limit_s = self._fabric.options.connect_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                address = await fetch_address(peer.host, peer.port)
        except TimeoutError as error:
            raise PeerUnreachableError(
                f"the rendezvous at {peer.host_port} says no address within "
                f"connect_timeout_s={limit_s:g}"
            ) from error
        if address.incarnation == self._fabric.address.incarnation:
            return None
        return await self._fabric.connect(address)

    async def _hold(self, peer: Peer, endpoint: Endpoint) -> None:
        """Tell of an endpoint, and close it when it has ended or the member leaves."""
        self._failures.pop(peer, None)
        self._endpoints[peer] = endpoint
        self._tell(PeerConnected(peer, endpoint))
        reason: Exception | None = None
        try:
            reason = await endpoint.closed
            self._failures[peer] = reason
        finally:
            del self._endpoints[peer]
            self._tell(PeerDisconnected(peer, endpoint, reason))
            await endpoint.aclose()

    def _failed(self, peer: Peer, error: Exception) -> None:
        """Note that an attempt failed, and say so unless the last one failed likewise."""
        if type(self._failures.get(peer)) is not type(error):
            _LOG.warning("no connection to %s (%s) yet: %s", peer.host_port, peer.name, error)
        self._failures[peer] = error

    def _tell(self, event: ConnectionEvent) -> None:
        """Queue an event; of an endpoint whose beginning nobody has heard, not the end."""
        if self._events.pop(event.endpoint, None) is None:
            self._events[event.endpoint] = event
        self._news.set()

    def _start(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"fabricio peers: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
            self._news.set()
