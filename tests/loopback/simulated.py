"""Programs that the tests of simulated NICs run in processes of their own.

    python simulated.py PROGRAM

libfabric looks for providers once in a process, so the NICs must be there first. A program that
ends without a word and with status 0 behaved.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
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
    RemoteTransferError,
    ResourceExhaustedError,
)
from fabricio.options import MIN_FRAME_BYTES
from fabricio.testing import SimulatedNics, check_endpoint_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Sequence

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
async def opened(
    near: Sequence[int] = (0,),
    far: Sequence[int] = (1,),
    workers: tuple[int | None, int | None] = (None, None),
    **options: Any,  # noqa: ANN401  (FabricOptions types them)
) -> AsyncIterator[Pair]:
    options = {"provider": "sim", "merge": False, "pin": False, **options}
    async with AsyncExitStack() as stack:
        near_fabric, far_fabric = [
            await stack.enter_async_context(
                Fabric(nics=[f"sim{nic}-rdm" for nic in nics], workers=count, **options)
            )
            for nics, count in ((near, workers[0]), (far, workers[1]))
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


class Log(logging.Handler):
    """What fabricio logs from now on, and nobody else gets."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        logger = logging.getLogger("fabricio")
        logger.handlers, logger.propagate = [self], False

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def text(self) -> str:
        return "\n".join(record.getMessage() for record in self.records)


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
        async with opened([2], [31]) as pair:
            await pair.write_pages()
            near, far = nics.statistics(2), nics.statistics(31)
            assert near.writes_posted == far.immediates == PAGE_COUNT
            assert near.bytes == PAGE_BYTES * PAGE_COUNT
            assert near.errors == near.again == 0
            assert nics.statistics(3).completions == 0

    with SimulatedNics(32, pci="p5") as nics:
        assert nics.domains[31] == "sim31-rdm"
        run(main(nics))


def lanes() -> None:
    """Many NICs, whatever the order and however they are dealt over workers: every byte is right,
    every notification comes once and after its data."""

    async def main(nics: SimulatedNics, workers: tuple[int, int]) -> None:
        near, far = range(8), range(8, 16)
        async with opened(near, far, workers, stripe_bytes=4096) as pair:
            assert sum(pair.near.attributes.lane_counts) == len(near)
            await check_endpoint_pair(pair.a, pair.b)
            before = [nics.statistics(nic).writes_posted for nic in near]
            for seed in range(8):
                await pair.write(seed)
            posted = [nics.statistics(nic).writes_posted for nic in near]
            shares = [now - then for now, then in zip(posted, before, strict=True)]
            assert sum(shares) == 8 * PAGE_COUNT // 2
            # Workers take what they can get; the lanes of one worker have turns.
            assert workers != (1, 1) or min(shares) > 0, shares
            transfers = [
                pair.a.write_pages(
                    pair.local, part, pair.remote, part, page_bytes=PAGE_BYTES, notify=number
                )
                for number, part in enumerate(np.array_split(np.arange(PAGE_COUNT), 16))
            ]
            for number, part in enumerate(np.array_split(np.arange(PAGE_COUNT), 16)):
                assert await pair.b.recv() == number
                where = slice(part[0] * PAGE_BYTES, (part[-1] + 1) * PAGE_BYTES)
                assert (pair.target[where] == pair.source[where]).all()
            assert [await transfer for transfer in transfers] == [32 * PAGE_BYTES] * 16

    with SimulatedNics(16, order="random", seed=9) as nics:
        for workers in ((1, 1), (4, 4), (8, 2), (1, 8), (3, 5)):
            run(main(nics, workers))


def slow_lane() -> None:
    """A NIC that takes few operations gets fewer: what lanes do is not dealt out in advance."""

    async def main(nics: SimulatedNics) -> None:
        async with opened(range(4), range(4, 8), (1, 1), inflight_count=4) as pair:
            nics.storm(2, 0.95)
            for seed in range(8):
                await pair.write(seed)
            posted = [nics.statistics(nic).writes_posted for nic in range(4)]
            assert 2 * posted[2] < min(posted[0], posted[1], posted[3]), posted

    with SimulatedNics(8, order="random", seed=2) as nics:
        run(main(nics))


