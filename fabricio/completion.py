"""Completions: from the engine's ring, batch by batch, to whoever waits for them.

The engine makes one file descriptor readable while completions wait, which this module alone
reads. It frees what the engine hands over (frames, errors) before anybody else
sees it, and it survives whatever a receiver raises:

- a *token* stands for one request; its callback is called with each of its completions and is
  forgotten with the last one;
- a *sink* stands for one peer slot and takes frames, arrivals and the peer's end;
- hellos come from nobody yet and go to one function.

A completion for a token or a peer that nobody knows any more is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from fabricio._ffi._native import FFI, Engine, FabCompletion, Lib

BATCH_COUNT = 256


class Failure(NamedTuple):
    """Why something failed: `struct fab_error`, copied out of the engine's memory."""

    code: int
    provider_code: int
    call: str
    text: str


@dataclass(slots=True)
class Completion:
    """What a token's callback is told.

    Attributes:
        kind: `FAB_...`, as in `enum fab_completion_kind`; FAB_WORKER_FAILED is told to every token
            when the engine dies, with `cause` set, and may be followed by others.
        status: 0 or a negative fi_errno.
        worker: number of the worker it came from.
        peer: slot of the peer concerned.
        count: operations that the peer counted (a transfer that it did not confirm).
        quiet: False while the NIC may still hold the transfer's memory.
        failure: details of a status other than 0, where the engine knows them.
        cause: why the engine died.
    """

    kind: int
    status: int = 0
    worker: int = 0
    peer: int = 0
    count: int = 0
    quiet: bool = True
    failure: Failure | None = None
    cause: Exception | None = None


class PeerSink(Protocol):
    """What takes the completions of one peer slot."""

    def frame_received(self, data: bytes) -> None:
        """Take one frame of the message layer."""

    def transfer_arrived(self, sequence: int, status: int) -> None:
        """Take the news that all of a peer's transfer is in place, or that it failed."""

    def lane_failed(self, lane: int, completion: Completion) -> None:
        """Take the news that a lane of `completion.worker` no longer leads to the peer."""

    def path_failed(self, path: int, completion: Completion) -> None:
        """Take the news that one of several paths no longer leads to the peer."""

    def peer_failed(self, completion: Completion) -> None:
        """Take the news that the peer is lost; told once."""

    def peer_removed(self) -> None:
        """Take the news that the engine has forgotten the peer; nothing follows."""

    def engine_failed(self, cause: Exception) -> None:
        """Take the news that the engine is dead."""

    def crashed(self, error: Exception) -> None:
        """Take an exception that one of the above let escape."""


