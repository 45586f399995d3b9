"""Submission: `python -m benchmarks.submit`. Time from call to return of a 1,000-page write_pages.

What the event loop is held up by, whatever the pages' size: checks, one copy of the indices and
one call into the engine. Each call's transfer has ended before the next call is timed.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from benchmarks.driver import (
    DEFAULT_PATIENCE_S,
    DEFAULT_PROVIDERS,
    DEFAULT_ROUNDS,
    FABRICIO,
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
from benchmarks.peer import map_pool

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.driver import Figures

CALL_PAGES = 1000
PAGE_BYTES = 4096
POOL_PAGES = 16384
CALLS = 400

BENCHMARK = Benchmark(
    "submit",
    (Column("p50 µs", "p50_us", ".1f"), Column("p99 µs", "p99_us", ".1f")),
)

# What holds the page indices of a call: made from a slice of a permutation.
INDICES: dict[str, Callable[[Any], Any]] = {"numpy": np.copy, "list": np.ndarray.tolist}


async def submit(provider: str, loop: str, indices: str, calls: int) -> Figures:
    """Time `write_pages` of 1,000 pages, called `calls` times, one after the other.

    Args:
        provider: libfabric provider.
        loop: event loop of both processes.
        indices: what holds the page indices: "numpy" (int64) or "list".
        calls: calls to time, after a tenth as many that are not.
    """
    random = np.random.default_rng(1)
    make = INDICES[indices]
    returns_us: list[float] = []
    async with open_pair(provider, loop) as pair:
        region = await pair.fabric.register(map_pool(POOL_PAGES * PAGE_BYTES))
        remote = await pair.remote_region(POOL_PAGES * PAGE_BYTES)
        for _ in range(calls + calls // 10):
            source = make(random.permutation(POOL_PAGES)[:CALL_PAGES])
            destination = make(random.permutation(POOL_PAGES)[:CALL_PAGES])
            called_ns = time.perf_counter_ns()
            transfer = pair.endpoint.write_pages(
                region, source, remote, destination, page_bytes=PAGE_BYTES
            )
            returns_us.append((time.perf_counter_ns() - called_ns) / 1e3)
            await transfer
    measured = returns_us[calls // 10 :]
    return {"p50_us": percentile(measured, 50), "p99_us": percentile(measured, 99)}


def main(
    provider: Providers = DEFAULT_PROVIDERS,
    rounds: Rounds = DEFAULT_ROUNDS,
    quick: Quick = False,
    patience: Patience = DEFAULT_PATIENCE_S,
    json: JsonFile = None,
    loop: Loop = "uvloop",
) -> None:
    """Measure how long the call of a 1,000-page write_pages takes."""
    rounds, part = amount(rounds, quick)
    cases = [
        Case(
            name,
            {"indices": indices},
            {FABRICIO: partial(run_on, loop, submit, name, loop, indices, CALLS // part)},
        )
        for name in provider
        for indices in INDICES
    ]
    BENCHMARK.run(cases, rounds, patience, json)


if __name__ == "__main__":
    typer.run(main)
