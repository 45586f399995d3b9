"""An idle connection: `python -m benchmarks.idle`. CPU of one core that doing nothing costs.

Two processes are connected and silent for some seconds. Beside fabricio stands a TCP stream on
uvloop, just as idle: what two processes with an event loop cost at least.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.driver import (
    DEFAULT_PATIENCE_S,
    DEFAULT_PROVIDERS,
    DEFAULT_ROUNDS,
    FABRICIO,
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
)
from benchmarks.loops import cpu_s, run_on
from benchmarks.pair import open_pair
from benchmarks.streams import open_echo

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from benchmarks.driver import Figures

Seconds = Annotated[float, typer.Option("--seconds", help="length of one silence")]

BENCHMARK = Benchmark(
    "idle",
    (
        Column("% of a core, here", "here_percent", ".3f"),
        Column("% of a core, peer", "peer_percent", ".3f"),
    ),
)


async def stay_silent(peer_cpu_s: Callable[[], Awaitable[float]], idle_s: float) -> Figures:
    """Do nothing for a while and return what that cost here and at the peer."""
    await peer_cpu_s()  # so that what the first question costs is not counted
    start_peer_cpu_s = await peer_cpu_s()
    start_cpu_s = cpu_s()
    await asyncio.sleep(idle_s)  # the measurement itself: nothing is waited for
    here_s = cpu_s() - start_cpu_s
    peer_s = await peer_cpu_s() - start_peer_cpu_s
    return {
        "here_percent": 100 * here_s / idle_s,
        "peer_percent": 100 * peer_s / idle_s,
    }


async def idle_fabricio(provider: str, loop: str, idle_s: float) -> Figures:
    """Measure a connected Fabric."""
    async with open_pair(provider, loop) as pair:
        return await stay_silent(pair.peer_cpu_s, idle_s)


async def idle_stream(loop: str, idle_s: float) -> Figures:
    """Measure a connected TCP stream."""
    async with open_echo(loop) as connection:
        return await stay_silent(connection.peer_cpu_s, idle_s)


def main(
    provider: Providers = DEFAULT_PROVIDERS,
    rounds: Rounds = DEFAULT_ROUNDS,
    quick: Quick = False,
    patience: Patience = DEFAULT_PATIENCE_S,
    json: JsonFile = None,
    loop: Loop = "uvloop",
    seconds: Seconds = 4.0,
) -> None:
    """Measure the CPU that an idle, connected Fabric uses."""
    rounds, part = amount(rounds, quick)
    idle_s = seconds / part
    cases = [
        Case(
            name,
            {},
            {
                FABRICIO: partial(run_on, loop, idle_fabricio, name, loop, idle_s),
                UVLOOP_STREAMS: partial(run_on, "uvloop", idle_stream, "uvloop", idle_s),
            },
        )
        for name in provider
    ]
    BENCHMARK.run(cases, rounds, patience, json)


if __name__ == "__main__":
    typer.run(main)
