"""A peer that nothing may happen to, whatever happens to others of the same Fabric."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.two_process.conftest import Link, connect_to
from tests.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass
class Neighbour:
    """The other peer of the same Fabric: pages are written there, read again and looked at.

    Attributes:
        link: the connection to it.
        rounds: how often that was done.
        working: does it, and fails if it cannot.
    """

    link: Link
    rounds: int = 0

    working: asyncio.Task[None] | None = None

    async def goes_on(self) -> None:
        """Some more rounds come to an end."""
        seen, working = self.rounds, self.working
        assert working is not None
        await until(lambda: self.rounds >= seen + 3 or working.done())
        assert not working.done()

    async def work(self) -> None:
        random = np.random.default_rng(1)
        out, back = np.zeros((32, 4096), np.uint8), np.zeros((32, 4096), np.uint8)
        remote = await self.link.remote(out.nbytes)
        async with (
            await self.link.fabric.register(out) as source,
            await self.link.fabric.register(back) as target,
        ):
            while True:
                out[:] = random.integers(256, size=out.shape, dtype=np.uint8)
                near, far = random.permutation(32), random.permutation(32)
                endpoint = self.link.endpoint
                await endpoint.write_pages(source, near, remote, far, page_bytes=4096)
                await endpoint.read_pages(target, near, remote, far, page_bytes=4096)
                assert (out == back).all()
                self.rounds += 1


@asynccontextmanager
async def neighbourhood(address: str, options: dict[str, Any]) -> AsyncIterator[Neighbour]:
    """A Fabric with a peer that nothing may happen to."""
    async with connect_to(address, options) as link:
        neighbour = Neighbour(link)
        working = neighbour.working = asyncio.create_task(neighbour.work())
        try:
            yield neighbour
            assert not working.done()
        finally:
            working.cancel()
            await asyncio.wait([working])
            if not working.cancelled():
                await working  # says what was wrong
