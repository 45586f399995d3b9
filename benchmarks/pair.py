"""The measuring end of every fabricio benchmark, connected to `benchmarks.peer`."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.child import open_child
from benchmarks.loops import cpu_s
from benchmarks.provider import source_of
from fabricio import Fabric

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fabricio import Endpoint, RemoteRegion


@dataclass(frozen=True, slots=True)
class Pair:
    """An open Fabric here, and its endpoint with the peer's process."""

    fabric: Fabric
    endpoint: Endpoint

    async def ask(self, **question: object) -> dict[str, Any]:
        """Send the peer a question and return its answer.

        Raises:
            TypeError: what came back is no answer.
        """
        await self.endpoint.send(question)
        answer = await self.endpoint.recv()
        if not isinstance(answer, dict):
            raise TypeError(f"the peer answered {question!r} with {answer!r}")
        return answer

    async def remote_region(self, pool_bytes: int) -> RemoteRegion:
        """Have the peer register `pool_bytes` zeroed bytes for our writes."""
        region: RemoteRegion = (await self.ask(op="region", bytes=pool_bytes))["region"]
        return region

    async def peer_cpu_s(self) -> float:
        """Return the CPU seconds of the peer's process so far."""
        seconds: float = (await self.ask(op="cpu"))["cpu_s"]
        return seconds

    async def cpu_s(self) -> float:
        """Return the CPU seconds of both processes so far."""
        return await self.peer_cpu_s() + cpu_s()


@asynccontextmanager
async def open_pair(provider: str, loop: str) -> AsyncIterator[Pair]:
    """Start a peer on `loop`, open a Fabric on `provider` in this process, and connect."""
    async with (
        open_child("benchmarks.peer", provider, loop) as address,
        Fabric(provider=provider, source=source_of(provider)) as fabric,
        await fabric.connect(address) as endpoint,
    ):
        yield Pair(fabric, endpoint)
