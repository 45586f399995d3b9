"""The engine alone: `python -m benchmarks.engine`. Pages a second on NICs that move nothing.

Two Fabrics of one process write 64 KiB pages over simulated NICs which complete each operation at
once and copy no byte, so what is left is fabricio's own cost, from the call in Python to the
resolved await, the confirmation by the target's engine included. Each variant leaves one thing of
the default out, or adds lanes.
"""

from __future__ import annotations

import json as json_format
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from benchmarks.driver import (
    DEFAULT_PATIENCE_S,
    DEFAULT_ROUNDS,
    FABRICIO,
    Benchmark,
    Case,
    Column,
    JsonFile,
    Patience,
    Quick,
    Rounds,
    amount,
)
from benchmarks.loops import run_on
from fabricio import Fabric
from fabricio.testing import SimulatedNics

if TYPE_CHECKING:
    from benchmarks.driver import Figures

PAGE_BYTES = 64 << 10
POOL_PAGES = 1024  # of each side; nothing is moved, so pages may come again
CALL_PAGES = 10_000
RUN_PAGES = 2_000_000

# Name -> lanes, pages of a call, options of both Fabrics, and whether pages are in order.
VARIANTS: dict[str, tuple[int, int, dict[str, Any], bool]] = {
    "1 lane": (1, CALL_PAGES, {}, False),
    "2 lanes": (2, CALL_PAGES, {}, False),
    "4 lanes": (4, CALL_PAGES, {}, False),
    "2 workers": (2, CALL_PAGES, {"workers": 2}, False),
    "100 pages a call": (1, 100, {}, False),
    "1 page a call": (1, 1, {}, False),
    "1 operation in flight": (1, CALL_PAGES, {"inflight_count": 1}, False),
    "adjacent pages, merged": (1, 1000, {}, True),
    "adjacent pages, not merged": (1, 1000, {"merge": False}, True),
}

_ROOT = Path(__file__).parent.parent

BENCHMARK = Benchmark(
    "engine",
    (
        Column("M pages/s", "million_pages_per_s", ".3f"),
        Column("M pages/s and core", "million_pages_per_cpu_s", ".3f"),
        Column("ns a page", "ns_per_page", ".0f"),
    ),
)

app = typer.Typer(add_completion=False)


def worker_cpu_s(threads: set[int]) -> float:
    """Return the CPU seconds of some threads of this process so far."""
    total = 0
    for thread in threads:
        text = Path(f"/proc/self/task/{thread}/schedstat").read_text()
        total += int(text.split()[0])
    return total / 1e9


def workers() -> set[int]:
    """Return the ids of all engine threads of this process."""
    tasks = Path("/proc/self/task").iterdir()
    return {int(t.name) for t in tasks if (t / "comm").read_text().startswith("fab-w")}


async def write(nics: SimulatedNics, variant: str, part: int) -> Figures:
    """Write a part of the pages of a run."""
    lanes, call_pages, options, ordered = VARIANTS[variant]
    far_nics, near_nics = nics.domains[:lanes], nics.domains[lanes : 2 * lanes]
    options = {"workers": 1, "pin": False, **options}
    total = RUN_PAGES // part // (50 if call_pages == 1 else 1)
    random = np.random.default_rng(1)
    pool = bytearray(POOL_PAGES * PAGE_BYTES)
    calls = max(1, total // call_pages)
    source = np.arange(call_pages) % POOL_PAGES
    destination = np.arange(call_pages)
    if not ordered:
        random.shuffle(source)
        random.shuffle(destination)
    async with Fabric(provider="sim", nics=far_nics, **options) as far:
        others = workers()
        async with Fabric(provider="sim", nics=near_nics, **options) as near:
            threads = workers() - others
            async with far.listen() as listener:
                a = await near.connect(far.address)
                b = await listener.accept()
            local = await near.register(pool)
            # Nothing is moved: the target only has to be as long as its pages say.
            target = np.zeros(CALL_PAGES * PAGE_BYTES, np.uint8)
            await b.send((await far.register(target)).share("w"))
            remote: Any = await a.recv()
            await a.write_pages(local, source, remote, destination, page_bytes=PAGE_BYTES)
            start, used = time.perf_counter(), worker_cpu_s(threads)
            in_flight = [
                a.write_pages(local, source, remote, destination, page_bytes=PAGE_BYTES)
                for _ in range(min(4, calls))
            ]
            for _ in range(calls - len(in_flight)):
                await in_flight.pop(0)
                in_flight.append(
                    a.write_pages(local, source, remote, destination, page_bytes=PAGE_BYTES)
                )
            for transfer in in_flight:
                await transfer
            took_s, used = time.perf_counter() - start, worker_cpu_s(threads) - used
    pages = calls * call_pages
    return {
        "million_pages_per_s": pages / took_s / 1e6,
        "million_pages_per_cpu_s": pages / used / 1e6,
        "ns_per_page": took_s * 1e9 / pages,
    }


@app.command(hidden=True)
def one(variant: str, part: int) -> None:
    """Do one run, in a process of its own: libfabric looks for NICs once."""
    lanes = VARIANTS[variant][0]
    with SimulatedNics(2 * lanes, copy=False) as nics:
        print(json_format.dumps(run_on("uvloop", write, nics, variant, part)))


def run(variant: str, part: int) -> Figures:
    """Run one variant in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.engine", "one", variant, str(part)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
        check=True,
        timeout=120,
    )
    figures: Figures = json_format.loads(done.stdout)
    return figures


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    variant: Annotated[list[str] | None, typer.Option(help="which; several times")] = None,
    rounds: Rounds = DEFAULT_ROUNDS,
    quick: Quick = False,
    patience: Patience = DEFAULT_PATIENCE_S,
    json: JsonFile = None,
) -> None:
    """Measure fabricio's own cost a page on simulated NICs."""
    if context.invoked_subcommand is not None:
        return
    rounds, part = amount(rounds, quick)
    cases = [
        Case("sim", {"variant": name}, {FABRICIO: partial(run, name, part)})
        for name in variant or VARIANTS
    ]
    BENCHMARK.run(cases, rounds, patience, json)


if __name__ == "__main__":
    app()
