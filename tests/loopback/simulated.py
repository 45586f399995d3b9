"""Programs that the tests of simulated NICs run in processes of their own.

    python simulated.py PROGRAM

libfabric looks for providers once in a process, so the NICs must be there first. A program that
ends without a word and with status 0 behaved.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fabricio import (
    BrokenResourceError,
    BusyResourceError,
    ClosedResourceError,
    CompletionError,
    Endpoint,
    Fabric,
    FabricError,
    MemoryRegion,
    NoProviderError,
    OptionsError,
    PeerLostError,
    RemoteRegion,
)
from fabricio.testing import SimulatedNics, check_endpoint_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

PAGE_BYTES, PAGE_COUNT = 4096, 512


@dataclass
class Pair:
    """Two connected Fabrics on two NICs, and a region of each."""

    near: Fabric
    far: Fabric
    a: Endpoint
    b: Endpoint
    source: np.ndarray[Any, np.dtype[np.uint8]]
    target: np.ndarray[Any, np.dtype[np.uint8]]
    local: MemoryRegion
    remote: RemoteRegion

    async def write(self, seed: int) -> None:
        """Write scattered pages; every byte of the target is right then."""
        random = np.random.default_rng(seed)
        self.source[:] = random.integers(0, 256, len(self.source), np.uint8)
        expected = self.target.copy().reshape(PAGE_COUNT, PAGE_BYTES)
        local, remote = (random.permutation(PAGE_COUNT)[: PAGE_COUNT // 2] for _ in range(2))
        expected[remote] = self.source.reshape(PAGE_COUNT, PAGE_BYTES)[local]
        await self.write_pages(local, remote)
        assert (self.target.reshape(PAGE_COUNT, PAGE_BYTES) == expected).all()

    async def write_pages(self, local: Any = None, remote: Any = None) -> int:  # noqa: ANN401  (pages)
        """Write pages, one operation each; all of them in order by default."""
        everything = np.arange(PAGE_COUNT)
        return await self.a.write_pages(
            self.local,
            everything if local is None else local,
            self.remote,
            everything if remote is None else remote,
            page_bytes=PAGE_BYTES,
        )


@asynccontextmanager
async def opened(near: int = 0, far: int = 1, **options: Any) -> AsyncIterator[Pair]:  # noqa: ANN401  (FabricOptions types them)
    async with AsyncExitStack() as stack:
        near_fabric, far_fabric = [
            await stack.enter_async_context(
                Fabric(provider="sim", domain=f"sim{nic}-rdm", merge=False, **options)
            )
            for nic in (near, far)
        ]
        async with far_fabric.listen() as listener:
            a = await near_fabric.connect(far_fabric.address)
            b = await listener.accept()
        source, target = (np.zeros(PAGE_BYTES * PAGE_COUNT, np.uint8) for _ in range(2))
        local = await near_fabric.register(source)
        await b.send((await far_fabric.register(target)).share("rw"))
        remote = await a.recv()
        assert isinstance(remote, RemoteRegion)
        yield Pair(near_fabric, far_fabric, a, b, source, target, local, remote)


def new_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.SelectorEventLoop()
    loop.slow_callback_duration = 3600.0  # how busy the machine is does not matter here
    return loop


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(coroutine)


def order() -> None:
    """Whatever the order, every byte is in its place when a write is over."""

    async def main() -> None:
        async with opened() as pair:
            await check_endpoint_pair(pair.a, pair.b)
            for seed in range(5):
                await pair.write(seed)

    for settings in (
        {"order": "posted"},
        {"order": "random", "seed": 1},
        {"order": "random", "seed": 2, "immediates_take_receives": True},
        {"order": "random", "seed": 3, "paced": True, "gbps": 10.0},
        {"order": "random", "seed": 4, "tx_size": 8, "rx_size": 8},
    ):
        with SimulatedNics(**settings):
            run(main())


def failure() -> None:
    """One operation fails: its transfer does, with the NIC's own error, and no other."""

    async def main(nics: SimulatedNics) -> None:
        async with opened() as pair:
            await pair.write(1)
            for operation, code, provider_code in ((0, errno.EIO, 7), (200, errno.EINVAL, 4711)):
                nics.fail(0, operation, kind="write", code=code, provider_code=provider_code)
                with pytest.raises(CompletionError) as caught:
                    await pair.write_pages()
                error = caught.value
                assert (error.code, error.provider_code) == (code, provider_code)
                assert error.operation == "write"
                assert "simulated" in error.provider_text
                assert error.quiesced
                await pair.write(2)
            nics.fail(0, kind="read")
            with pytest.raises(CompletionError) as caught:
                await pair.a.read(pair.local, pair.remote)
            assert caught.value.operation == "read"
            await check_endpoint_pair(pair.a, pair.b)
            assert nics.statistics(0).errors == 3

    with SimulatedNics() as nics:
        run(main(nics))


def storm() -> None:
    """Refused posts are posted again."""

    async def main(nics: SimulatedNics) -> None:
        async with opened() as pair:
            nics.storm(0, 0.7, seed=3)
            nics.storm(1, 0.7, seed=4)
            nics.refuse(0, 100)
            for seed in range(5):
                await pair.write(seed)
            await check_endpoint_pair(pair.a, pair.b, page_count=8)
            assert nics.statistics(0).again > 500
            nics.heal()
            before = nics.statistics(0).again
            await pair.write(6)
            assert nics.statistics(0).again == before

    with SimulatedNics(order="random") as nics:
        run(main(nics))


