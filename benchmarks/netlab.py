"""Many shaped links: `python -m benchmarks.netlab`, as root. Share of the links' speed in payload.

Two network namespaces are two hosts; 1 to 32 links of 100 Mbit/s join them, shaped by htb. One
Fabric a side has a lane on each link, four lanes a worker, and writes random 64 KiB pages. Plain
TCP, one stream a link, does what such links can do.

What has completed between two moments of a run that goes on before and after counts; so neither the
start nor the last pages, which leave links idle one after the other, are in it. After the run the
target looks at every page. What a link carries is counted with all headers: at 9,000 bytes a frame
at most 99.3 % of it is payload. An operation counts when it completes, whole, so that a single
link's figure is right within half a percent.
"""

from __future__ import annotations

import asyncio
import json as json_format
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from benchmarks.child import announce
from benchmarks.driver import (
    DEFAULT_PATIENCE_S,
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
from benchmarks.lab import Lab, open_lab
from benchmarks.loops import cpu_s, run_on
from benchmarks.pages import verify
from benchmarks.pair import Pair
from benchmarks.peer import Peer, ends_of_pages, map_pool
from fabricio import Fabric

if TYPE_CHECKING:
    from benchmarks.driver import Figures
    from fabricio import Transfer

PLAIN_TCP = "plain TCP"
PAGE_BYTES = 64 << 10
PAGES_A_LINK = 64  # of one call
CALLS_IN_FLIGHT = 4
LANES_A_WORKER = 4
WARM_UP_S = 2.0
SECONDS = 10.0
MBIT_PER_S = 100
LINKS = (1, 2, 4, 8, 16, 32)

_ROOT = Path(__file__).parent.parent
_PORT = 7000
_START_S = 30.0

BENCHMARK = Benchmark(
    "netlab",
    (
        Column("payload %", "percent", ".2f"),
        Column("wire %", "wire_percent", ".2f"),
        Column("Mbit/s", "mbit_per_s", ".1f"),
        Column("CPU s a s", "cpu_share", ".2f"),
    ),
    references=(PLAIN_TCP,),
)

app = typer.Typer(add_completion=False)


def fabric_on(lab: Lab, host: int) -> Fabric:
    """Return a Fabric with a lane on each link."""
    workers = -(-lab.links // LANES_A_WORKER)
    return Fabric(provider="tcp", nics=lab.nics(host), workers=workers, pin=False)


async def write_pages(lab: Lab, address: str, seconds: float) -> Figures:
    """Write random pages for some seconds; the measuring end."""
    random = np.random.default_rng(1)
    call_pages = PAGES_A_LINK * lab.links
    pool_pages = call_pages * (CALLS_IN_FLIGHT + 2)
    pool = map_pool(pool_pages * PAGE_BYTES)
    stamps = np.arange(1, pool_pages + 1, dtype=np.uint64)
    for words in ends_of_pages(pool, PAGE_BYTES):
        words[:] = stamps
    source, destination = random.permutation(pool_pages), random.permutation(pool_pages)
    async with fabric_on(lab, 0) as fabric, await fabric.connect(address) as endpoint:
        pair = Pair(fabric, endpoint)
        region = await fabric.register(pool)
        remote = await pair.remote_region(len(pool))
        in_flight: deque[Transfer] = deque()
        place = 0

        async def sample() -> Figures:
            await asyncio.sleep(WARM_UP_S)
            meter = Meter(lab, fabric.statistics().bytes_written)
            await asyncio.sleep(seconds)
            return meter.figures(fabric.statistics().bytes_written)

        sampling = asyncio.create_task(sample())
        while not sampling.done():
            while len(in_flight) < CALLS_IN_FLIGHT:
                pages = slice(place, place + call_pages)
                place = (place + call_pages) % pool_pages
                in_flight.append(
                    endpoint.write_pages(
                        region, source[pages], remote, destination[pages], page_bytes=PAGE_BYTES
                    )
                )
            await in_flight.popleft()
        for transfer in in_flight:
            await transfer
        await verify(pair, PAGE_BYTES, destination, stamps[source])
    return sampling.result()


async def take_pages(lab: Lab) -> None:
    """Be written to; the other end."""
    async with fabric_on(lab, 1) as fabric, fabric.listen() as listener:
        announce(str(fabric.address))
        async with await listener.accept() as endpoint:
            await Peer(fabric, endpoint).serve()


def send_streams(lab: Lab, seconds: float) -> Figures:
    """Send over one TCP stream a link for some seconds; the measuring end."""
    counts = [0] * lab.links
    payload = bytes(1 << 20)
    over = threading.Event()

    def send(link: int) -> None:
        with socket.create_connection((lab.address(1, link), _PORT), _START_S) as stream:
            while not over.is_set():
                counts[link] += stream.send(payload)

    threads = [threading.Thread(target=send, args=(link,)) for link in range(lab.links)]
    for thread in threads:
        thread.start()
    time.sleep(WARM_UP_S)
    meter = Meter(lab, sum(counts))
    time.sleep(seconds)
    figures = meter.figures(sum(counts))
    over.set()
    for thread in threads:
        thread.join()
    return figures


def take_streams(lab: Lab) -> None:
    """Receive one TCP stream a link until it ends; the other end."""

    def take(server: socket.socket) -> None:
        with server, server.accept()[0] as stream:
            buffer = bytearray(1 << 20)
            while stream.recv_into(buffer):
                pass

    servers = [socket.create_server((lab.address(1, n), _PORT)) for n in range(lab.links)]
    threads = [threading.Thread(target=take, args=(server,)) for server in servers]
    for thread in threads:
        thread.start()
    announce("streams")
    for thread in threads:
        thread.join()


class Meter:
    """Counts from one moment to another, on the sending host."""

    def __init__(self, lab: Lab, payload_bytes: int) -> None:
        """Begin, with so much payload sent by now."""
        self._lab = lab
        self._payload_bytes = payload_bytes
        self._wire_bytes = lab.sent_here(0)
        self._cpu_s = cpu_s()
        self._start_s = time.perf_counter()

    def figures(self, payload_bytes: int) -> Figures:
        """End, with so much payload sent by now."""
        took_s = time.perf_counter() - self._start_s
        capacity = took_s * self._lab.links * self._lab.bits_per_s / 8
        payload = payload_bytes - self._payload_bytes
        return {
            "percent": 100 * payload / capacity,
            "wire_percent": 100 * (self._lab.sent_here(0) - self._wire_bytes) / capacity,
            "mbit_per_s": payload * 8e-6 / took_s,
            "cpu_share": (cpu_s() - self._cpu_s) / took_s,
        }


def run_pair(lab: Lab, contender: str, seconds: float) -> Figures:
    """Run both ends of a contender, each on its host.

    Raises:
        RuntimeError: one of them failed; its errors are above.
    """

    def command(host: int, *words: str) -> tuple[str, ...]:
        text = json_format.dumps([*lab.hosts, lab.links, lab.bits_per_s])
        module = (sys.executable, "-m", "benchmarks.netlab", "end", text, contender)
        return lab.command(host, *module, *words)

    with subprocess.Popen(command(1), stdout=subprocess.PIPE, text=True, cwd=_ROOT) as target:
        try:
            assert target.stdout is not None
            line = target.stdout.readline().strip()
            if not line.startswith("ready "):
                raise RuntimeError(f"the target of {contender} did not start")
            limit_s = _START_S + 3 * (seconds + WARM_UP_S)
            done = subprocess.run(
                command(0, line.removeprefix("ready "), str(seconds)),
                stdout=subprocess.PIPE,
                text=True,
                cwd=_ROOT,
                check=False,
                timeout=limit_s,
            )
            if done.returncode or target.wait(_START_S):
                raise RuntimeError(f"{contender} failed")
        finally:
            target.kill()  # nothing happens if it has ended
    figures: Figures = json_format.loads(done.stdout)
    return figures


@app.command(hidden=True)
def end(
    lab: str,
    contender: str,
    address: Annotated[str, typer.Argument()] = "",
    seconds: Annotated[float, typer.Argument()] = 0.0,
) -> None:
    """Be one end of a run: the measuring one, if there is an address."""
    a, b, links, bits_per_s = json_format.loads(lab)
    here = Lab((a, b), links, bits_per_s)
    if contender == FABRICIO:
        if not address:
            run_on("uvloop", take_pages, here)
            return
        figures = run_on("uvloop", write_pages, here, address, seconds)
    else:
        if not address:
            take_streams(here)
            return
        figures = send_streams(here, seconds)
    print(json_format.dumps(figures))


def _run_in_lab(contender: str, links: int, mbit_per_s: int, seconds: float) -> Figures:
    with open_lab(links, mbit_per_s) as lab:
        return run_pair(lab, contender, seconds)


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    links: Annotated[list[int] | None, typer.Option(help="how many; several times")] = None,
    mbit: Annotated[int, typer.Option(help="Mbit/s of each link")] = MBIT_PER_S,
    rounds: Rounds = 3,
    quick: Quick = False,
    patience: Patience = DEFAULT_PATIENCE_S,
    json: JsonFile = None,
) -> None:
    """Compare random pages by fabricio and plain TCP streams over shaped links, interleaved."""
    if context.invoked_subcommand is not None:
        return
    rounds, part = amount(rounds, quick)
    seconds = max(2.0, SECONDS / part)
    cases = [
        Case(
            "tcp",
            {"links": count},
            {
                name: partial(_run_in_lab, name, count, mbit, seconds)
                for name in (FABRICIO, PLAIN_TCP)
            },
        )
        for count in links or LINKS
    ]
    try:
        BENCHMARK.run(cases, rounds, patience, json)
    except PermissionError as error:
        raise SystemExit(f"netlab: {error}") from error


if __name__ == "__main__":
    app()
