"""Many endpoints in one process, `python -m benchmarks.scale`: what each costs, who feels deaths.

A hub accepts the endpoints of some crowds (processes with many of them) and of some singles
(processes with one each). Then it sends 8 bytes to one after another, in random order, and waits
for the echo: first while all live, then while a single is killed each second.
"""

from __future__ import annotations

import asyncio
import gc
import json as json_format
import random
import resource
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from benchmarks.driver import JsonFile  # noqa: TC001  (typer reads it)
from benchmarks.loops import run_on
from benchmarks.machine import describe
from fabricio import Endpoint, Fabric, PeerLostError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CROWDS = 4
MESSAGE = bytes(8)

_ROOT = Path(__file__).parent.parent
_PATIENCE_S = 120.0
_PEER_TIMEOUT_S = 3.0  # of the hub: so that the killed are found lost within the run

app = typer.Typer(add_completion=False)


def open_fabric(provider: str, peer_timeout_s: float) -> Fabric:
    """Make a Fabric for either side."""
    return Fabric(
        provider=provider,
        source="127.0.0.1" if provider.startswith("tcp") else None,
        connect_timeout_s=_PATIENCE_S,
        peer_timeout_s=peer_timeout_s,
        max_message_bytes=4096,
        receive_window_bytes=1 << 20,
    )


@app.command(hidden=True)
def crowd(provider: str, address: str, count: int) -> None:
    """Be a process with `count` endpoints that echo until the hub closes them."""
    run_on("uvloop", _be_crowd, provider, address, count)


async def _be_crowd(provider: str, address: str, count: int) -> None:
    gate = asyncio.Semaphore(16)

    async def be_one(fabric: Fabric) -> None:
        async with gate:
            endpoint = await fabric.connect(address)
        async with endpoint:
            async for message in endpoint:
                await endpoint.send(message)

    async with open_fabric(provider, _PATIENCE_S) as fabric, asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(be_one(fabric))


def _start(provider: str, address: str, count: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.scale", "crowd", provider, address, str(count)]
    return subprocess.Popen(command, cwd=_ROOT)


@asynccontextmanager
async def ended(processes: list[subprocess.Popen[bytes]]) -> AsyncIterator[None]:
    """Wait for the processes after the block, and kill those that do not end."""
    try:
        yield
    finally:
        for process in processes:
            try:
                await asyncio.to_thread(process.wait, _PATIENCE_S / 4)
            except subprocess.TimeoutExpired:
                process.kill()


async def ping(endpoints: list[Endpoint], seconds: float) -> list[float]:
    """Return the round trips of that time in seconds; who is lost is left out from then on."""
    chosen = random.Random(1)
    trips = []
    end_s = time.perf_counter() + seconds
    while (start_s := time.perf_counter()) < end_s:
        endpoint = endpoints[chosen.randrange(len(endpoints))]
        await endpoint.send(MESSAGE)
        await endpoint.recv()
        trips.append(time.perf_counter() - start_s)
    return trips


async def kill_one_a_second(
    singles: list[tuple[subprocess.Popen[bytes], Endpoint]],
) -> list[float]:
    """Kill them, one each second; return after how many seconds each was found lost."""

    async def watch(endpoint: Endpoint) -> float:
        start_s = time.monotonic()
        reason = await endpoint.closed
        if not isinstance(reason, PeerLostError):
            raise reason
        return time.monotonic() - start_s

    watches = []
    for process, endpoint in singles:
        process.send_signal(signal.SIGKILL)
        watches.append(asyncio.ensure_future(watch(endpoint)))
        await asyncio.sleep(1.0)  # the rate that is measured
    return await asyncio.gather(*watches)


def resident_bytes() -> int:
    """Return the memory that this process occupies now."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def _be_hub(provider: str, count: int, seconds: int) -> dict[str, float]:
    processes: list[subprocess.Popen[bytes]] = []
    async with (
        ended(processes),
        open_fabric(provider, _PEER_TIMEOUT_S) as fabric,
        fabric.listen() as listener,
    ):
        singles = []
        for _ in range(seconds):
            processes.append(_start(provider, str(fabric.address), 1))
            singles.append((processes[-1], await listener.accept()))
        before_bytes = resident_bytes()
        for place in range(CROWDS):
            share = count // CROWDS + (place < count % CROWDS)
            processes.append(_start(provider, str(fabric.address), share))
        living = [await listener.accept() for _ in range(CROWDS)]
        start_s = time.monotonic()
        living += [await listener.accept() for _ in range(count - CROWDS)]
        connect_s = time.monotonic() - start_s
        await asyncio.gather(*(endpoint.flush() for endpoint in living))
        grown_bytes = resident_bytes() - before_bytes
        calm = await ping(living, seconds)
        lost_s, deadly = await asyncio.gather(kill_one_a_second(singles), ping(living, seconds))
        return {
            "endpoints": count,
            "connects_per_s": (count - CROWDS) / connect_s,
            "bytes_per_endpoint": grown_bytes / count,
            "p50_us": 1e6 * float(np.percentile(calm, 50)),
            "p99_us": 1e6 * float(np.percentile(calm, 99)),
            "p50_while_peers_die_us": 1e6 * float(np.percentile(deadly, 50)),
            "p99_while_peers_die_us": 1e6 * float(np.percentile(deadly, 99)),
            "found_lost_after_s": max(lost_s),
        }


@app.command()
def hub(
    provider: Annotated[str, typer.Option("--provider", help="libfabric provider")] = "tcp",
    endpoints: Annotated[int, typer.Option("--endpoints", help="how many")] = 1000,
    seconds: Annotated[int, typer.Option("--seconds", help="each phase, and deaths")] = 10,
    json: JsonFile = None,
) -> None:
    """Measure many endpoints in one process."""
    figures = run_on("uvloop", _be_hub, provider, endpoints, seconds)
    for name, value in figures.items():
        print(f"{name:24} {value:12.1f}")
    if json is not None:
        json.write_text(json_format.dumps({"machine": describe(), "figures": figures}, indent=1))


if __name__ == "__main__":
    app()
