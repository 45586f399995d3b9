"""A server fills random pages of a client's memory one-sidedly; the client checks every byte.

random_fill.py                                     both processes, on this host
random_fill.py --listen 10.0.0.1:7000              the server, on one of two hosts
random_fill.py 10.0.0.1:7000 --source 10.0.0.2     the client, on the other

Needs: pip install 'fabricio-rdma[libfabric,cli,numpy]'
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from fabricio import ClosedResourceError, Endpoint, Fabric, FabricioError

PARTS = 4  # transfers that a round is written in, each with its own notification
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the client wants; its first message."""

    pages: int
    page_bytes: int
    repeat: int
    read: bool
    seed: int
    corrupt: bool

    @property
    def count(self) -> int:
        """Pages that each round fills: half of them, so that the others must stay as they are."""
        return (self.pages + 1) // 2

    def contents(self, turn: int) -> NDArray[np.uint8]:
        """Return a round's random pages, of shape (count, page_bytes); both sides can make them."""
        random = np.random.Generator(np.random.SFC64([self.seed, turn]))
        flat = np.frombuffer(random.bytes(self.count * self.page_bytes), np.uint8)
        return flat.reshape(self.count, self.page_bytes)


async def serve(fabric: Fabric, endpoint: Endpoint) -> None:
    """Fill pages of one client's memory, until it closes the endpoint."""
    message: Any = await endpoint.recv()
    job = Job(**message)
    pages = np.empty((job.count, job.page_bytes), np.uint8)
    region = await fabric.register(pages, access="r")

    order: Any
    async for order in endpoint:
        pages[:] = job.contents(order["turn"])
        pages[-1, -1] ^= job.corrupt
        if job.read:
            await endpoint.send({"pages": region.share("r")})
            continue
        start = time.perf_counter()
        transfers = [
            endpoint.write_pages(
                region,
                range(part, job.count, PARTS),
                order["memory"],
                order["pages"][part::PARTS],
                page_bytes=job.page_bytes,
                notify={"part": part},
            )
            for part in range(PARTS)
        ]
        await asyncio.gather(*transfers)
        await endpoint.send({"seconds": time.perf_counter() - start})


async def fill(fabric: Fabric, endpoint: Endpoint, job: Job) -> bool:
    """Have random pages filled, round after round, and check them; returns whether all is well."""
    memory = np.zeros((job.pages, job.page_bytes), np.uint8)
    expected = memory.copy()
    region = await fabric.register(memory, access="w")
    random = np.random.default_rng(job.seed)
    seconds, wrong, rate = 0.0, 0, ""
    columns = BarColumn(), MofNCompleteColumn(), TextColumn("pages  {task.fields[rate]}")

    await endpoint.send(asdict(job))
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=job.repeat * job.count, rate=rate)
        for turn in range(job.repeat):
            picked = random.permutation(job.pages)[: job.count]
            await endpoint.send(
                {"turn": turn, "pages": picked.tolist(), "memory": region.share("w")}
            )
            reply: Any
            if job.read:
                reply = await endpoint.recv()
                start = time.perf_counter()
                await endpoint.read_pages(
                    *(region, picked, reply["pages"], range(job.count)), page_bytes=job.page_bytes
                )
                seconds += time.perf_counter() - start
            else:
                for _ in range(PARTS):
                    await endpoint.recv()

            expected[picked] = job.contents(turn)
            wrong += int(np.count_nonzero(memory != expected))
            if not job.read:
                reply = await endpoint.recv()
                seconds += reply["seconds"]

            filled = (turn + 1) * job.count
            rate = (
                f"{filled * job.page_bytes / seconds / 1e9:.2f} GB/s"
                f"  {filled / seconds:,.0f} pages/s"
            )
            progress.update(bar, completed=filled, rate=rate)

    how = "read" if job.read else "written"
    verdict = f"WRONG: {wrong:,} bytes" if wrong else "every byte is right"
    print(
        f"{filled:,} pages of {job.page_bytes:,} bytes {how} over {fabric.attributes.provider} in "
        f"{seconds:.2f} s: {rate}; {verdict}"
    )
    return not wrong


@asynccontextmanager
async def server_process(*options: str) -> AsyncIterator[str]:
    """Run the server in a process of its own; yields its "host:port"."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, "--listen", f"{LOOPBACK}:0", *options),
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C comes to this process alone, which then ends the other
    )
    assert process.stdout is not None
    try:
        words = (await process.stdout.readline()).decode().split()
        if not words:
            raise FabricioError("the server could not start; its own words are above")
        yield words[-1]
    except BaseException:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        raise
    finally:
        await process.wait()


async def run_server(host_port: str, provider: str, source: str | None) -> None:
    """Serve one client that asks at `host_port`; SIGTERM is like Ctrl-C: all is closed in order."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with Fabric(provider=provider, source=source) as fabric:
        async with fabric.listen(host_port) as listener:
            print("listening on", listener.host_port, flush=True)
            endpoint = await listener.accept()
        async with endpoint:
            with suppress(ClosedResourceError):  # a client may leave whenever it wants
                await serve(fabric, endpoint)


async def run_client(host_port: str, provider: str, source: str | None, job: Job) -> bool:
    """Have a job done by the server at `host_port`; returns whether all is well."""
    async with (
        Fabric(provider=provider, source=source) as fabric,
        await fabric.connect(host_port) as endpoint,
    ):
        return await fill(fabric, endpoint, job)


async def run_both(provider: str, source: str | None, job: Job) -> bool:
    """Start a server and have the job done by it; returns whether all is well."""
    if source is None and provider.startswith("tcp"):
        source = LOOPBACK
    options = ["--provider", provider] + (["--source", source] if source else [])
    async with server_process(*options) as host_port:
        return await run_client(host_port, provider, source, job)


def main(
    address: Annotated[
        str | None, typer.Argument(metavar="[HOST:PORT]", help="The server to be a client of.")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Be the server of one client.")
    ] = None,
    provider: Annotated[str, typer.Option(envvar="FABRICIO_PROVIDER")] = "tcp",
    source: Annotated[
        str | None, typer.Option(help="Numeric address of the interface to use.")
    ] = None,
    pages: Annotated[int, typer.Option(min=1, help="Pages of the client's memory.")] = 1024,
    page_bytes: Annotated[int, typer.Option(min=1, help="Bytes of each.")] = 65536,
    repeat: Annotated[int, typer.Option(min=1, help="Rounds; each fills half the pages.")] = 32,
    read: Annotated[bool, typer.Option("--read", help="The client reads instead.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the contents and the order.")] = 1,
    corrupt: Annotated[bool, typer.Option("--corrupt", hidden=True, help="For tests.")] = False,
) -> None:
    """Have a server fill random pages of a client's memory, and check every byte.

    Without HOST:PORT and --listen, both are started, on this host. The exit code is 1 if any byte
    is wrong, 2 if it could not be done at all.
    """
    job = Job(
        pages=pages, page_bytes=page_bytes, repeat=repeat, read=read, seed=seed, corrupt=corrupt
    )
    right = True
    try:
        if listen is not None:
            asyncio.run(run_server(listen, provider, source))
        elif address is not None:
            right = asyncio.run(run_client(address, provider, source, job))
        else:
            right = asyncio.run(run_both(provider, source, job))
    except FabricioError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from error
    except (KeyboardInterrupt, asyncio.CancelledError) as error:
        raise typer.Exit(128 + signal.SIGINT) from error
    raise typer.Exit(0 if right else 1)


if __name__ == "__main__":
    typer.run(main)
