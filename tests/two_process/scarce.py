"""Programs of the tests of scarcity, by their names: `scarce.py descriptors ADDRESS` and so on.

A program that ends without a word and with status 0 behaved.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

from fabricio import Fabric, FabricError, FabricOptions, NoProviderError, PeerUnreachableError

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


async def locked_memory(provider: str, address: str) -> None:
    """No memory may be locked: that is no matter where none is."""
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
    source = "127.0.0.1" if provider == "tcp" else None
    async with Fabric(provider=provider, source=source) as fabric:
        endpoint = await fabric.connect(address)
        async with await fabric.register(bytearray(64 << 20)) as region:
            await endpoint.send({"op": "region", "bytes": 64 << 20, "seed": None})
            answer: Any = await endpoint.recv()
            remote = answer["region"]
            assert await endpoint.write(region, remote) == 64 << 20
            status = await asyncio.to_thread(Path("/proc/self/status").read_text)
            assert re.findall(r"^Vm(?:Lck|Pin):\s+(.*)$", status, re.MULTILINE) == ["0 kB"] * 2


async def no_descriptors_to_join_with() -> None:
    """Descriptors run out where a peer joins: it is not let in, and nobody else notices."""
    async with (
        Fabric(provider="tcp", source="127.0.0.1") as fabric,
        fabric.listen() as listener,
    ):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, __file__, "joins", str(fabric.address)), stdin=asyncio.subprocess.PIPE
        )
        assert process.stdin is not None
        far = await listener.accept()
        assert await far.recv() == "first"
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        probe = os.dup(0)
        resource.setrlimit(resource.RLIMIT_NOFILE, (probe + 1, hard))
        process.stdin.write(b"\n")
        assert await far.recv() == "refused"
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        process.stdin.write(b"\n")
        second = await listener.accept()
        assert await second.recv() == "second"
        assert await process.wait() == 0


async def joins(address: str) -> None:
    """The other process of that: it connects by a Fabric, cannot by a second, and then can."""
    options = FabricOptions(provider="tcp", source="127.0.0.1", connect_timeout_s=3.0)
    async with Fabric(options) as fabric, await fabric.connect(address) as first:
        await first.send("first")
        await asyncio.to_thread(sys.stdin.readline)
        async with Fabric(options) as other:
            with pytest.raises(PeerUnreachableError):
                await other.connect(address)
            await first.send("refused")
            await asyncio.to_thread(sys.stdin.readline)
            async with await other.connect(address) as second:
                await second.send("second")
                await second.flush()


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