def p5() -> None:
    """On a p5 host a Fabric has a worker for each GPU, with the four NICs near it; what the
    handshake says of them fits into the smallest frames.
    """
    small: dict[str, Any] = {
        "frame_bytes": MIN_FRAME_BYTES,
        "secret": [bytes([i]) * 32 for i in range(4)],
    }

    async def main(nics: SimulatedNics, options: dict[str, Any]) -> None:
        async with (
            Fabric(provider="sim", pin=False, **options) as near,
            Fabric(provider="sim", pin=False, **options) as far,
        ):
            assert near.attributes.lane_counts == (4,) * 8
            for index, plan in enumerate(near._engine.plans if near._engine else ()):
                assert plan.nics == nics.domains[4 * index : 4 * index + 4]
                assert plan.numa_node == index // 4
                assert [gpu.index for gpu in plan.gpus] == [index]
            async with far.listen() as listener:
                a = await near.connect(far.address)
                b = await listener.accept()
            await check_endpoint_pair(a, b, page_bytes=65536, page_count=256)

    with SimulatedNics(32, pci="p5", order="random", seed=5) as nics:
        for options in ({}, small):
            run(main(nics, options))


def lane_down() -> None:
    """A NIC of several goes down, on either side: the others take its pages, and its messages."""

    async def main(nics: SimulatedNics, broken: int) -> None:
        near, far = range(4), range(4, 8)
        async with opened(near, far, (1, 1), stripe_bytes=4096, peer_timeout_s=5.0) as pair:
            log = Log()
            await pair.write(1)
            nics.down(broken)
            for seed in range(2, 6):
                await pair.write(seed)
                random = np.random.default_rng(seed)
                pair.source[:] = random.integers(0, 256, len(pair.source), np.uint8)
                await pair.a.write(pair.local, pair.remote, notify={"seed": seed})
                assert await pair.b.recv() == {"seed": seed}
                assert (pair.target == pair.source).all()
                pair.source[:] = 0
                assert await pair.a.read(pair.local, pair.remote) == len(pair.source)
                assert (pair.target == pair.source).all()
            await check_endpoint_pair(pair.a, pair.b)
            near_counts, far_counts = pair.near.statistics(), pair.far.statistics()
            failed = near_counts.lanes_failed + far_counts.lanes_failed
            assert 1 <= failed <= 2  # once a side
            assert len(log.records) == failed
            assert f"NIC sim{broken}-rdm" in log.text or f"NIC sim{(broken + 4) % 8}" in log.text
            for nic in near:
                nics.down(nic)
            with pytest.raises(PeerLostError):
                await pair.write_pages()
        nics.heal()

    for order_ in ("posted", "random"):
        for broken in (0, 2, 4, 6):
            with SimulatedNics(8, order=order_, seed=broken) as nics:
                run(main(nics, broken))


def path_down() -> None:
    """A worker loses its only NIC, on either side: other workers take its pages and messages."""

    async def main(nics: SimulatedNics, broken: int, workers: tuple[int, int]) -> None:
        near, far = range(4), range(4, 8)
        async with opened(near, far, workers, stripe_bytes=4096, peer_timeout_s=5.0) as pair:
            log = Log()
            await pair.write(1)
            nics.down(broken)
            for seed in range(2, 6):
                await pair.write(seed)
                random = np.random.default_rng(seed)
                pair.source[:] = random.integers(0, 256, len(pair.source), np.uint8)
                await pair.a.write(pair.local, pair.remote, notify={"seed": seed})
                assert await pair.b.recv() == {"seed": seed}
                assert (pair.target == pair.source).all()
                await pair.b.send(seed)
                assert await pair.a.recv() == seed
                pair.source[:] = 0
                assert await pair.a.read(pair.local, pair.remote) == len(pair.source)
                assert (pair.target == pair.source).all()
            await check_endpoint_pair(pair.a, pair.b)
            near_counts, far_counts = pair.near.statistics(), pair.far.statistics()
            failed = near_counts.lanes_failed + far_counts.lanes_failed
            assert failed >= 1
            assert len(log.records) <= 2 * failed, log.text
            for nic in near:
                nics.down(nic)
            with pytest.raises(PeerLostError):
                await pair.write_pages()
        nics.heal()

    for workers in ((4, 4), (2, 4), (4, 1)):
        for broken in (0, 2, 4, 6):
            with SimulatedNics(8, order="random", seed=broken) as nics:
                run(main(nics, broken, workers))


