"""Scattered pages: `python -m benchmarks.pages`. GB/s, pages/s and CPU seconds of both processes.

Pages of 4 KiB, 64 KiB and 1 MiB go from random places of one 256 MiB pool to random places of
another. The clock runs from the first submission to the end that the peer has confirmed.
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import typer

from benchmarks import plain_c
from benchmarks.driver import (
    DEFAULT_PATIENCE_S,
    DEFAULT_PROVIDERS,
    DEFAULT_ROUNDS,
    FABRICIO,
    PLAIN_C,
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
from benchmarks.loops import run_on
from benchmarks.pair import open_pair
from benchmarks.peer import ends_of_pages, map_pool

if TYPE_CHECKING:
    from benchmarks.driver import Figures
    from benchmarks.pair import Pair
    from fabricio import Transfer

POOL_BYTES = 256 << 20
# Page size to payload of one run: half a second or so for plain C on two cores.
RUN_BYTES = {4 << 10: 400 << 20, 64 << 10: 1 << 30, 1 << 20: 2 << 30}

CALLS_IN_FLIGHT = 4
MAX_CALL_PAGES = 10_000

BENCHMARK = Benchmark(
    "pages",
    (
        Column("GB/s", "gigabytes_per_s", ".3f"),
        Column("pages/s", "pages_per_s", ",.0f"),
        Column("CPU s", "cpu_s", ".3f"),
    ),
    references=(PLAIN_C,),
)


async def write_scattered(provider: str, loop: str, page_bytes: int, page_count: int) -> Figures:
    """Write `page_count` scattered pages by `write_pages`, some calls in flight at once.

    Raises:
        RuntimeError: a page is not in place at the peer after the end.
    """
    pool_pages = POOL_BYTES // page_bytes
    call_pages = min(MAX_CALL_PAGES, pool_pages // CALLS_IN_FLIGHT)
    random = np.random.default_rng(1)
    source = random.permutation(pool_pages)
    destination = random.permutation(pool_pages)
    pool = map_pool(POOL_BYTES)
    stamps = np.arange(1, pool_pages + 1, dtype=np.uint64)
    for words in ends_of_pages(pool, page_bytes):
        words[:] = stamps
    async with open_pair(provider, loop) as pair:
        region = await pair.fabric.register(pool)
        remote = await pair.remote_region(POOL_BYTES)
        in_flight: deque[Transfer] = deque()
        submitted = 0
        start_cpu_s = await pair.cpu_s()
        start_ns = time.perf_counter_ns()
        while submitted < page_count:
            if len(in_flight) == CALLS_IN_FLIGHT:
                await in_flight.popleft()
            first = submitted % pool_pages
            last = min(first + call_pages, first + page_count - submitted, pool_pages)
            in_flight.append(
                pair.endpoint.write_pages(
                    region,
                    source[first:last],
                    remote,
                    destination[first:last],
                    page_bytes=page_bytes,
                )
            )
            submitted += last - first
        for transfer in in_flight:
            await transfer
        wall_s = (time.perf_counter_ns() - start_ns) / 1e9
        used_cpu_s = await pair.cpu_s() - start_cpu_s
        written = min(page_count, pool_pages)
        await verify(pair, page_bytes, destination[:written], stamps[source[:written]])
    return {
        "wall_s": wall_s,
        "gigabytes_per_s": page_count * page_bytes / 1e9 / wall_s,
        "pages_per_s": page_count / wall_s,
        "cpu_s": used_cpu_s,
    }


async def verify(
    pair: Pair,
    page_bytes: int,
    pages: np.ndarray[tuple[int], np.dtype[np.int64]],
    stamps: np.ndarray[tuple[int], np.dtype[np.uint64]],
) -> None:
    """Have the peer look at both ends of every page that was written.

    Raises:
        RuntimeError: some page does not hold its stamp.
    """
    answer = await pair.ask(
        op="verify", page_bytes=page_bytes, pages=pages.tobytes(), stamps=stamps.tobytes()
    )
    if answer["wrong"]:
        raise RuntimeError(f"{answer['wrong']} of {len(pages)} pages are not in place")


def cases(providers: list[str], loop: str, part: int) -> list[Case]:
    """Return every page size on every provider, a `part`-th of the work each."""
    found = []
    for provider in providers:
        for page_bytes, run_bytes in RUN_BYTES.items():
            page_count = run_bytes // page_bytes // part
            fabricio = partial(
                run_on, loop, write_scattered, provider, loop, page_bytes, page_count
            )
            baseline = partial(
                plain_c.run,
                "pages",
                provider,
                page_bytes=page_bytes,
                page_count=page_count,
                pool_bytes=POOL_BYTES,
            )
            found.append(
                Case(
                    provider,
                    {"page_bytes": page_bytes, "page_count": page_count},
                    {FABRICIO: fabricio, PLAIN_C: baseline},
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
    """Compare scattered pages by fabricio and by plain C, interleaved."""
    rounds, part = amount(rounds, quick)
    BENCHMARK.run(cases(provider, loop, part), rounds, patience, json)


if __name__ == "__main__":
    typer.run(main)
