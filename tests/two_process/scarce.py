"""Programs of the tests of scarcity: `scarce.py descriptors ADDRESS` and `scarce.py shm`.

A program that ends without a word and with status 0 behaved.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from pathlib import Path

import pytest

from fabricio import Fabric, FabricError, NoProviderError

SHM = Path("/dev/shm")


async def descriptors(address: str) -> None:
    """Descriptors run out: who connects is told, and the endpoints that are there go on."""
    async with Fabric(provider="tcp", source="127.0.0.1", connect_timeout_s=3.0) as fabric:
        first = await fabric.connect(address)
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        probe = os.dup(0)
        resource.setrlimit(resource.RLIMIT_NOFILE, (probe + 1, hard))
        with pytest.raises((FabricError, OSError)):
            async with Fabric(provider="tcp", source="127.0.0.1", connect_timeout_s=1.0) as other:
                await other.connect(address)
        await first.send({"op": "echo", "value": "still here"})
        assert await first.recv() == {"value": "still here"}
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        async with await fabric.connect(address) as second:
            await second.send({"op": "echo", "value": "and again"})
            assert await second.recv() == {"value": "and again"}


async def shm() -> None:
    """No room for another endpoint: the error says how much there is, and the first goes on."""
    async with Fabric(provider="shm") as fabric, fabric.listen() as listener:
        free = os.statvfs("/dev/shm")
        SHM.joinpath("filler").write_bytes(bytes((free.f_bavail - 200) * free.f_frsize))
        with pytest.raises(NoProviderError, match=r"MB of /dev/shm to be free .* and 0\.8 MB are"):
            await Fabric(provider="shm").__aenter__()
        SHM.joinpath("filler").unlink()
        near = await fabric.connect(fabric.address)
        far = await listener.accept()
        await near.send("still here")
        assert await far.recv() == "still here"


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](*sys.argv[2:]))
