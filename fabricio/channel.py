"""`Channel`: one peer slot of the engine, and what happens to it.

It begins without a message stream (frames that come early are kept), is opened once both sides know
each other, and ends by `aclose`, by the peer's end, or by a failure. `failure` says why nothing
more can be sent; what was received before can still be taken, unless this side closed it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from fabricio._ffi.check import check, errno_name
from fabricio.errors import (
    BrokenResourceError,
    ClosedResourceError,
    FabricioError,
    LocalProtocolError,
    PeerLostError,
    ProtocolError,
    RemoteProtocolError,
    RemoteTransferError,
)
from fabricio.events import (
    FlushAcknowledged,
    MessageReceived,
    PeerClosed,
    PeerError,
    RegionRevoked,
    RevokeAcknowledged,
)
from fabricio.frames import MIN_CHARGE_BYTES
from fabricio.inbox import Inbox
from fabricio.messages import MessageStream
from fabricio.options import MAX_QUEUED_MESSAGES
from fabricio.outbox import Outbox
from fabricio.parting import Parting
from fabricio.sharing import Sharing
from fabricio.transfer import lost
from fabricio.waiting import Once

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricio.address import Address
    from fabricio.completion import Completion
    from fabricio.engine import Engine
    from fabricio.events import Event
    from fabricio.transfer import Transfer

_LOG = logging.getLogger("fabricio")

# What the peer is told of an error that it has no part in.
_NOT_THE_PEERS = "an unexpected error, which is not the peer's doing"


class Channel:
    """Messages with one peer, and its transfers as far as they share its fate.

    Attributes:
        engine: the engine.
        peer: slot number that the engine gave it.
        address: where the peer is; None before `open`.
        failure: why nothing more can be sent; None while all is well.
        ended: happens when `failure` is known.
        transfers: those that run.
        inbox: what was received.
        outbox: what is sent.
        on_failure: called once with `failure`.
        on_first_frame: called once when the peer has shown that it knows us.
        on_removed: called once when the engine has forgotten the peer.

    Thread: event loop only.
    """

    def __init__(self, engine: Engine, peer: int) -> None:
        """Take over a slot that the engine has just added."""
        self.engine = engine
        self.peer = peer
        self.address: Address | None = None
        self.failure: Exception | None = None
        self.ended = Once(engine.loop)
        self.transfers: set[Transfer] = set()
        self.inbox = Inbox(
            engine.loop,
            self._consumed,
            MAX_QUEUED_MESSAGES + engine.options.receive_window_bytes // MIN_CHARGE_BYTES,
        )
        self.outbox = Outbox(engine, peer, self._fail)
        self.on_failure: Callable[[Exception], object] | None = None
        self.on_first_frame: Callable[[], object] | None = None
        self.on_removed: Callable[[], object] | None = None
        self._stream: MessageStream | None = None
        self._early: list[bytes] = []
        self._early_bytes = 0
        self._sharing = Sharing(engine, self.outbox, self)
        self._parting = Parting(engine, self.outbox, self._sharing)
        self._heard = True
        self._closing = False
        self._removing = Once(engine.loop)
        self._removed = Once(engine.loop)
        engine.channels.add(self)
        engine.reader.attach(peer, self)

    @property
    def closing(self) -> bool:
        """Whether this side has begun to part from the peer."""
        return self._closing

    @property
    def removed(self) -> bool:
        """Whether the engine has forgotten the peer."""
        return self._removed.happened

    @property
    def duplicate_count(self) -> int:
        """Frames that came twice and were dropped."""
        return self._stream.duplicate_count if self._stream is not None else 0

    @property
    def path_count(self) -> int:
        """How many paths lead to the peer, those that failed included."""
        return self.engine.lib.fab_peer_path_count(self.engine.handle, self.peer)

    def slots(self) -> tuple[int, ...]:
        """Return what the engine calls the peer, on each path."""
        lib, handle = self.engine.lib, self.engine.handle
        return tuple(lib.fab_peer_slot(handle, self.peer, path) for path in range(self.path_count))

    def attach(self, remote_slots: tuple[int, ...], remote_cookie: int, heartbeat_s: float) -> None:
        """Tell the engine what the peer calls us, on each path, and how often to show life.

        Raises: RemoteProtocolError: another number of paths; FabricError: the engine refuses.
        """
        engine, count = self.engine, self.path_count
        if len(remote_slots) != count:
            raise RemoteProtocolError(
                f"the peer names {len(remote_slots)} paths, and {count} lead there: install the "
                "same release of fabricio on both"
            )
        slots = engine.ffi.new("uint32_t[]", remote_slots)
        rc = engine.lib.fab_peer_attach(
            engine.handle, self.peer, slots, count, remote_cookie, round(heartbeat_s * 1e9)
        )
        check(rc, "fab_peer_attach", provider=engine.provider)

    def open(
        self,
        address: Address,
        *,
        frame_bytes: int,
        max_message_bytes: int,
        send_window_bytes: int,
    ) -> None:
        """Begin with messages, those that came early first.

        Args:
            address: the peer's; regions in its messages must fit it.
            frame_bytes: the smaller of both sides'.
            max_message_bytes: likewise.
            send_window_bytes: the peer's receive window.

        Raises: RemoteProtocolError: the peer's limits or first frames make no sense.
        """
        self.address = address
        self._sharing.open(address.incarnation, len(address.lanes))
        try:
            self._stream = MessageStream(
                frame_bytes=frame_bytes,
                max_message_bytes=max_message_bytes,
                send_window_bytes=send_window_bytes,
                receive_window_bytes=self.engine.options.receive_window_bytes,
                several_paths=self.path_count > 1,
                pack_default=self._sharing.pack,
                ext_hook=self._sharing.unpack,
            )
        except ValueError as error:
            raise RemoteProtocolError(f"the peer's limits cannot be used: {error}") from error
        self.outbox.open(self._stream)
        early, self._early = self._early, []
        for data in early:
            self.frame_received(data)

    def hello(self, body: bytes) -> None:
        """Send a frame of the handshake.

        Raises: FabricError: the engine refuses.
        """
        self.outbox.hello(body)

    def dismiss(self, body: bytes, *, heard: bool) -> None:
        """Send a last frame of the handshake, and have the engine forget the peer when it has left.

        Args:
            body: says why.
            heard: whether the peer is known to be there, so that `aclose` waits for the frame too.
        """
        if not self._removing.happened:
            self._heard = heard
            with suppress(FabricioError):  # who is not told waits longer, no more
                self.outbox.hello(body, last=True)
            self._parting.then(self.remove)

    def check(self) -> None:
        """Refuse to send or to start anything where that is impossible.

        Raises: `failure`; what `Engine.check` raises.
        """
        self.engine.check()
        if self.failure is not None:
            raise self.failure.with_traceback(None)

    def send(self, value: object) -> tuple[int, Once] | None:
        """Send one message, at once if possible; see `Outbox.express`."""
        self.check()
        self.outbox.check_room()
        return self.outbox.express(value)

    def queue(self, value: object, transfer: int | None) -> int:
        """Queue a message behind all others, without sending it yet: `outbox.flow` does.

        Args:
            value: the message.
            transfer: sequence number of the transfer that it is the notification of.

        Returns: its number.
        Raises: LocalProtocolError: it cannot be encoded or is too large; WouldBlock: too many wait;
            what `check` raises.
        """
        self.check()
        self.outbox.check_room()
        return self.outbox.stream.send(value, transfer)

    def flush(self) -> Once:
        """Ask the peer to say that it has taken in all messages so far; see `Outbox.flush`."""
        self.check()
        return self.outbox.flush()

    async def aclose(self) -> None:
        """Part from the peer; see `Endpoint.aclose`."""
        if not self._closing:
            self._closing = True
            broken = self.failure is not None and not self._parting.peer_closed
            error = ClosedResourceError("this endpoint is closed: connect again")
            if self._stream is not None:
                # What send() has accepted still leaves; who waits in send() is told that it fails.
                self.outbox.withdraw_waiting()
            self._end(error)
            self.failure = error  # whatever ended it before: from now on it is closed
            self.inbox.close(error)
            try:
                if self._stream is None or broken:
                    if self._heard:
                        await self._parting.last_word()
                elif self.engine.is_open:
                    await self._parting.in_order(known=self.on_first_frame is None)
                    if self._parting.given_up:
                        self._fell_silent(
                            PeerLostError(
                                "the peer did not answer to the end of its endpoint",
                                code=errno.ETIMEDOUT,
                                name=errno_name(errno.ETIMEDOUT),
                            )
                        )
            except asyncio.CancelledError:
                self._parting.then(self.remove)  # the peer hears of it all the same
                raise
            except BaseException:
                self.remove()
                raise
            self.remove()
        await self._removed.wait()

    async def last_word(self) -> None:
        """Wait until a cancelled `aclose` has said its last word, for a second at most."""
        await self._removing.wait()

    def remove(self) -> None:
        """Have the engine forget the peer. What is queued for it is dropped. Idempotent."""
        if self._removing.happened:
            return
        self._removing.set()
        self.outbox.silent = True
        engine = self.engine
        if not engine.is_open or engine.lib.fab_peer_remove(engine.handle, self.peer) < 0:
            # The engine is gone or going, and the peer with it.
            self.peer_removed()

    # What the reader tells.

    def frame_received(self, data: bytes) -> None:
        """Take one frame of the message layer."""
        stream = self._stream
        if stream is None:
            self._keep_early(data)
            return
        if self.outbox.silent:
            return
        if self.on_first_frame is not None:
            known, self.on_first_frame = self.on_first_frame, None
            known()
        for event in stream.receive(data):
            if type(event) is MessageReceived:
                if not self._closing:
                    self.inbox.put(event.value, event.charge, event.transfer)
            else:
                self._take(event)
        if not stream.idle:
            self.outbox.pump()

    def transfer_arrived(self, sequence: int, status: int) -> None:
        """Take the news of a peer's transfer."""
        if self._closing:
            return
        error = None
        if status:
            error = RemoteTransferError(
                f"transfer {sequence} of the peer failed there with {errno_name(status)}: its "
                f"pages may be here in part, and its notification is not delivered",
                operation="write",
                code=abs(status),
                name=errno_name(status),
            )
            error.transfer = sequence
        self.inbox.arrived(sequence, error)

    def lane_failed(self, lane: int, completion: Completion) -> None:
        """Say that a NIC is not used for this peer any more."""
        failure = completion.failure
        _LOG.warning(
            "NIC %s failed on the way to peer %d; its worker's other NICs take over: %s %s",
            self.engine.plans[completion.worker].nics[lane],
            self.peer,
            errno_name(completion.status),
            failure.text if failure else "",
        )

    def path_failed(self, path: int, completion: Completion) -> None:
        """Say so, and send again what may have been lost with it."""
        failure = completion.failure
        _LOG.warning(
            "peer %d is not reached any more by the NICs of worker %d (%s), path %d; others take "
            "over: %s %s",
            self.peer,
            completion.worker,
            ", ".join(map(str, self.engine.plans[completion.worker].nics)),
            path,
            errno_name(completion.status),
            failure.text if failure else "",
        )
        if self._stream is not None:
            self._stream.rewind()
            self.outbox.pump()

    def peer_failed(self, completion: Completion) -> None:
        """Take the news that the peer is lost."""
        self.outbox.silent = True
        error = lost(self.engine.error(completion, "send"))
        error.peer = self.address
        error.since = datetime.now(UTC) - timedelta(microseconds=completion.count // 1000)
        for transfer in self.transfers:
            transfer.loss = error
        self._parting.end()
        if completion.status == -errno.ETIMEDOUT:
            self._fell_silent(error)
        self._fail(error, transfers=False)

    def peer_removed(self) -> None:
        """Take the news that the engine has forgotten the peer."""
        self.outbox.removed()
        self._parting.end()
        self._sharing.end()
        if not self._removed.happened:
            self._removed.set()
            self.engine.channels.discard(self)
            self.engine.duplicate_frames += self.duplicate_count
            if self.on_removed is not None:
                self.on_removed()

    def engine_failed(self, cause: Exception) -> None:
        """Take the news that the engine is dead."""
        self.outbox.silent = True
        self._fail(cause, transfers=False)
        self.peer_removed()

    def crashed(self, error: Exception) -> None:
        """Take what one of the above let escape: this endpoint ends, and no other."""
        if not isinstance(error, FabricioError):
            wrapped = BrokenResourceError(
                f"this endpoint met an unexpected {type(error).__name__}: {error}"
            )
            wrapped.__cause__ = error
            error = wrapped
        if self.failure is None and self._stream is not None and not self.outbox.silent:
            self._stop_transfers(error)  # before the peer hears of it, and closes its regions
            self._stream.fail(str(error) if isinstance(error, ProtocolError) else _NOT_THE_PEERS)
            with suppress(FabricioError):  # the engine refuses: `error` came first
                self.outbox.pump()
        self.outbox.silent = True
        # What it has begun to write may still be on its way, and nobody will hear of its end.
        self._fell_silent(
            PeerLostError(
                f"this endpoint was given up: {error}",
                code=errno.EPROTO,
                name=errno_name(errno.EPROTO),
            )
        )
        self._fail(error)
        if self._stream is not None:
            self._parting.then(self.remove)

    # Inside.

    def _take(self, event: Event) -> None:
        """Take what is not a message."""
        if type(event) is FlushAcknowledged:
            self.outbox.flushed(event.token)
            self._parting.flushed(event.token)
        elif type(event) is RegionRevoked:
            self._sharing.revoked(event.region)
        elif type(event) is RevokeAcknowledged:
            self._sharing.acknowledged(event.region)
            self._parting.check()
        elif type(event) is PeerClosed:
            self._part_from_peer()
        elif type(event) is PeerError:
            self.outbox.silent = True
            self._fail(
                LocalProtocolError(
                    "the peer gave up this endpoint. In its own words, where this side is the "
                    f"peer: {event.text}"
                )
            )

    def _fell_silent(self, loss: PeerLostError) -> None:
        if self.address is not None:
            self._sharing.silent(loss, self.address)

    def _consumed(self, charge: int) -> None:
        if not self.outbox.silent and not self._closing and self.outbox.stream.consumed(charge):
            self.outbox.pump()

    def _keep_early(self, data: bytes) -> None:
        self._early_bytes += len(data)
        if self._early_bytes > self.engine.options.receive_window_bytes:
            raise RemoteProtocolError("the peer sent more than a window before it was answered")
        self._early.append(data)

    def _fail(self, error: Exception, *, transfers: bool = True) -> None:
        """End both directions, for a reason that is not ours.

        Args:
            error: the reason.
            transfers: whether running transfers must be told; the engine tells those of a peer
                that it has lost.
        """
        self._end(error, transfers=transfers)
        self._sharing.end()
        if isinstance(error, ClosedResourceError):
            self.inbox.close(error)  # the Fabric was closed, by whatever way
        elif not self._closing:
            self.inbox.cut(error)
        self._parting.give_up()

    def _part_from_peer(self) -> None:
        self._parting.peer_closed = True
        error = ClosedResourceError("the peer has closed this endpoint")
        self.outbox.withdraw_waiting()
        # Answered now, while the peer is still there: later the provider may find nobody.
        self.outbox.stream.close()
        self._end(error)
        self._sharing.end()
        if not self._closing:
            self.inbox.finish(error)
        self._parting.check()

    def _end(self, error: Exception, *, transfers: bool = True) -> None:
        """End the sending direction and whatever waits for it."""
        if self.failure is None:
            self.failure = error
            self.ended.set()
            if self.on_failure is not None:
                self.on_failure(error)
        if transfers:
            self._stop_transfers(error)
        self.outbox.end(error)

    def _stop_transfers(self, error: Exception) -> None:
        for transfer in list(self.transfers):
            transfer.end(error)
