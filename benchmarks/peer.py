"""The other end of every fabricio benchmark: `python -m benchmarks.peer PROVIDER LOOP`.

One process, one Fabric, one endpoint. Payloads (bytes) are echoed; dicts are questions:

{"op": "region", "bytes": n}   registers n zeroed bytes, answers {"region": their RemoteRegion}
{"op": "cpu"}                  answers {"cpu_s": CPU seconds of this process so far}
{"op": "verify", ...}          answers {"wrong": pages of the region without their stamp}
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from benchmarks.child import announce
from benchmarks.loops import cpu_s, run_on
from benchmarks.provider import source_of
from fabricio import Fabric

if TYPE_CHECKING:
    from fabricio import Endpoint, MemoryRegion


def map_pool(pool_bytes: int) -> mmap.mmap:
    """Map zeroed private memory, every page present, just as the plain C baseline does."""
    pool = mmap.mmap(-1, pool_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    np.frombuffer(pool, dtype=np.uint8)[:] = 0
    return pool


def ends_of_pages(pool: mmap.mmap, page_bytes: int) -> tuple[Any, Any]:
    """Return two uint64 views of shape (pages,): the first and the last word of every page."""
    words = np.frombuffer(pool, dtype=np.uint64).reshape(-1, page_bytes // 8)
    return words[:, 0], words[:, -1]


class Peer:
    """Answers the questions of the measuring process."""

    def __init__(self, fabric: Fabric, endpoint: Endpoint) -> None:
        """Serve one endpoint of a Fabric."""
        self._fabric = fabric
        self._endpoint = endpoint
        self._pool: mmap.mmap | None = None
        self._region: MemoryRegion | None = None

    async def serve(self) -> None:
        """Echo and answer until the other side closes the endpoint."""
        async for message in self._endpoint:
            if isinstance(message, bytes):
                await self._endpoint.send(message)
            else:
                await self._endpoint.send(await self._answer(message))

    async def _answer(self, question: object) -> dict[str, Any]:
        match question:
            case {"op": "cpu"}:
                return {"cpu_s": cpu_s()}
            case {"op": "region", "bytes": int(pool_bytes)}:
                self._pool = map_pool(pool_bytes)
                self._region = await self._fabric.register(self._pool, access="w")
                return {"region": self._region.share("w")}
            case {"op": "verify", "page_bytes": page_bytes, "pages": pages, "stamps": stamps}:
                assert self._pool is not None
                first, last = ends_of_pages(self._pool, page_bytes)
                index = np.frombuffer(pages, dtype=np.int64)
                stamp = np.frombuffer(stamps, dtype=np.uint64)
                wrong = (first[index] != stamp) | (last[index] != stamp)
                return {"wrong": int(wrong.sum())}
        raise ValueError(f"the peer does not know the question {question!r}")


async def accept(provider: str) -> None:
    """Open a Fabric, announce its address and serve the first endpoint that connects."""
    async with (
        Fabric(provider=provider, source=source_of(provider)) as fabric,
        fabric.listen() as listener,
    ):
        announce(str(fabric.address))
        async with await anext(aiter(listener)) as endpoint:
            await Peer(fabric, endpoint).serve()


def main(provider: str, loop: str) -> None:
    """Serve one measuring process, then end."""
    run_on(loop, accept, provider)


if __name__ == "__main__":
    typer.run(main)
