"""Echo over a TCP stream on loopback: what a message costs without fabricio.

`python -m benchmarks.streams LOOP` is the echoing process. Messages are a 4-byte length and the
payload, TCP_NODELAY is set on both sides.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import typer

from benchmarks.child import announce, open_child
from benchmarks.driver import percentile
from benchmarks.loops import cpu_s, run_on

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchmarks.driver import Figures

HOST = "127.0.0.1"

_LENGTH = struct.Struct("<I")
# A message of this length, which nobody measures, asks for CPU seconds instead of an echo.
_CPU_QUESTION = b"cpu"
_CPU_ANSWER = struct.Struct("<d")


async def read_message(reader: asyncio.StreamReader) -> bytes:
    """Read one message.

    Raises:
        asyncio.IncompleteReadError: the peer has gone.
    """
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return await reader.readexactly(length)


async def write_message(writer: asyncio.StreamWriter, payload: bytes) -> None:
    """Write one message, in one write, and wait while the transport's buffer is full."""
    writer.write(_LENGTH.pack(len(payload)) + payload)
    await writer.drain()


def set_no_delay(writer: asyncio.StreamWriter) -> None:
    """Set TCP_NODELAY on a stream's socket."""
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def echo() -> None:
    """Serve one connection until its peer closes it."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        set_no_delay(writer)
        try:
            while True:
                payload = await read_message(reader)
                if payload == _CPU_QUESTION:
                    payload = _CPU_ANSWER.pack(cpu_s())
                await write_message(writer, payload)
        except asyncio.IncompleteReadError:  # the peer is done
            writer.close()
            ended.set()

    async with await asyncio.start_server(serve, HOST, 0) as server:
        announce(str(server.sockets[0].getsockname()[1]))
        await ended.wait()


class EchoConnection:
    """The measuring end of a connection to an echoing process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take over a connected stream."""
        self._reader = reader
        self._writer = writer

    async def round_trip(self, payload: bytes) -> bytes:
        """Send a message and return its echo."""
        await write_message(self._writer, payload)
        return await read_message(self._reader)

    async def peer_cpu_s(self) -> float:
        """Return the CPU seconds of the echoing process so far."""
        answer: tuple[float] = _CPU_ANSWER.unpack(await self.round_trip(_CPU_QUESTION))
        return answer[0]


@asynccontextmanager
async def open_echo(loop: str) -> AsyncIterator[EchoConnection]:
    """Start an echoing process on `loop` and connect to it."""
    async with open_child("benchmarks.streams", loop) as port:
        reader, writer = await asyncio.open_connection(HOST, int(port))
        set_no_delay(writer)
        try:
            yield EchoConnection(reader, writer)
        finally:
            writer.close()
            await writer.wait_closed()


async def ping_pong(loop: str, message_bytes: int, iterations: int) -> Figures:
    """Time round trips of one message over streams, both ends on `loop`."""
    payload = bytes(message_bytes)
    round_trips_us: list[float] = []
    async with open_echo(loop) as connection:
        for _ in range(iterations // 10 + 1):
            await connection.round_trip(payload)
        start_cpu_s = cpu_s() + await connection.peer_cpu_s()
        for _ in range(iterations):
            sent_ns = time.perf_counter_ns()
            await connection.round_trip(payload)
            round_trips_us.append((time.perf_counter_ns() - sent_ns) / 1e3)
        used_cpu_s = cpu_s() + await connection.peer_cpu_s() - start_cpu_s
    return {
        "p50_us": percentile(round_trips_us, 50),
        "p99_us": percentile(round_trips_us, 99),
        "cpu_s": used_cpu_s,
    }


def main(loop: str) -> None:
    """Echo on a port of the system's choice, which the readiness line tells."""
    run_on(loop, echo)


if __name__ == "__main__":
    typer.run(main)