def confirmation_lost() -> None:
    """A path fails when the target has all, and before it can say so: nothing is written again.

    The target was notified, and may use its memory for something else.
    """

    async def main(nics: SimulatedNics, *, read: bool) -> None:
        near, far = range(4), range(4, 8)
        async with opened(near, far, (4, 4), stripe_bytes=4096, heartbeat_s=9.0) as pair:
            Log()
            for broken in (7, 4, 6):
                pair.source[:] = pair.target[:] = broken
                nics.fail(broken, kind="send", code=errno.EHOSTUNREACH)
                move = pair.a.read if read else pair.a.write
                transfer = move(pair.local, pair.remote, notify=broken)
                assert await pair.b.recv() == broken
                pair.target[:] = 0
                assert await transfer == len(pair.target)
                assert not pair.target.any()
                assert (pair.source == broken).all()
            assert pair.far.statistics().lanes_failed == 3
            await check_endpoint_pair(pair.a, pair.b)

    for seed in range(10):
        with SimulatedNics(8, order="random", seed=seed) as nics:
            run(main(nics, read=bool(seed % 2)))


def cancelled_path() -> None:
    """A path fails under a transfer that was cancelled: the target hears that it failed."""

    async def main(nics: SimulatedNics, seed: int) -> None:
        random = np.random.default_rng(seed)
        near, far = range(4), range(4, 8)
        async with opened(near, far, (4, 4), stripe_bytes=4096) as pair:
            Log()
            for broken in random.permutation(4)[:3]:
                side = int(broken) + 4 * int(random.integers(2))
                kind: Any = ("write", "send")[random.integers(2)]
                nics.fail(side, int(random.integers(20)), kind=kind, code=errno.EHOSTUNREACH)
                transfers = [
                    pair.a.write(pair.local, pair.remote, notify=number) for number in range(4)
                ]
                for _ in range(random.integers(20)):
                    await asyncio.sleep(0)
                for transfer in transfers:
                    transfer.cancel()
                for number, transfer in enumerate(transfers):
                    whole = False
                    with suppress(asyncio.CancelledError):
                        whole = await transfer == len(pair.source)
                    try:
                        assert await pair.b.recv() == number
                    except RemoteTransferError:
                        assert not whole
                await pair.write(seed)
            await check_endpoint_pair(pair.a, pair.b)

    for seed in range(20):
        with SimulatedNics(8, order="random", seed=seed) as nics:
            run(main(nics, seed))


def lane_errors() -> None:
    """Operations of some NICs fail at random moments as if the link were down: nothing is lost."""

    async def main(nics: SimulatedNics, seed: int) -> None:
        random = np.random.default_rng(seed)
        near, far = range(4), range(4, 8)
        async with opened(near, far, (1, 1), stripe_bytes=4096, peer_timeout_s=5.0) as pair:
            log = Log()
            for nic in random.permutation(4)[:3]:
                kind: Any = ("write", "send", "rma")[random.integers(3)]
                nics.fail(int(nic), int(random.integers(60)), kind=kind, code=errno.EHOSTUNREACH)
            for number in range(12):
                pair.source[:] = random.integers(0, 256, len(pair.source), np.uint8)
                await pair.write_pages()
                assert (pair.target == pair.source).all()
                await pair.b.send(number)
                assert await pair.a.recv() == number
                await pair.a.write(pair.local, pair.remote, notify=number)
                assert await pair.b.recv() == number
            await check_endpoint_pair(pair.a, pair.b)
            assert len(log.records) == pair.near.statistics().lanes_failed > 0

    for seed in range(20):
        with SimulatedNics(8, order="random", seed=seed) as nics:
            run(main(nics, seed))


def locked_memory() -> None:
    """RLIMIT_MEMLOCK is too low: who opens or registers is told so, and endpoints go on."""
    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    page_bytes = resource.getpagesize()

    def limit(soft: int) -> None:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (soft, hard))

    async def main() -> None:
        limit(page_bytes)  # a Fabric's own buffers are more
        with pytest.raises(ResourceExhaustedError, match=rf"RLIMIT_MEMLOCK is {page_bytes} bytes "):
            await Fabric(provider="sim", nics=["sim0-rdm"]).__aenter__()
        limit(hard)
        async with opened(frame_bytes=MIN_FRAME_BYTES) as pair:
            limit(page_bytes)
            with pytest.raises(ResourceExhaustedError, match=r"raise it \(ulimit -l\)"):
                await pair.near.register(bytearray(1 << 20))
            await pair.write(1)
            limit(hard)
            async with await pair.near.register(bytearray(1 << 20)):
                await pair.write(2)

    with SimulatedNics(locks_memory=True):
        run(main())


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
