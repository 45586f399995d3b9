"""Random transfers of every kind against a model of both memories, down to the last byte.

Two Fabrics write into and read from each other in waves. The transfers of a wave run all at once,
deeper than the provider's queue; none of them touches what another one writes, so the model knows
what each byte must be afterwards, the untouched ones included, and what must be in place whenever
a notification comes. Where a transfer is cancelled or fails, each byte is the old or the new one.

Everything follows from one seed. FABRICIO_MODEL_SEED sets another one, FABRICIO_MODEL_WAVES the
number of waves; a failure says which seed, name and wave it was.
"""

from __future__ import annotations

import asyncio
import os
import zlib
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabricio import (
    CompletionError,
    Endpoint,
    Fabric,
    FabricioError,
    MemoryRegion,
    RemoteRegion,
    RemoteTransferError,
    Transfer,
)

SEED = int(os.environ.get("FABRICIO_MODEL_SEED", "1"))
WAVES = int(os.environ.get("FABRICIO_MODEL_WAVES", "0"))

MEMORY_BYTES = (1 << 21) + 333
VIEW = slice(4097, MEMORY_BYTES - 410)  # registered once more, by itself
MAX_PAGE_BYTES = 1 << 15
MAX_TRANSFER_BYTES = 1 << 17
MAX_PAGES = 1000
MAX_TRANSFERS = 90

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]


class Memory:
    """Bytes of one side, registered whole and in part, and what the other side got of it."""

    def __init__(self) -> None:
        self.array: Bytes = np.zeros(MEMORY_BYTES, np.uint8)
        self.regions: list[MemoryRegion] = []
        self.remotes: list[RemoteRegion] = []

    async def open(self, fabric: Fabric, owner: Endpoint, peer: Endpoint) -> None:
        for array in (self.array, self.array[VIEW]):
            region = await fabric.register(array)
            await owner.send(region.share("rw"))
            remote = await peer.recv()
            assert isinstance(remote, RemoteRegion)
            self.regions.append(region)
            self.remotes.append(remote)


class Side:
    """One of the two. All transfers go from a source into a target."""

    def __init__(self, fabric: Fabric, endpoint: Endpoint) -> None:
        self.fabric = fabric
        self.endpoint = endpoint
        self.source = Memory()
        self.target = Memory()
        self.wrote: Bytes = self.source.array.copy()  # what the source must still hold
        self.before: Bytes = self.target.array.copy()  # what the target held before this wave
        self.model: Bytes = self.before.copy()  # what it must hold after it
        self.taken = np.zeros(MEMORY_BYTES, bool)  # what this wave writes there

    def begin_wave(self, random: np.random.Generator) -> None:
        self.source.array[:] = np.frombuffer(random.bytes(MEMORY_BYTES), np.uint8)
        self.wrote[:] = self.source.array
        self.before[:] = self.model
        self.taken[:] = False

    def check(self) -> None:
        assert np.array_equal(self.source.array, self.wrote), "a source has changed"
        wrong = np.flatnonzero(self.target.array != self.model)
        assert not wrong.size, f"{wrong.size} bytes are wrong, {wrong[0]} to {wrong[-1]}"


@dataclass
class Pages:
    """Where one side's pages are: page i at `offset + indices[i] * stride` of part of a region."""

    view: bool
    part: slice
    offset: int
    stride: int
    indices: Places

    def every_byte(self, page_bytes: int) -> Places:
        """The place of each byte in its memory, page by page."""
        first = (VIEW.start if self.view else 0) + self.part.start + self.offset
        starts: Places = first + self.indices * self.stride
        return (starts[:, None] + np.arange(page_bytes)).ravel()


