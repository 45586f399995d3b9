"""`Listener`: endpoints of peers that connect."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from fabricio.address import split_host_port
from fabricio.errors import ClosedResourceError, FabricioError
from fabricio.inbox import Inbox
from fabricio.rendezvous import serve_address
from fabricio.waiting import close_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from fabricio.acceptor import Accepted, Acceptor
    from fabricio.endpoint import Endpoint
    from fabricio.engine import Engine


class Listener:
    """An async iterator of endpoints. Made by `Fabric.listen`.

    Peers come in-band, by the Fabric's address; with a rendezvous they may ask a TCP port for that
    address first. Several listeners of one Fabric: the one opened first gets the endpoints.

    `async with` opens and closes it. Otherwise it opens when the first peer is asked for, as in
    `async for endpoint in fabric.listen()`, and is closed with the Fabric: leaving the loop does
    not close it.

    Thread: event loop only.
    """

    def __init__(
        self,
        engine: Engine,
        acceptor: Acceptor,
        host_port: str | None,
        on_refused: Callable[[FabricioError], object] | None,
    ) -> None:
        """Prepare; entering opens, or asking for a peer.

        Args:
            engine: the engine.
            acceptor: gives the endpoints.
            host_port: of the rendezvous, if there is to be one.
            on_refused: see `Fabric.listen`.

        Raises: OptionsError: `host_port` is not "host:port".
        """
        self._engine = engine
        self._acceptor = acceptor
        self._where = None if host_port is None else split_host_port(host_port)
        self._on_refused = on_refused
        self._opening = asyncio.Lock()
        self._inbox: Inbox | None = None
        self._server: asyncio.Server | None = None
        self._closed = False

    def __repr__(self) -> str:
        """Show where it listens."""
        state = " closed" if self._closed else ""
        return f"<Listener {self.host_port or 'in-band'}{state}>"

    @property
    def host_port(self) -> str | None:
        """Where the rendezvous listens, with the port it got; None without one."""
        if self._server is None or not self._server.sockets:
            return None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def __aenter__(self) -> Self:
        """Open: bind the rendezvous port, begin to take peers.

        Raises: OSError: the port cannot be had; ClosedResourceError: used before.
        Cancellation: the port is given back, and the listener closed.
        """
        self._engine.check()
        if self._closed or self._inbox is not None or self._opening.locked():
            raise ClosedResourceError("a listener is opened once: call Fabric.listen again")
        try:
            await self._open()
        except BaseException:
            self._end(ClosedResourceError("this listener is closed"))
            raise
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
        """Iterate over peers, until the listener or the Fabric is closed."""
        return self

    async def __anext__(self) -> Endpoint:
        """Take the next peer."""
        self._engine.check_loop()  # a forked child is refused, and that is no end of the peers
        try:
            return await self.accept()
        except ClosedResourceError as error:
            raise StopAsyncIteration from error

    async def accept(self) -> Endpoint:
        """Wait for the next peer.

        Returns: its endpoint, which is yours to close.
        Raises: ClosedResourceError: the listener or the Fabric is closed; BrokenResourceError: the
            Fabric is broken; OSError: the port cannot be had, if this opens the listener.
        Cancellation: no peer is lost.
        Thread: event loop only; several tasks that wait are served in turn.
        """
        self._engine.check_loop()
        inbox = self._inbox or await self._open()
        accepted: Accepted = await inbox.get()  # type: ignore[assignment]  # by take()
        self._acceptor.handed_out(accepted)
        assert accepted.endpoint is not None
        return accepted.endpoint

    def take(self, accepted: Accepted) -> None:
        """Take an endpoint from the acceptor."""
        assert self._inbox is not None
        self._inbox.put(accepted, 0, None)

    def refused(self, error: FabricioError) -> None:
        """Take the news that a peer was refused, or refuses this side."""
        if self._on_refused is not None:
            # Not from here: what the application's function raises is the loop's to report.
            self._engine.loop.call_soon(self._on_refused, error)

    async def aclose(self) -> None:
        """Close the port, and the endpoints that nobody has taken. Idempotent.

        Endpoints that were taken are not concerned.

        Cancellation: everything is closed all the same.
        Thread: event loop only.
        """
        if self._closed or self._engine.forked:
            return  # in a forked child it is the parent's
        self._engine.check_loop()
        dropped = self._end(ClosedResourceError("this listener is closed"))
        await close_all(
            self._engine.loop, [each.endpoint.aclose() for each in dropped if each.endpoint]
        )
        if self._server is not None:
            await self._server.wait_closed()

    def engine_failed(self, cause: Exception) -> None:
        """Take the news that the Fabric is broken."""
        if self._inbox is not None:
            self._inbox.finish(cause)

    def engine_closed(self) -> None:
        """Take the news that the Fabric is closed."""
        self._end(ClosedResourceError("the Fabric of this listener is closed"))

    async def _open(self) -> Inbox:
        """Bind the rendezvous port, begin to take peers; unless somebody else has, meanwhile.

        Raises: OSError: the port cannot be had; ClosedResourceError: closed, even while it opens.
        Cancellation: the port is given back.
        """
        async with self._opening:
            if self._inbox is not None:
                return self._inbox
            server = None
            if self._where is not None and not self._closed:
                server = await serve_address(*self._where, self._engine.address)
            try:
                if self._closed:
                    raise ClosedResourceError("this listener is closed")
                self._engine.check()
            except FabricioError:
                if server is not None:
                    server.close()
                raise
            self._server = server
            self._inbox = Inbox(self._engine.loop, lambda _: None, 0)
            self._engine.dependents.add(self)
            self._acceptor.add(self)
            return self._inbox

    def _end(self, error: ClosedResourceError) -> list[Accepted]:
        """Stop listening; return what nobody has taken."""
        self._closed = True
        self._engine.dependents.discard(self)
        self._acceptor.discard(self)
        if self._server is not None:
            self._server.close()
        if self._inbox is None:
            return []
        dropped: list[Accepted] = [entry.value for entry in self._inbox.close(error)]  # type: ignore[misc]  # by take()
        return dropped
