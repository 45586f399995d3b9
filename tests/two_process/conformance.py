"""`conformance.py PROVIDER`: two endpoints in one process do what they promise, and part in order.

Prints path and version of the libfabric that was loaded, and the provider that was opened, each on
a line of its own.
"""

from __future__ import annotations

import asyncio
import sys

from fabricio import Fabric
from fabricio._ffi.loader import load
from fabricio.testing import check_endpoint_pair


async def main(provider: str) -> None:
    source = "127.0.0.1" if provider.startswith("tcp") else None
    async with (
        Fabric(provider=provider, source=source) as near,
        Fabric(provider=provider, source=source) as far,
        far.listen() as listener,
        await near.connect(far.address) as a,
        await listener.accept() as b,
    ):
        await check_endpoint_pair(a, b)
        await a.send("last")
        parting = asyncio.create_task(a.aclose())
        assert [message async for message in b] == ["last"]
        await parting
        opened = near.attributes.provider
    library = load()
    version = ".".join(map(str, library.version))
    sys.stdout.write(f"{library.path}\n{version}\n{opened}\n")


asyncio.run(main(sys.argv[1]))
