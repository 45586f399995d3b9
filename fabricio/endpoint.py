"""`Endpoint`: messages and transfers with one peer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from fabricio.errors import ClosedResourceError
from fabricio.pages import layout
from fabricio.submission import NOTHING, Submitter

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    from fabricio.address import Address
    from fabricio.channel import Channel
    from fabricio.memory import MemoryRegion, RegionSlice
    from fabricio.remote import RemoteRegion
    from fabricio.transfer import Transfer


class Closure:
    """Whether an endpoint is at its end, and why: `bool` of it, and `await` it.

    Awaiting raises nothing of what ended it, but returns it: ClosedResourceError where either side
    closed it, PeerLostError, RemoteProtocolError or BrokenResourceError where it broke. A cancelled
    wait changes nothing.

    Thread: event loop only.
    """

    __slots__ = ("_channel",)

    def __init__(self, channel: Channel) -> None:
        """Look at a channel."""
        self._channel = channel

    def __bool__(self) -> bool:
        """Whether it is at its end now."""
        return self._channel.failure is not None

    def __await__(self) -> Generator[object, None, Exception]:
        """Wait for the end; the reason is returned."""
        return self._wait().__await__()

    def __repr__(self) -> str:
        """Show the reason."""
        return f"<Closure {self._channel.failure!r}>"

    async def _wait(self) -> Exception:
        self._channel.engine.check_loop()
        await self._channel.ended.happens()
        assert self._channel.failure is not None
        return self._channel.failure


class Endpoint:
    """One peer. Made by `Fabric.connect` and by a `Listener`.

    Messages are any msgpack value, delivered once and in order. Transfers are one-sided: the
    peer's process need not do anything. Neither waits for the other, except that a notification
    is taken out of `recv` only when its transfer is in place, and in its turn.

    Thread: event loop only.
    """

    def __init__(self, channel: Channel, peer: Address) -> None:
        """Take over an opened channel."""
        self._channel = channel
        self._peer = peer
        self._submitter = Submitter(channel)

    def __repr__(self) -> str:
        """Show peer, state and what runs."""
        state = "open"
        if self._channel.failure is not None:
            state = type(self._channel.failure).__name__
        return (
            f"<Endpoint {self._peer.provider} {self._peer.incarnation.hex()[:8]} {state} "
            f"transfers={len(self._channel.transfers)}>"
        )

    @property
    def peer(self) -> Address:
        """Where the peer is, and which incarnation of it."""
        return self._peer

    @property
    def closed(self) -> Closure:
        """Whether nothing can be sent any more: closed by either side, or broken.

        `if ep.closed` asks now, and `reason = await ep.closed` waits until it is; see `Closure`.
        """
        return Closure(self._channel)

    async def __aenter__(self) -> Self:
        """Return the endpoint; leaving the block closes it."""
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
        """Iterate over messages, until the endpoint is closed by the peer or by another task."""
        return self

    async def __anext__(self) -> object:
        """Take the next message; a loss raises, an orderly end does not."""
        self._channel.engine.check_loop()  # a forked child is refused: that is no orderly end
        try:
            return await self.recv()
        except ClosedResourceError as error:
            raise StopAsyncIteration from error

    async def send(self, message: object) -> None:
        """Send one message.

        Args:
            message: None, bool, int of 64 bits, float, str, bytes, list, dict, datetime with a
                time zone, what `share` of a region returned, or any nesting of them; encoded
                before this returns or waits.

        Returns when the message is on its way: the peer's window had room for it, and it leaves
        before whatever is sent later. `flush` tells when the peer has it.

        Raises: LocalProtocolError: it cannot be encoded or is larger than `max_message_bytes` of
            either side, and the endpoint lives on; RegionError: a region in it is closed;
            WouldBlock: as many messages wait for the window as `max_queued_messages` allows;
            ClosedResourceError, PeerLostError, RemoteProtocolError, BrokenResourceError: why the
            endpoint can be used no more.
        Cancellation: the message is sent whole or not at all; not at all if it was still waiting
            for the window.
        Thread: event loop only; messages of several tasks leave in the order of the calls.
        Source: fi_msg(3).
        """
        waits = self._channel.send(message)
        if waits is not None:
            await self._channel.outbox.left(*waits)

    async def recv(self) -> object:
        """Receive the next message.

        Returns: what the peer sent; tuples arrive as lists, shared regions as `RemoteRegion`.
        Raises: RemoteTransferError: in place of a notification whose transfer failed at the peer,
            and the endpoint lives on; ClosedResourceError: this side or the peer closed it;
            PeerLostError, RemoteProtocolError, BrokenResourceError: why nothing comes any more.
            What was received before an end or a loss is returned first, except after `aclose`.
        Cancellation: no message is lost.
        Thread: event loop only; several tasks that wait are served in turn.
        Source: fi_msg(3).
        """
        self._channel.engine.check_loop()
        return await self._channel.inbox.get()

    async def flush(self) -> None:
        """Wait until the peer's process has taken in every message sent before.

        It need not have called `recv` for them.

        Raises: as `send`.
        Cancellation: nothing changes.
        Thread: event loop only.
        """
        await self._channel.flush().wait()

    def write(
        self,
        region: MemoryRegion | RegionSlice,
        remote: RemoteRegion,
        *,
        notify: object = NOTHING,
        confirm: bool = True,
    ) -> Transfer:
        """Write all of `region` into the peer's memory, from the beginning of `remote` on.

        Args:
            region: source; unchanged by you until the transfer is done.
            remote: destination, at least as long.
            notify: message that the peer receives once everything is in place; not given: none.
            confirm: True: the transfer is done when the peer's engine has counted every
                operation; False: when the provider says that they completed, which on some means
                little.

        Returns: a running `Transfer`; awaiting it gives the bytes written.
        Raises: RegionError: closed, of another Fabric or endpoint, not shared for writing, or too
            short; LocalProtocolError: `notify` cannot be encoded; WouldBlock: too many
            notifications wait for the peer; as `send`. Nothing was posted then.
        Cancellation: see `Transfer`.
        Thread: event loop only.   Source: fi_rma(3).
        """
        return self._submitter.whole(region, remote, read=False, notify=notify, confirm=confirm)

    def read(
        self,
        region: MemoryRegion | RegionSlice,
        remote: RemoteRegion,
        *,
        notify: object = NOTHING,
        confirm: bool = True,
    ) -> Transfer:
        """Fill all of `region` from the peer's memory, from the beginning of `remote` on.

        Args:
            region: destination, writable memory; not looked at by you until the transfer is done.
            remote: source, at least as long.
            notify: message that the peer receives once everything was read; not given: none.
            confirm: as for `write`; a read is complete when its data are here, either way.

        Returns: a running `Transfer`; awaiting it gives the bytes read.
        Raises: as `write`; RegionError also: not shared for reading, or read-only memory here.
        Cancellation: see `Transfer`.
        Thread: event loop only.   Source: fi_rma(3).
        """
        return self._submitter.whole(region, remote, read=True, notify=notify, confirm=confirm)

    def write_pages(
        self,
        region: MemoryRegion | RegionSlice,
        local_pages: object,
        remote: RemoteRegion,
        remote_pages: object,
        *,
        page_bytes: int,
        local_stride_bytes: int | None = None,
        remote_stride_bytes: int | None = None,
        local_offset_bytes: int = 0,
        remote_offset_bytes: int = 0,
        notify: object = NOTHING,
        confirm: bool = True,
    ) -> Transfer:
        """Write pages of `region` into pages of the peer's memory.

        Page i of a side lies at `offset + pages[i] * stride`.

        Args:
            region: source; unchanged by you until the transfer is done.
            local_pages: indices of source pages: any sequence of int, or a numpy array of any
                integer type and one dimension. May name a page several times. Copied.
            remote: destination.
            remote_pages: indices of destination pages, as many; none twice. Copied.
            page_bytes: length of each page, at least 1.
            local_stride_bytes: from page to page in `region`; None: page_bytes.
            remote_stride_bytes: the same in `remote`; at least page_bytes.
            local_offset_bytes: of page 0 in `region`.
            remote_offset_bytes: of page 0 in `remote`.
            notify: as for `write`.
            confirm: as for `write`.

        Returns: a running `Transfer`; without pages it is done already.
        Raises: as `write`; RegionError also: a page outside of its region, an index that is no
            integer, a destination page named twice or overlapping, lists of different length;
            `position` says where.
        Cancellation: see `Transfer`.
        Thread: event loop only; costs one call, not one per page.   Source: fi_rma(3).
        """
        return self._pages(
            region,
            local_pages,
            remote,
            remote_pages,
            read=False,
            page_bytes=page_bytes,
            local_stride_bytes=local_stride_bytes,
            remote_stride_bytes=remote_stride_bytes,
            local_offset_bytes=local_offset_bytes,
            remote_offset_bytes=remote_offset_bytes,
            notify=notify,
            confirm=confirm,
        )

    def read_pages(
        self,
        region: MemoryRegion | RegionSlice,
        local_pages: object,
        remote: RemoteRegion,
        remote_pages: object,
        *,
        page_bytes: int,
        local_stride_bytes: int | None = None,
        remote_stride_bytes: int | None = None,
        local_offset_bytes: int = 0,
        remote_offset_bytes: int = 0,
        notify: object = NOTHING,
        confirm: bool = True,
    ) -> Transfer:
        """Read pages of the peer's memory into pages of `region`.

        Args:
            region: destination, writable memory; not looked at by you until the transfer is done.
            local_pages: indices of destination pages; none twice; as in `write_pages`.
            remote: source.
            remote_pages: indices of source pages, as many.
            page_bytes: length of each page, at least 1.
            local_stride_bytes: as in `write_pages`; at least page_bytes.
            remote_stride_bytes: as in `write_pages`.
            local_offset_bytes: as in `write_pages`.
            remote_offset_bytes: as in `write_pages`.
            notify: as for `read`.
            confirm: as for `read`.

        Returns: a running `Transfer`; without pages it is done already.
        Raises: as `write_pages`; RegionError also: read-only memory here.
        Cancellation: see `Transfer`.
        Thread: event loop only; costs one call, not one per page.   Source: fi_rma(3).
        """
        return self._pages(
            region,
            local_pages,
            remote,
            remote_pages,
            read=True,
            page_bytes=page_bytes,
            local_stride_bytes=local_stride_bytes,
            remote_stride_bytes=remote_stride_bytes,
            local_offset_bytes=local_offset_bytes,
            remote_offset_bytes=remote_offset_bytes,
            notify=notify,
            confirm=confirm,
        )

    async def aclose(self) -> None:
        """Part from the peer: what was sent still arrives, then both sides end.

        Transfers that run are stopped and end with ClosedResourceError; tasks that wait in
        `recv`, `send` or `flush` get it too. The peer's `async for` ends. Waiting for the peer is
        bounded by `peer_timeout_s`, and as long again for operations that do not complete.
        Idempotent.

        Cancellation: waits no longer; the peer is told and everything is freed all the same.
        Thread: event loop only.   Source: fi_av(3).
        """
        if self._channel.removed or self._channel.engine.forked:
            return  # in a forked child it is the parent's
        self._channel.engine.check_loop()
        await self._channel.aclose()

    def _pages(
        self,
        region: MemoryRegion | RegionSlice,
        local_pages: object,
        remote: RemoteRegion,
        remote_pages: object,
        *,
        read: bool,
        page_bytes: int,
        local_stride_bytes: int | None,
        remote_stride_bytes: int | None,
        local_offset_bytes: int,
        remote_offset_bytes: int,
        notify: object,
        confirm: bool,
    ) -> Transfer:
        submitter = self._submitter
        owner, start, length = submitter.resolve(region, remote, read=read)
        pages = layout(
            local_pages,
            remote_pages,
            page_bytes=page_bytes,
            read=read,
            local_length_bytes=length,
            remote_length_bytes=remote.length_bytes,
            local_offset_bytes=local_offset_bytes,
            remote_offset_bytes=remote_offset_bytes,
            local_stride_bytes=local_stride_bytes,
            remote_stride_bytes=remote_stride_bytes,
        )
        return submitter.submit(owner, start, remote, pages, notify=notify, confirm=confirm)
