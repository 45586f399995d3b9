"""A soak: what is done to whom and when, what is sampled, and what came of it.

It goes in turns. In each a few random things happen, some seconds apart: a peer leaves, one joins,
a process is stopped for a moment or for longer than the peers' timeout, or is killed. Then all
places are filled again. Once each peer is connected to each, the survivor is sampled.
"""

from __future__ import annotations

import asyncio
import math
import time
import traceback
from random import Random
from typing import TYPE_CHECKING, Any

from rich.table import Table

from tests.soak.cluster import Cluster, Process
from tests.soak.verdict import HARMLESS_STOP_S, PEER_TIMEOUT_S, Growth, Samples

if TYPE_CHECKING:
    from rich.console import Console

PROCESSES = 5
ROUNDS_PER_S = 250
MIN_PAUSE_S = 0.02

MEAN_CALM_S = 1.5
ACTS_PER_TURN = (2, 5)
WHOLE_LIMIT_S = 90.0
END_LIMIT_S = 60.0
OVERTIME_S = 200.0  # of a run in all
POLL_S = 0.25

WARM_UP = 0.2  # of the time, but at least
MIN_WARM_UP_S = 60.0

# What the survivor may hold more of in the end, by MAX_GROWTH. The rest is shown only.
BOUNDED = ("RSS in bytes", "descriptors", "threads", "channels", "files in /dev/shm")
# Of the statistics of all peers that left or stayed: what no harm to others explains.
NEVER_COUNTED = ("malformed_frames", "authentication_failures")


