"""A process that opens one Fabric after the other: newcomers.py PROVIDER COUNT WHO.

Each prints its address, takes one message, and is closed: once the peer has closed its endpoint
(WHO is "peer"), or before ("newcomer").
"""

from __future__ import annotations

import asyncio
import sys

from fabricio import Fabric


async def meet(provider: str, who: str) -> None:
    source = "127.0.0.1" if provider == "tcp" else None
    async with Fabric(provider=provider, source=source) as fabric, fabric.listen() as listener:
        print(fabric.address, flush=True)  # noqa: T201  # to the test
        endpoint = await listener.accept()
        assert await endpoint.recv() == "hello"
        if who == "peer":
            assert [message async for message in endpoint] == []
        await endpoint.aclose()


async def main(provider: str, count: str, who: str) -> None:
    for _ in range(int(count)):
        await meet(provider, who)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