class CompletionReader:
    """Hands the completions of one engine to callbacks, on one loop.

    Thread: event loop only.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ffi: FFI,
        lib: Lib,
        engine: Engine,
        *,
        on_worker: Callable[[Completion], None],
        on_crash: Callable[[Exception], None],
    ) -> None:
        """Prepare; `start` begins to read.

        Args:
            loop: the loop that the descriptor is watched on.
            ffi: cffi's, or a fake with the same functions.
            lib: the engine's functions and constants, or a fake.
            engine: borrowed `struct fab_engine *`, valid until `stop`.
            on_worker: takes FAB_WORKER_OPENED, FAB_WORKER_CLOSED and FAB_WORKER_FAILED.
            on_crash: takes an exception that the callback of a token let escape.
        """
        self._loop = loop
        self._ffi = ffi
        self._lib = lib
        self._engine = engine
        self._fd = -1
        self._abandoned = False
        self._interrupted = False  # part of the batch was not given out yet
        self._batch = ffi.new("struct fab_completion[]", BATCH_COUNT)
        self._tokens: dict[int, Callable[[Completion], None]] = {}
        self._next_token = 1
        self._sinks: dict[int, PeerSink] = {}
        self._on_worker = on_worker
        self._on_crash = on_crash
        self._no_peer = lib.FAB_NO_PEER
        self._frame_received = lib.FAB_FRAME_RECEIVED
        self._handlers: dict[int, Callable[[FabCompletion, int], None]] = {
            lib.FAB_WORKER_OPENED: self._tell_worker,
            lib.FAB_WORKER_CLOSED: self._tell_worker,
            lib.FAB_WORKER_FAILED: self._tell_worker,
            lib.FAB_REGION_REGISTERED: self._tell_token,
            lib.FAB_REGION_DEREGISTERED: self._tell_token_last,
            lib.FAB_PEER_ADDED: self._tell_token_last,
            lib.FAB_PEER_REMOVED: self._tell_peer_removed,
            lib.FAB_PEER_FAILED: self._tell_peer_failed,
            lib.FAB_FRAME_SENT: self._tell_token_last,
            lib.FAB_TRANSFER_DONE: self._tell_transfer_done,
            lib.FAB_TRANSFER_QUIET: self._tell_token_last,
            lib.FAB_TRANSFER_ARRIVED: self._tell_arrived,
            lib.FAB_LANE_FAILED: self._tell_lane_failed,
            lib.FAB_PATH_FAILED: self._tell_path_failed,
            lib.FAB_CONNECTIONS_ENDED: self._tell_token_last,
        }
        self.on_hello: Callable[[bytes], None] = _drop_hello

    def start(self) -> None:
        """Begin to watch the engine's descriptor."""
        self._fd = self._lib.fab_engine_fd(self._engine)
        self._loop.add_reader(self._fd, self._on_readable)

    def stop(self) -> None:
        """Watch no more; what was not read is the engine's to free. Idempotent."""
        if self._fd >= 0 and not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        self._fd = -1

    def abandon(self) -> None:
        """Read nothing more, and leave the loop alone: this is a forked child.

        The descriptor is the parent's too, and reading it would swallow the parent's wake-ups. So
        would telling the loop, whose epoll descriptor both share.
        """
        self._abandoned = True

    def expect(self, callback: Callable[[Completion], None]) -> int:
        """Name a callback by a new token.

        Args:
            callback: called with each completion of the token, on the loop, never from in here.

        Returns:
            The token, never 0 and never used twice.
        """
        token = self._next_token
        self._next_token = token + 1
        self._tokens[token] = callback
        return token

    def forget(self, token: int) -> None:
        """Drop a token whose request was never accepted by the engine."""
        self._tokens.pop(token, None)

    def attach(self, peer: int, sink: PeerSink) -> None:
        """Give the completions of a peer slot to `sink`, instead of to the one before."""
        self._sinks[peer] = sink

    def fail_all(self, cause: Exception) -> None:
        """Tell every token and every sink that the engine is dead."""
        completion = Completion(self._lib.FAB_WORKER_FAILED, cause=cause)
        for callback in list(self._tokens.values()):
            self._call(callback, completion)
        for sink in list(self._sinks.values()):
            try:
                sink.engine_failed(cause)
            except Exception as error:
                sink.crashed(error)

    def _on_readable(self) -> None:
        """Read one batch; the descriptor stays readable if there is more."""
        if self._abandoned:
            return
        try:
            if self._interrupted:
                self._interrupted = False
                self._dispatch(BATCH_COUNT)
            self._dispatch(self._lib.fab_engine_reap(self._engine, self._batch, BATCH_COUNT))
        except BaseException:
            # A KeyboardInterrupt may come between any two completions: the rest is not lost.
            self._interrupted = True
            self._loop.call_soon(self._recover)
            raise

    def _recover(self) -> None:
        if self._interrupted and self._fd >= 0:
            self._on_readable()

    def _dispatch(self, count: int) -> None:
        """Give out the first entries of the batch, each once."""
        batch = self._batch
        frame_received = self._frame_received
        for place in range(count):
            entry = batch[place]
            kind = entry.kind
            if not kind:
                continue
            entry.kind = 0
            if kind == frame_received:
                self._tell_frame(entry)
                continue
            handler = self._handlers.get(kind)
            if handler is not None:
                handler(entry, kind)

    def _tell_frame(self, entry: FabCompletion) -> None:
        data = self._ffi.buffer(entry.data, entry.bytes)[:]
        peer = entry.peer
        if peer == self._no_peer:
            try:
                self.on_hello(data)
            except Exception as error:
                self._on_crash(error)
            return
        sink = self._sinks.get(peer)
        if sink is not None:
            try:
                sink.frame_received(data)
            except Exception as error:
                sink.crashed(error)

    def _tell_arrived(self, entry: FabCompletion, kind: int) -> None:
        completion = self._copy(entry, kind)  # frees the error, which nobody needs
        sink = self._sinks.get(completion.peer)
        if sink is not None:
            try:
                sink.transfer_arrived(entry.sequence, completion.status)
            except Exception as error:
                sink.crashed(error)

    def _tell_peer_failed(self, entry: FabCompletion, kind: int) -> None:
        completion = self._copy(entry, kind)
        sink = self._sinks.get(completion.peer)
        if sink is not None:
            try:
                sink.peer_failed(completion)
            except Exception as error:
                sink.crashed(error)

    def _tell_lane_failed(self, entry: FabCompletion, kind: int) -> None:
        completion = self._copy(entry, kind)
        sink = self._sinks.get(completion.peer)
        if sink is not None:
            try:
                sink.lane_failed(entry.token, completion)
            except Exception as error:
                sink.crashed(error)

    def _tell_path_failed(self, entry: FabCompletion, kind: int) -> None:
        completion = self._copy(entry, kind)
        sink = self._sinks.get(completion.peer)
        if sink is not None:
            try:
                sink.path_failed(entry.sequence, completion)
            except Exception as error:
                sink.crashed(error)

    def _tell_peer_removed(self, entry: FabCompletion, kind: int) -> None:
        sink = self._sinks.pop(entry.peer, None)
        if sink is not None:
            try:
                sink.peer_removed()
            except Exception as error:
                sink.crashed(error)

    def _tell_worker(self, entry: FabCompletion, kind: int) -> None:
        self._call(self._on_worker, self._copy(entry, kind))

    def _tell_token(self, entry: FabCompletion, kind: int) -> None:
        completion = self._copy(entry, kind)
        callback = self._tokens.get(entry.token)
        if callback is not None:
            self._call(callback, completion)

    def _tell_token_last(self, entry: FabCompletion, kind: int) -> None:
        completion = self._copy(entry, kind)
        callback = self._tokens.pop(entry.token, None)
        if callback is not None:
            self._call(callback, completion)

    def _tell_transfer_done(self, entry: FabCompletion, kind: int) -> None:
        # A transfer that is not quiet yet has one more completion to come.
        if entry.quiet:
            self._tell_token_last(entry, kind)
        else:
            self._tell_token(entry, kind)

    def _call(self, callback: Callable[[Completion], None], completion: Completion) -> None:
        try:
            callback(completion)
        except Exception as error:
            self._on_crash(error)

    def _copy(self, entry: FabCompletion, kind: int) -> Completion:
        """Copy what the engine lends or gives, and free what it gives."""
        ffi = self._ffi
        failure = None
        error = entry.error
        if error:
            failure = Failure(
                error.code,
                error.provider_code,
                _text(ffi.string(error.call)),
                _text(ffi.string(error.text)),
            )
            self._lib.fab_error_free(error)
        return Completion(
            kind,
            entry.status,
            entry.worker,
            entry.peer,
            entry.count,
            bool(entry.quiet),
            failure,
        )


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _drop_hello(data: bytes) -> None:
    """Take a hello while nobody listens for them: it is dropped."""