class Soak:
    """One run.

    Attributes:
        failures: what was wrong; empty after a clean run.
    """

    def __init__(self, length_s: float, peers: int, provider: str, seed: int) -> None:
        self.failures: list[str] = []
        self._length_s = length_s
        self._peers = peers
        self._provider = provider
        self._random = Random(seed)
        self._seed = seed
        self._samples = Samples()
        self._turns = 0
        self._stops: set[asyncio.Task[None]] = set()
        fabric: dict[str, Any] = {"provider": provider, "peer_timeout_s": PEER_TIMEOUT_S}
        if provider == "tcp":
            fabric["source"] = "127.0.0.1"
        pause_s = max(MIN_PAUSE_S, peers * (peers - 1) / ROUNDS_PER_S)
        self._cluster = Cluster({"fabric": fabric, "seed": seed, "pause_s": pause_s})

    async def run(self) -> None:
        """Do all of it; leaves no process and no file behind."""
        cluster = self._cluster
        began_s = time.monotonic()
        warm_s = began_s + max(MIN_WARM_UP_S, WARM_UP * self._length_s)
        if self._length_s < 2 * MIN_WARM_UP_S:
            warm_s = math.inf  # too short a run to tell of growth
        try:
            async with asyncio.timeout(self._length_s + OVERTIME_S):
                survivor = await cluster.start(1)
                places = self._places()
                for capacity in places:
                    await cluster.start(capacity)
                await self._fill(places)
                while time.monotonic() < began_s + self._length_s and not cluster.troubles:
                    await self._turn(survivor)
                    await self._fill(places)
                    if time.monotonic() >= warm_s:
                        await self._sample(survivor)
                    self._turns += 1
                await cluster.end(END_LIMIT_S)
        except TimeoutError:
            cluster.trouble(f"something took too long:\n{traceback.format_exc()}")
        finally:
            for stop in list(self._stops):
                stop.cancel()
            await asyncio.gather(*self._stops, return_exceptions=True)
            await cluster.sweep()
        self._sum_up()

    async def _sample(self, survivor: Process) -> None:
        held = (await survivor.ask("sample", "sample"))["held"]
        self._samples.add({**held, "files in /dev/shm": len(self._cluster.shm_files())})

    def _places(self) -> list[int]:
        """How many peers each process has, beside the survivor."""
        count = min(PROCESSES, self._peers - 1)
        whole, rest = divmod(self._peers - 1, count)
        return [whole + (index < rest) for index in range(count)]

    async def _turn(self, survivor: Process) -> None:
        for _ in range(self._random.randint(*ACTS_PER_TURN)):
            await asyncio.sleep(self._random.expovariate(1 / MEAN_CALM_S))
            others = [each for each in self._cluster.processes if each is not survivor]
            if others:
                await self._act(self._random.choice(others))

    async def _act(self, worker: Process) -> None:
        cluster = self._cluster
        act = self._random.choices(
            ("leave", "join", "kill", "stop", "blink"), weights=(4, 2, 2, 1, 2)
        )[0]
        members = [member for member in cluster.living(worker) if member.present]
        if act == "leave" and members:
            cluster.leave(self._random.choice(members))
        elif act == "join" and len(cluster.living(worker)) < worker.capacity:
            cluster.join(worker)
        elif act == "kill":
            await cluster.kill(worker)
        elif act in ("stop", "blink") and not worker.stopped:
            longest_s = 2.5 * PEER_TIMEOUT_S if act == "stop" else 0.8 * HARMLESS_STOP_S
            how_long_s = self._random.uniform(longest_s / 5, longest_s)
            stop = asyncio.create_task(cluster.stop(worker, how_long_s))
            self._stops.add(stop)
            stop.add_done_callback(self._stops.discard)

    async def _fill(self, places: list[int]) -> None:
        """Have all peers there again, and all connected."""
        cluster = self._cluster
        missing = list(places)
        for worker in cluster.processes[1:]:
            missing.remove(worker.capacity)
        for capacity in missing:
            await cluster.start(capacity)
        for worker in cluster.processes:
            for _ in range(worker.capacity - len(cluster.living(worker))):
                cluster.join(worker)
        if self._stops:
            await asyncio.wait(self._stops)
        try:
            async with asyncio.timeout(WHOLE_LIMIT_S):
                while not cluster.troubles and await cluster.what_is_missing():  # noqa: ASYNC110
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            for text in await cluster.what_is_missing():
                cluster.trouble(f"after {WHOLE_LIMIT_S:.0f} s {text}")

    def _sum_up(self) -> None:
        self.failures += self._cluster.troubles
        if not self._cluster.counts["rounds"]:
            self.failures.append("no round was completed")
        for name, growth in self._samples.growth().items():
            if name in BOUNDED and growth.is_too_much:
                self.failures.append(
                    f"the survivor's {name} grew by {growth.ratio:.1%}: "
                    f"{growth.first:,.0f} to {growth.last:,.0f}"
                )
        for name in NEVER_COUNTED:
            if count := self._cluster.counts[f"fabric: {name}"]:
                self.failures.append(f"{name}: {count:,}, and there should be none")

    def print(self, console: Console) -> None:
        """Show what was done, what was explained, how the survivor fared, and what was wrong."""
        table = Table(title=f"Soak over {self._provider}, {self._peers} peers, seed {self._seed}")
        table.add_column("what")
        table.add_column("count", justify="right")
        table.add_row("turns", f"{self._turns:,}")
        for name, count in sorted(self._cluster.counts.items()):
            table.add_row(name, f"{count:,}")
        table.add_section()
        for name, count in sorted(self._cluster.expected.items()):
            table.add_row(f"{name}, provoked", f"{count:,}")
        console.print(table)
        if self._samples.held:
            console.print(_growth_table(self._samples.growth()))
        for failure in self.failures:
            console.print(f"WRONG {failure}", markup=False, highlight=False, soft_wrap=True)
        console.print("Failed." if self.failures else "Clean.")


def _growth_table(growth: dict[str, Growth]) -> Table:
    table = Table(title="The survivor after warm-up: medians of the first and last quarter")
    for title in ("what", "samples", "first", "last", "growth"):
        table.add_column(title, justify="left" if title == "what" else "right")
    for name, each in growth.items():
        shown = f"{each.ratio:+.1%}" + ("" if name in BOUNDED else " (not bounded)")
        table.add_row(name, str(each.count), f"{each.first:,.0f}", f"{each.last:,.0f}", shown)
    return table