class Plan:
    """One transfer that one side starts, what it moves, and what became of it."""

    def __init__(
        self, number: int, near: Side, far: Side, random: np.random.Generator, *, may_fail: bool
    ) -> None:
        self.may_fail = may_fail
        self.failed = False  # or cancelled: what it has moved is not known
        self.was_refused = False  # its notification
        self.near = near
        self.far = far
        self.read = random.random() < 0.4
        self.confirm = random.random() < 0.8
        self.notify = number if random.random() < 0.5 else None
        self.message = f"behind {number}" if random.random() < 0.1 else None
        self.cancel_after = int(random.integers(4)) if random.random() < 0.07 else None
        self.cancel_waiter = random.random() < 0.5
        self.whole = random.random() < 0.15
        self.page_bytes = int(2 ** random.uniform(0, np.log2(MAX_PAGE_BYTES)))
        into, out = self._choose_pages(random)
        self.into, self.out = into, out
        self.into_side, self.out_side = (near, far) if self.read else (far, near)
        self.to = into.every_byte(self.page_bytes)
        self.origin = out.every_byte(self.page_bytes)
        self.transfer: Transfer | None = None

    def __repr__(self) -> str:
        return (
            f"<Plan {self.transfer!r} confirm={self.confirm} notify={self.notify} "
            f"cancel_after={self.cancel_after} failed={self.failed} from {self.out} to {self.into}>"
        )

    def claim(self) -> bool:
        """Enter it into the model; False if another one of this wave writes there."""
        side = self.into_side
        if side.taken[self.to].any():
            return False
        side.taken[self.to] = True
        side.model[self.to] = self.out_side.source.array[self.origin]
        return True

    def start(self) -> None:
        endpoint = self.near.endpoint
        local, remote = (self.into, self.out) if self.read else (self.out, self.into)
        local_memory = self.near.target if self.read else self.near.source
        remote_memory = self.far.source if self.read else self.far.target
        region = local_memory.regions[local.view][local.part]
        remote_region = remote_memory.remotes[remote.view][remote.part]
        notification = {} if self.notify is None else {"notify": self.notify}
        if self.whole:
            move = endpoint.read if self.read else endpoint.write
            self.transfer = move(
                region[local.offset :][: self.page_bytes],
                remote_region[remote.offset :],
                confirm=self.confirm,
                **notification,
            )
            return
        move_pages = endpoint.read_pages if self.read else endpoint.write_pages
        self.transfer = move_pages(
            region,
            local.indices,
            remote_region,
            remote.indices.tolist(),
            page_bytes=self.page_bytes,
            local_stride_bytes=local.stride,
            remote_stride_bytes=remote.stride,
            local_offset_bytes=local.offset,
            remote_offset_bytes=remote.offset,
            confirm=self.confirm,
            **notification,
        )

    async def finish(self) -> None:
        """Wait for the outcome, after cancelling it in one of the two ways if that is planned."""
        assert self.transfer is not None
        waiter = asyncio.ensure_future(_wait(self.transfer))
        if self.cancel_after is not None:
            for _ in range(self.cancel_after):
                await asyncio.sleep(0)
            (waiter if self.cancel_waiter else self.transfer).cancel()
        await asyncio.wait([waiter])
        try:
            assert await self.transfer == self.to.size
        except asyncio.CancelledError:
            if self.cancel_after is None:
                raise
            self.failed = True
            return
        except CompletionError:
            assert self.may_fail
            self.failed = True
            return
        if self.read or self.confirm:
            assert self.in_place(), f"{self!r} is done and its bytes are not there"

    def in_place(self) -> bool:
        side = self.into_side
        return np.array_equal(side.target.array[self.to], side.model[self.to])

    def adopt(self) -> None:
        """Take what a transfer that did not end well has left, if that can be."""
        side = self.into_side
        found = side.target.array[self.to]
        possible = (found == side.model[self.to]) | (found == side.before[self.to])
        assert possible.all(), f"{self!r} left bytes that are neither old nor new"
        side.model[self.to] = found

    def _choose_pages(self, random: np.random.Generator) -> tuple[Pages, Pages]:
        """Scattered pages of any stride, or runs of them that are adjacent on both sides."""
        page_bytes = self.page_bytes
        if self.whole:
            only = np.zeros(1, np.int64)
            return self._place(only, 0, random), self._place(only, 0, random)
        count = int(random.integers(min(MAX_PAGES, MAX_TRANSFER_BYTES // page_bytes) + 1))
        kind = random.random()
        if kind < 0.35:
            runs = np.array_split(np.arange(count), int(random.integers(1, 2 + count // 4)))
            indices = np.concatenate([runs[place] for place in random.permutation(len(runs))])
            return (
                self._place(indices, page_bytes, random),
                self._place(indices, page_bytes, random),
            )
        span = count + int(random.integers(count + 1))
        to = random.permutation(span)[:count]
        gap = int(random.integers(1, 64)) if kind < 0.7 else 0
        return (
            self._place(to, page_bytes + gap, random),
            self._place(
                random.integers(span + 1, size=count), int(random.integers(2 * page_bytes)), random
            ),
        )

    def _place(self, indices: Places, stride: int, random: np.random.Generator) -> Pages:
        """Put pages anywhere within a part of a region that holds them."""
        view = random.random() < 0.5
        room = VIEW.stop - VIEW.start if view else MEMORY_BYTES
        need = (int(indices.max()) * int(stride) if indices.size else 0) + self.page_bytes
        start = int(random.integers(room - need + 1))
        stop = int(random.integers(start + need, room + 1))
        offset = int(random.integers(stop - start - need + 1))
        return Pages(view, slice(start, stop), offset, int(stride), indices.astype(np.int64))


async def _wait(transfer: Transfer) -> None:
    with suppress(FabricioError):  # `finish` asks for the outcome again
        await transfer


async def receive(side: Side, plans: list[Plan]) -> None:
    """Take the notifications of the other side's transfers, and its messages, in order."""
    for plan in plans:
        if plan.notify is not None:
            try:
                notification = await side.endpoint.recv()
            except RemoteTransferError:
                plan.was_refused = True
            else:
                assert notification == plan.notify
                assert plan.in_place(), f"{plan!r} was announced and its bytes are not there"
        if plan.message is not None:
            assert await side.endpoint.recv() == plan.message


async def run_wave(sides: tuple[Side, Side], random: np.random.Generator, *, may_fail: bool) -> int:
    """Plan transfers, run them all at once, check everything; returns how many pages they had."""
    for side in sides:
        side.begin_wave(random)
    plans = []
    for number in range(int(random.integers(1, MAX_TRANSFERS + 1))):
        near, far = sides if random.random() < 0.5 else sides[::-1]
        plan = Plan(number, near, far, random, may_fail=may_fail)
        if plan.claim():
            plans.append(plan)

    async with asyncio.timeout(15), asyncio.TaskGroup() as group:
        for side in sides:
            group.create_task(receive(side, [plan for plan in plans if plan.far is side]))
        for plan in plans:
            plan.start()
            group.create_task(plan.finish())
            if plan.message is not None:
                await plan.near.endpoint.send(plan.message)

    async with asyncio.timeout(15):
        for side in sides:
            await side.endpoint.flush()
        for plan in plans:
            assert plan.failed or not plan.was_refused, f"{plan!r} was refused, and has not failed"
            if plan.failed:
                plan.adopt()
            while not plan.in_place():
                assert not plan.confirm, f"{plan!r} was done and its bytes are not there"
                assert not plan.read, f"{plan!r} was done and its bytes are not there"
                await plan.near.endpoint.flush()  # unconfirmed: it comes when it comes
    for side in sides:
        side.check()
    return sum(plan.into.indices.size for plan in plans)


async def run_waves(
    near: Fabric, far: Fabric, name: str, waves: int, *, may_fail: bool = False
) -> int:
    """Connect two Fabrics and run so many waves between them.

    Args:
        near: connects.
        far: listens.
        name: what the random numbers and the notes of a failure come from, besides SEED.
        waves: how many; FABRICIO_MODEL_WAVES wins.
        may_fail: whether single operations fail.

    Returns: the most pages that were under way in a wave.
    """
    async with far.listen() as listener:
        to_far = await near.connect(far.address)
        to_near = await listener.accept()
    sides = Side(near, to_far), Side(far, to_near)
    for side, other in (sides, sides[::-1]):
        for memory in (side.source, side.target):
            await memory.open(side.fabric, side.endpoint, other.endpoint)
    deepest = 0
    for wave in range(WAVES or waves):
        random = np.random.default_rng([SEED, zlib.crc32(name.encode()), wave])
        try:
            deepest = max(deepest, await run_wave(sides, random, may_fail=may_fail))
        except BaseException as error:
            error.add_note(f"{name!r}, wave {wave} of FABRICIO_MODEL_SEED={SEED}")
            raise
    return deepest
