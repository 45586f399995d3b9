"""`conformance.py PROVIDER`: two endpoints in one process do what they promise."""

from __future__ import annotations

import asyncio
import sys

from fabricio import Fabric
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


asyncio.run(main(sys.argv[1]))
