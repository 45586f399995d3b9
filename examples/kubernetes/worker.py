"""A worker that moves pages to every other worker, as they come and go, and has each page checked.

worker.py --dns workers                    who is there says DNS, as for a headless service
worker.py --endpointslices workers         so does the Kubernetes API

Needs: pip install 'fabricio-rdma[libfabric,cli,numpy,dns,kubernetes]'
"""

import asyncio
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from fabricio import Endpoint, Fabric, FabricioError, Listener
from fabricio.discovery import (
    Discovery,
    DnsDiscovery,
    EndpointSliceDiscovery,
    Peer,
    PeerConnected,
    Peers,
)

PORT = 7000
PORT_NAME = "fabricio"
PAGES = 64
PAGE_BYTES = 65536


def contents(seed: int) -> NDArray[np.uint8]:
    """Return the pages of one round; both sides can make them."""
    flat = np.random.Generator(np.random.SFC64(seed)).bytes(PAGES * PAGE_BYTES)
    return np.frombuffer(flat, np.uint8).reshape(PAGES, PAGE_BYTES)


async def serve(fabric: Fabric, endpoint: Endpoint) -> None:
    """Lend memory to a worker that has connected to us, and tell it whether each round is right."""
    async with endpoint:
        memory = np.zeros((PAGES, PAGE_BYTES), np.uint8)
        async with await fabric.register(memory, access="w") as region:
            await endpoint.send(region.share("w"))
            written: Any
            async for written in endpoint:
                order = np.random.default_rng(written["seed"]).permutation(PAGES)
                right = np.array_equal(memory[order], contents(written["seed"]))
                await endpoint.send({"right": bool(right)})


async def fill(fabric: Fabric, peer: Peer, endpoint: Endpoint, every_s: float) -> None:
    """Write pages, in an order of their own, into the memory that a worker lends us, each round.

    Raises: FabricioError: the worker found a wrong byte, or is gone.
    """
    memory: Any = await endpoint.recv()
    pages = np.empty((PAGES, PAGE_BYTES), np.uint8)
    async with await fabric.register(pages, access="r") as region:
        seed = 0
        while True:
            seed += 1
            pages[:] = contents(seed)
            order = np.random.default_rng(seed).permutation(PAGES)
            await endpoint.write_pages(
                *(region, range(PAGES), memory, order), page_bytes=PAGE_BYTES, notify={"seed": seed}
            )
            answer: Any = await endpoint.recv()
            if not answer["right"]:
                raise FabricioError("a byte arrived wrong")
            if seed == 1:
                say(f"{peer.host_port} {PAGES} pages verified")
            await asyncio.sleep(every_s)


def say(text: str) -> None:
    """Print a line at once: logs are read while the worker runs."""
    print(text, flush=True)


class Tasks:
    """One task for each endpoint; what it meets ends that task alone."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        """Begin without any."""
        self._group = group

    def start(self, work: Coroutine[Any, Any, None], what: str) -> None:
        """Run `work`; a peer that is gone or wrong is one line of the log."""

        async def run() -> None:
            try:
                await work
            except FabricioError as error:
                say(f"{what} ended: {error}")

        self._group.create_task(run())


async def accept(listener: Listener, fabric: Fabric, tasks: Tasks) -> None:
    """Serve every worker that connects."""
    async for endpoint in listener:
        tasks.start(serve(fabric, endpoint), "serving")


# --8<-- [start:follow]
async def work(fabric: Fabric, listener: Listener, discovery: Discovery, every_s: float) -> None:
    """Serve whoever connects, and fill the memory of everybody who is there."""
    async with (
        asyncio.TaskGroup() as group,
        discovery,
        Peers(fabric, discovery) as peers,
    ):
        tasks = Tasks(group)
        group.create_task(accept(listener, fabric, tasks))
        async for event in peers:
            host_port = event.peer.host_port
            if isinstance(event, PeerConnected):
                say(f"{host_port} connected")
                tasks.start(fill(fabric, event.peer, event.endpoint, every_s), f"{host_port}")
            else:
                say(f"{host_port} gone: {event.reason or 'left'}")


# --8<-- [end:follow]


async def run(
    discovery: Discovery, host_port: str, every_s: float, options: dict[str, Any]
) -> None:
    """Work until SIGTERM, by which Kubernetes asks a pod to end: then all is closed in order."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with Fabric(**options) as fabric, fabric.listen(host_port) as listener:
        say(f"listening on {listener.host_port}")
        await work(fabric, listener, discovery, every_s)


def main(
    dns: Annotated[str | None, typer.Option(metavar="NAME", help="Ask DNS for NAME.")] = None,
    endpointslices: Annotated[
        str | None, typer.Option(metavar="SERVICE", help="Watch the SERVICE's EndpointSlices.")
    ] = None,
    nameserver: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Instead of resolv.conf's.")
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where the rendezvous listens.")
    ] = "0.0.0.0",
    port: Annotated[int, typer.Option(help="Of every worker's rendezvous.")] = PORT,
    every_s: Annotated[float, typer.Option(help="Seconds between two rounds.")] = 1.0,
    provider: Annotated[str | None, typer.Option(envvar="FABRICIO_PROVIDER")] = None,
    source: Annotated[str | None, typer.Option(help="Numeric address of the NIC to use.")] = None,
    secret_file: Annotated[
        Path | None, typer.Option(envvar="FABRICIO_SECRET_FILE", help="What all workers share.")
    ] = None,
) -> None:
    """Move pages to every other worker, as they come and go."""
    if (dns is None) == (endpointslices is None):
        raise typer.BadParameter("give one of --dns and --endpointslices")
    options: dict[str, Any] = {"provider": provider, "source": source}
    if secret_file is not None:
        options["secret"] = secret_file.read_bytes().strip()
    try:
        discovery: Discovery
        if dns is not None:
            nameservers = [nameserver] if nameserver else []
            discovery = DnsDiscovery(dns, port=port, nameservers=nameservers)
        else:
            assert endpointslices is not None
            discovery = EndpointSliceDiscovery(endpointslices, port=PORT_NAME)
        asyncio.run(run(discovery, f"{listen}:{port}", every_s, options))
    except FabricioError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from error
    except (KeyboardInterrupt, asyncio.CancelledError):
        say("ended")


if __name__ == "__main__":
    typer.run(main)