def _loses(break_: str, nic: int) -> None:
    """A transfer that meets a NIC in this state fails as a lost peer; afterwards all is well."""

    async def main(nics: SimulatedNics) -> None:
        async with opened(peer_timeout_s=1.0) as pair:
            await pair.write(1)
            getattr(nics, break_)(nic)
            with pytest.raises(PeerLostError) as caught:
                await pair.write_pages()
            assert caught.value.provider == "sim"
        nics.heal()
        async with opened() as pair:
            await pair.write(2)

    with SimulatedNics() as nics:
        run(main(nics))


def down() -> None:
    """Either NIC goes down."""
    _loses("down", 0)
    _loses("down", 1)


def silent() -> None:
    """One Fabric falls silent, another on the same NIC does not notice."""

    async def main(nics: SimulatedNics) -> None:
        async with opened(peer_timeout_s=1.0) as pair, opened() as other:
            nics.silence(pair.far.address)
            lost = asyncio.ensure_future(pair.write_pages())
            await other.write(1)
            await asyncio.wait([lost])
            assert isinstance(lost.exception(), PeerLostError)
            await other.write(2)

    with SimulatedNics() as nics:
        run(main(nics))


def overrun() -> None:
    """A completion queue that is overrun ends its Fabric."""

    async def main(nics: SimulatedNics) -> None:
        async with opened(peer_timeout_s=1.0) as pair:
            nics.overrun(0)
            with pytest.raises(BrokenResourceError, match="FI_EOVERRUN"):
                await pair.write_pages()

    with SimulatedNics() as nics:
        run(main(nics))


def pace() -> None:
    """A link takes its time; never less."""
    gbps = 0.5

    async def main(nics: SimulatedNics) -> None:
        async with opened() as pair:
            start = time.monotonic()
            moved = await pair.write_pages()
            assert time.monotonic() - start >= moved * 8 / (gbps * 1e9)
            assert nics.statistics(0).bytes == moved

    with SimulatedNics(paced=True, gbps=gbps, latency_us=5) as nics:
        run(main(nics))


def virtual_clock() -> None:
    """Nothing lands before time passes."""

    async def main(nics: SimulatedNics) -> None:
        async def let_time_pass() -> None:
            while True:
                nics.advance(1e-5)
                await asyncio.sleep(0)

        clock = asyncio.create_task(let_time_pass())
        async with opened() as pair:
            clock.cancel()
            await asyncio.wait([clock])
            landed = nics.statistics(0).bytes
            write = asyncio.ensure_future(pair.write_pages())
            while nics.statistics(0).writes_posted < PAGE_COUNT:  # noqa: ASYNC110  (C counts)
                await asyncio.sleep(0)
            assert nics.statistics(0).bytes == landed
            assert not write.done()
            clock = asyncio.create_task(let_time_pass())
            assert await write == PAGE_BYTES * PAGE_COUNT
        clock.cancel()

    with SimulatedNics(paced=True, clock="virtual") as nics:
        run(main(nics))


def statistics() -> None:
    """Both sides count the same."""

    async def main(nics: SimulatedNics) -> None:
        async with opened(2, 31) as pair:
            await pair.write_pages()
            near, far = nics.statistics(2), nics.statistics(31)
            assert near.writes_posted == far.immediates == PAGE_COUNT
            assert near.bytes == PAGE_BYTES * PAGE_COUNT
            assert near.errors == near.again == 0
            assert nics.statistics(3).completions == 0

    with SimulatedNics(32, pci="p5") as nics:
        assert nics.domains[31] == "sim31-rdm"
        run(main(nics))


def too_late() -> None:
    """libfabric was used before."""

    async def main() -> None:
        async with Fabric(provider="shm"):
            pass

    run(main())
    before = dict(os.environ)
    with pytest.raises(NoProviderError, match="before the first Fabric"):
        SimulatedNics().__enter__()
    assert dict(os.environ) == before


def manners() -> None:
    """One at a time, the environment restored, mistakes explained."""
    os.environ["FI_PROVIDER_PATH"] = "/nowhere"
    os.environ["FI_PROVIDER"] = "tcp"
    before = dict(os.environ)
    nics = SimulatedNics(3)
    with pytest.raises(ClosedResourceError):
        nics.down(0)
    with nics:
        assert os.environ["FI_PROVIDER_PATH"].startswith("/nowhere:/")
        assert os.environ["FI_PROVIDER"] == "tcp,sim"
        with pytest.raises(BusyResourceError):
            SimulatedNics().__enter__()
        with pytest.raises(OptionsError):
            nics.down(3)
        with pytest.raises(OptionsError):
            nics.statistics(-1)
        with pytest.raises(OptionsError):
            nics.storm(0, 1.0)
        for _ in range(64):
            nics.fail(0)
        with pytest.raises(FabricError):
            nics.fail(0)
        run(_open_refuses_new_nics())
    assert dict(os.environ) == before
    for wrong in ({"count": 0}, {"gbps": -1.0}, {"count": 33, "pci": "p5"}, {"pci": ["00:00.0"]}):
        with pytest.raises(OptionsError):
            SimulatedNics(**wrong).__enter__()
    assert dict(os.environ) == before


async def _open_refuses_new_nics() -> None:
    nics = SimulatedNics()
    SimulatedNics._entered = False  # as if the block had ended with a Fabric open
    async with Fabric(provider="sim"):
        with pytest.raises(BusyResourceError):
            nics.__enter__()
    SimulatedNics._entered = True


if __name__ == "__main__":
    globals()[sys.argv[1]]()
