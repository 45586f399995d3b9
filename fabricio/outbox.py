"""`Outbox`: frames from the message stream into the engine, and who waits for them to leave."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from fabricio._ffi.check import check
from fabricio.errors import FabricioError, WouldBlock
from fabricio.frames import CLOSE, ERROR
from fabricio.waiting import Once

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricio.completion import Completion
    from fabricio.engine import Engine
    from fabricio.messages import MessageStream

# Nothing leaves after one of these.
_LAST = frozenset((CLOSE, ERROR))


class Outbox:
    """The sending direction of one channel.

    Attributes:
        silent: whether no frame can be sent any more; then nothing here touches the engine.
        on_last_sent: called when the provider has completed the last frame: CLOSE, ERROR or a
            hello that was to be the last.

    Thread: event loop only.
    """

    def __init__(
        self,
        engine: Engine,
        peer: int,
        on_broken: Callable[[Exception], None],
    ) -> None:
        """Begin without a stream: hellos alone can be sent.

        Args:
            engine: the engine.
            peer: slot of the peer.
            on_broken: called when the engine refuses a frame; calls `end`.
        """
        self._engine = engine
        self._peer = peer
        self._on_broken = on_broken
        self._message = engine.lib.FAB_FRAME_MESSAGE
        self._stream: MessageStream | None = None
        self._sending: deque[tuple[int, Once]] = deque()
        self._flushing: dict[int, Once] = {}
        self._last_token = 0  # of the last frame, until the provider has completed it
        self.silent = False
        self.on_last_sent: Callable[[Completion], None] | None = None

    def open(self, stream: MessageStream) -> None:
        """Take the stream whose frames are to be sent."""
        self._stream = stream

    def check_room(self) -> None:
        """Refuse another message while as many wait for the peer's window as may.

        Raises: WouldBlock.
        """
        options = self._engine.options
        if len(self._sending) >= options.max_queued_messages:
            raise WouldBlock(
                f"max_queued_messages={options.max_queued_messages} messages wait for the peer to "
                "take some: await those first, or raise max_queued_messages"
            )
        if self.stream.queued_bytes >= options.max_queued_bytes:
            raise WouldBlock(
                f"max_queued_bytes={options.max_queued_bytes} wait for the peer to take some "
                "messages: await those first, or raise max_queued_bytes"
            )

    @property
    def last_under_way(self) -> bool:
        """Whether the engine has the last frame, and the provider has not completed it."""
        return self._last_token != 0

    @property
    def stream(self) -> MessageStream:
        """The stream, which is there before anybody outside is given an endpoint."""
        stream = self._stream
        assert stream is not None
        return stream

    def express(self, value: object) -> tuple[int, Once] | None:
        """Send one message, at once if possible.

        Returns: None if it has left, else its number and what happens when it does.
        Raises: LocalProtocolError: as `MessageStream.send`; FabricError: the engine refuses.
        """
        frame = self.stream.express(value)
        if isinstance(frame, int):
            sent = self.flow(frame)
            return None if sent is None else (frame, sent)
        if not self.silent:
            self._send(self._message, 0, *frame)
        return None

    def flow(self, number: int) -> Once | None:
        """Send what the peer's window allows.

        Returns: None if message `number` has left, else what happens when it does.
        Raises: FabricError: the engine refuses.
        """
        self.pump()
        if self.stream.sent_count >= number:
            return None
        sent = Once(self._engine.loop)
        self._sending.append((number, sent))
        return sent

    async def left(self, number: int, sent: Once) -> None:
        """Wait until message `number` has left.

        Cancellation: the message is withdrawn, if nothing of it has left.
        """
        try:
            await sent.wait()
        except asyncio.CancelledError:
            if not sent.happened:
                with suppress(FabricioError):  # the engine refuses: whom it concerns is told
                    self.withdraw(number)
            raise

    def withdraw(self, number: int) -> None:
        """Take back a queued message, if nothing of it has left; those behind it may go then."""
        if self.stream.withdraw(number):
            self.pump()

    def withdraw_waiting(self) -> None:
        """Take back every message that waits for the window."""
        for number, _ in self._sending:
            self.stream.withdraw(number)

    def flush(self) -> Once:
        """Ask the peer to say that it has taken in all messages so far.

        Returns: what happens when it has.
        Raises: FabricError: the engine refuses.
        """
        flushed = Once(self._engine.loop)
        self._flushing[self.stream.flush()] = flushed
        self.pump()
        return flushed

    def flushed(self, token: int) -> None:
        """Take the peer's answer to a flush."""
        flushed = self._flushing.pop(token, None)
        if flushed is not None:
            flushed.set()

    def hello(self, body: bytes, *, last: bool = False) -> None:
        """Send a frame of the handshake.

        Args:
            body: its body.
            last: whether it is the last frame to this peer.

        Raises: FabricError: the engine refuses.
        """
        if not self.silent:
            token = self._expect_last() if last else 0
            self._send(self._engine.lib.FAB_FRAME_HELLO, token, b"", body)

    def pump(self) -> None:
        """Hand the engine every frame that may leave now, and tell whose messages have left.

        Raises: FabricError: the engine refuses; nothing can be sent any more then.
        """
        if self.silent:
            return
        stream = self.stream
        while (frame := stream.next_frame()) is not None:
            head, body = frame
            token = self._expect_last() if head[0] in _LAST else 0
            self._send(self._message, token, head, body)
        sending = self._sending
        while sending and sending[0][0] <= stream.sent_count:
            sending.popleft()[1].set()

    def end(self, error: Exception) -> None:
        """Tell everybody who waits that it will not happen."""
        for _, sent in self._sending:
            sent.set(error)
        self._sending.clear()
        for flushed in self._flushing.values():
            flushed.set(error)
        self._flushing.clear()

    def removed(self) -> None:
        """Take the news that the engine has forgotten the peer, and what it had not sent."""
        self.silent = True
        if self._last_token:
            self._engine.reader.forget(self._last_token)
            self._last_token = 0

    def _expect_last(self) -> int:
        if not self._last_token:  # else it leaves once more
            self._last_token = self._engine.reader.expect(self._on_last_sent)
        return self._last_token

    def _on_last_sent(self, completion: Completion) -> None:
        self._last_token = 0
        if self.on_last_sent is not None:
            self.on_last_sent(completion)

    def _send(self, kind: int, token: int, head: bytes, body: bytes | memoryview) -> None:
        engine = self._engine
        data = body if type(body) is bytes else engine.ffi.from_buffer(body)
        rc = engine.lib.fab_frame_send(
            engine.handle, self._peer, kind, token, head, len(head), data, len(body)
        )
        if rc < 0:
            self.silent = True
            try:
                check(rc, "fi_send", provider=engine.provider)
            except FabricioError as error:
                self._on_broken(error)
                raise
