"""Programs of the tests of links: `python -m tests.two_process.outage NAME FIRST SECOND`.

Each runs on a host of its own, HOME, with a link to each of two peers, whose addresses it is given.
It says on a line what is to be done to the other host, and goes on when it reads one. A program
that ends with status 0 and without a word on stderr behaved.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fabricio import Fabric, PeerLostError, PeerUnreachableError
from tests.two_process.conftest import Link, connect_to
from tests.two_process.neighbour import Neighbour, neighbourhood
from tests.until import until

if TYPE_CHECKING:
    from fabricio import Transfer

HOME, NEW_HOME = "10.78.0.1", "10.78.0.2"  # on no link of its own
NIC = "a0"  # leads to the first peer
PAGE_BYTES, COUNT = 65536, 256
DATA = np.random.default_rng(1).integers(256, size=PAGE_BYTES * COUNT, dtype=np.uint8)

# A link that is up again carries bytes when TCP sends them again: after as long, at most.
PATIENT_S, IMPATIENT_S = 10.0, 1.0


def options(peer_timeout_s: float, source: str = HOME) -> dict[str, Any]:
    return {"provider": "tcp", "source": source, "peer_timeout_s": peer_timeout_s}


async def ip(*words: str) -> None:
    process = await asyncio.create_subprocess_exec("ip", *words)
    assert await process.wait() == 0


async def say(line: str) -> str:
    """Have something done; returns the answer."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
    answer: str = await asyncio.to_thread(sys.stdin.readline)
    return answer.strip()


async def begin(link: Link) -> Transfer:
    """A write of all data that is under way."""
    region = await link.fabric.register(DATA)
    remote = await link.remote(DATA.nbytes)
    pages = range(COUNT)
    transfer = link.endpoint.write_pages(region, pages, remote, pages, page_bytes=PAGE_BYTES)
    await until(lambda: transfer.pages_done)
    return transfer


async def stalls(transfer: Transfer, neighbour: Neighbour) -> None:
    """Wait until nothing of a transfer moves any more, though the neighbour's do."""
    before = -1
    while transfer.pages_done != before:
        before = transfer.pages_done
        await neighbour.goes_on()
    assert not transfer.done()


async def is_lost(link: Link, transfer: Transfer) -> None:
    with pytest.raises(PeerLostError):
        await transfer
    assert isinstance(await link.endpoint.closed, PeerLostError)


async def short(first: str, second: str) -> None:
    """The link is down for less than the peers' timeouts: nobody notices."""
    async with (
        neighbourhood(second, options(PATIENT_S)) as neighbour,
        neighbour.link.to(first) as link,
    ):
        transfer = await begin(link)
        await ip("link", "set", NIC, "down")
        await stalls(transfer, neighbour)
        await ip("link", "set", NIC, "up")
        assert await transfer == DATA.nbytes
        assert await link.holds(0, DATA.tobytes())
        await neighbour.goes_on()


async def long(first: str, second: str) -> None:
    """The link is down for longer: each side loses the other, and they connect anew."""
    async with neighbourhood(second, options(IMPATIENT_S)) as neighbour:
        async with neighbour.link.to(first) as link:
            transfer = await begin(link)
            await ip("link", "set", NIC, "down")
            await is_lost(link, transfer)
            await neighbour.goes_on()
            await say("let the first peer notice")
        await ip("link", "set", NIC, "up")
        async with neighbour.link.to(first) as link:
            await link.works()
        await neighbour.goes_on()


async def moved(first: str, second: str) -> None:
    """The peer's host gets another address: a new Fabric there can be connected to."""
    async with neighbourhood(second, options(IMPATIENT_S)) as neighbour:
        async with neighbour.link.to(first) as link:
            transfer = await begin(link)
            address = await say("change the first address")
            await is_lost(link, transfer)
        async with neighbour.link.to(address) as link:
            await link.works()
        await neighbour.goes_on()


async def homeless(first: str, second: str) -> None:
    """This host gets another address: the Fabric of before loses all, a new one goes on."""
    async with (
        Fabric(**options(IMPATIENT_S), connect_timeout_s=2.0) as fabric,
        await fabric.connect(first) as endpoint,
    ):
        link = Link(first, fabric, endpoint)
        transfer = await begin(link)
        await ip("address", "add", f"{NEW_HOME}/32", "dev", "lo")
        await ip("address", "delete", f"{HOME}/32", "dev", "lo")
        await is_lost(link, transfer)
        with pytest.raises(PeerUnreachableError, match="if this host does not have it any more"):
            await fabric.connect(second)
        async with connect_to(second, options(IMPATIENT_S, NEW_HOME)) as new:
            await new.works()
            await new.meets(first)


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](*sys.argv[2:]))
