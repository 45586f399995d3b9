"""Round trips: `python -m benchmarks.messages`. p50 and p99 of 8 B, 1 KiB and 64 KiB payloads.

fabricio: `await ep.send(payload)`, then `await ep.recv()`, against a peer that echoes. Plain C:
fi_send and fi_recv on the same provider. Streams: asyncio's streams over TCP on loopback, on
asyncio's own loop and on uvloop.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import typer

from benchmarks import plain_c, streams
from benchmarks.driver import (
    ASYNCIO_STREAMS,
    DEFAULT_PATIENCE_S,
    DEFAULT_PROVIDERS,
    DEFAULT_ROUNDS,
    FABRICIO,
    PLAIN_C,
    UVLOOP_STREAMS,
    Benchmark,
    Case,
    Column,
    JsonFile,
    Loop,
    Patience,
    Providers,
    Quick,
    Rounds,
    amount,
    percentile,
)
from benchmarks.loops import run_on
from benchmarks.pair import open_pair

if TYPE_CHECKING:
    from benchmarks.driver import Figures

# Payload to round trips of one run.
ITERATIONS = {8: 8000, 1 << 10: 8000, 64 << 10: 2000}

BENCHMARK = Benchmark(
    "messages",
    (
        Column("p50 µs", "p50_us", ".1f"),
        Column("p99 µs", "p99_us", ".1f"),
        Column("CPU s", "cpu_s", ".3f"),
    ),
    references=(PLAIN_C, UVLOOP_STREAMS),
)


async def ping_pong(provider: str, loop: str, message_bytes: int, iterations: int) -> Figures:
    """Time awaited round trips of one payload.

    Raises:
        RuntimeError: an echo is not what was sent.
    """
    payload = bytes(message_bytes)
    round_trips_us: list[float] = []
    async with open_pair(provider, loop) as pair:
        endpoint = pair.endpoint
        for _ in range(iterations // 10 + 1):
            await endpoint.send(payload)
            if await endpoint.recv() != payload:
                raise RuntimeError(f"a message of {message_bytes} bytes came back changed")
        start_cpu_s = await pair.cpu_s()
        for _ in range(iterations):
            sent_ns = time.perf_counter_ns()
            await endpoint.send(payload)
            await endpoint.recv()
            round_trips_us.append((time.perf_counter_ns() - sent_ns) / 1e3)
        used_cpu_s = await pair.cpu_s() - start_cpu_s
    return {
        "p50_us": percentile(round_trips_us, 50),
        "p99_us": percentile(round_trips_us, 99),
        "cpu_s": used_cpu_s,
    }


def cases(providers: list[str], loop: str, part: int) -> list[Case]:
    """Return every payload on every provider, a `part`-th of the round trips each."""
    found = []
    for provider in providers:
        for message_bytes, whole in ITERATIONS.items():
            iterations = whole // part
            found.append(
                Case(
                    provider,
                    {"message_bytes": message_bytes},
                    {
                        FABRICIO: partial(
                            run_on, loop, ping_pong, provider, loop, message_bytes, iterations
                        ),
                        PLAIN_C: partial(
                            plain_c.run,
                            "messages",
                            provider,
                            message_bytes=message_bytes,
                            iterations=iterations,
                        ),
                        **{
                            name: partial(
                                run_on,
                                stream_loop,
                                streams.ping_pong,
                                stream_loop,
                                message_bytes,
                                iterations,
                            )
                            for name, stream_loop in (
                                (UVLOOP_STREAMS, "uvloop"),
                                (ASYNCIO_STREAMS, "asyncio"),
                            )
                        },
                    },
                )
            )
    return found


def main(
    provider: Providers = DEFAULT_PROVIDERS,
    rounds: Rounds = DEFAULT_ROUNDS,
    quick: Quick = False,
    patience: Patience = DEFAULT_PATIENCE_S,
    json: JsonFile = None,
    loop: Loop = "uvloop",
) -> None:
    """Compare round trips by fabricio, plain C and TCP streams, interleaved."""
    rounds, part = amount(rounds, quick)
    BENCHMARK.run(cases(provider, loop, part), rounds, patience, json)


if __name__ == "__main__":
    typer.run(main)
