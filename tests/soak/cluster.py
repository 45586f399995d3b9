"""The processes of a soak and their peers, as the supervisor sees them."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabricio import Address
from tests.soak.verdict import Harm, Party, is_expected

_ROOT = Path(__file__).parents[2]
_SHM = Path("/dev/shm")
_ASK_LIMIT_S = 30.0
_LINE_BYTES = 1 << 20


@dataclass
class Member:
    """A peer: who, where, and how it stands."""

    tag: int
    worker: Process
    party: Party
    address: str = ""
    present: bool = False
    over: bool = False


@dataclass
class Process:
    """A worker process.

    Attributes:
        answers: its latest answer to each question, by the name of the event.
        stopped: whether it is now.
        killed: whether it was.
        ended: whether it has said that it ends well.
    """

    process: asyncio.subprocess.Process
    capacity: int
    harms: list[Harm] = field(default_factory=list)
    answers: dict[str, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)
    stopped: bool = False
    killed: bool = False
    ended: bool = False
    reader: asyncio.Task[None] | None = None

    def tell(self, **command: object) -> None:
        """Send a command, unless it has gone."""
        if not self.killed:
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(command).encode() + b"\n")

    async def ask(self, op: str, answer: str) -> dict[str, Any]:
        """Send a question and wait for the answer; one at a time."""
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.answers[answer] = future
        self.tell(op=op)
        async with asyncio.timeout(_ASK_LIMIT_S):
            return await future


class Cluster:
    """Starts, hurts and ends processes; follows their peers; judges what they report.

    Attributes:
        troubles: errors that nothing explains.
        expected: how many errors of each kind were explained.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self.members: dict[int, Member] = {}
        self.processes: list[Process] = []
        self.troubles: list[str] = []
        self.expected: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self._settings = settings
        self._incarnations: dict[str, Member] = {}
        self._pids: list[int] = []
        self._began_s = time.monotonic()

    async def start(self, capacity: int) -> Process:
        """Start a process that is to have so many peers."""
        settings = {**self._settings, "uvloop": bool(len(self._pids) % 2)}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.soak.worker", json.dumps(settings)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=_ROOT,
            limit=_LINE_BYTES,
        )
        self._pids.append(process.pid)
        worker = Process(process, capacity)
        worker.reader = asyncio.create_task(self._read(worker))
        worker.reader.add_done_callback(self._reader_ended)
        self.processes.append(worker)
        return worker

    def living(self, worker: Process | None = None) -> list[Member]:
        """Peers that are there or come: of one process, or all."""
        return [
            member
            for member in self.members.values()
            if not member.over
            and member.party.left_s is None
            and (worker is None or member.worker is worker)
        ]

    def join(self, worker: Process) -> None:
        """Have a process open one more peer."""
        tag = len(self.members)
        self.members[tag] = Member(tag, worker, Party(worker.harms))
        worker.tell(op="join", tag=tag)

    def leave(self, member: Member) -> None:
        """Have a peer leave in order."""
        member.party.left_s = time.monotonic()
        member.worker.tell(op="leave", tag=member.tag)
        self._tell_gone(member)
        self.counts["peers that left"] += 1

    async def kill(self, worker: Process) -> None:
        """Kill a process and all its peers, stopped or not."""
        worker.harms.append(Harm(time.monotonic()))
        worker.killed = True
        self.processes.remove(worker)
        worker.process.kill()
        await worker.process.wait()
        for member in self.members.values():
            if member.worker is worker and not member.over:
                member.over = True
                self._tell_gone(member)
        self.counts["processes killed"] += 1

    async def stop(self, worker: Process, how_long_s: float) -> None:
        """Stop a process for a while, unless it is killed meanwhile."""
        harm = Harm(time.monotonic())
        worker.harms.append(harm)
        worker.stopped = True
        worker.process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(how_long_s)
        finally:
            worker.stopped = False
            if worker.process.returncode is None:
                worker.process.send_signal(signal.SIGCONT)
            harm.ended_s = time.monotonic()
        self.counts["processes stopped"] += 1

    async def what_is_missing(self) -> list[str]:
        """Say which peers are not there, or not connected to every other."""
        members = self.living()
        found = [f"peer {member.tag} has not joined" for member in members if not member.present]
        found += [
            f"peer {member.tag} has not left"
            for member in self.members.values()
            if member.party.left_s is not None and not member.over
        ]
        for worker in self.processes:
            if worker.process.returncode is not None:
                continue  # its reader says so
            links = (await worker.ask("status", "status"))["links"]
            found += [
                f"peer {tag} has {count} connections, not {len(members) - 1}"
                for tag, count in links.items()
                if count != len(members) - 1
            ]
        return found

    async def end(self, limit_s: float) -> None:
        """Have all processes close everything and end well."""
        for worker in self.processes:
            for member in self.living(worker):
                member.party.left_s = time.monotonic()
        for worker in self.processes:
            worker.tell(op="end")
        readers = [worker.reader for worker in self.processes if worker.reader is not None]
        await asyncio.wait(readers, timeout=limit_s)
        for worker in self.processes:
            if worker.process.returncode is None:
                self.trouble(f"process {worker.process.pid} did not end within {limit_s:.0f} s")

    async def sweep(self) -> None:
        """End what still runs and remove what killed processes have left in /dev/shm."""
        for worker in self.processes:
            if worker.process.returncode is None:
                worker.process.kill()
        async with asyncio.timeout(_ASK_LIMIT_S):
            for worker in self.processes:
                await worker.process.wait()
        for path in self.shm_files():
            path.unlink(missing_ok=True)

    def shm_files(self) -> list[Path]:
        """Files in /dev/shm of processes that this supervisor has started."""
        return [path for pid in self._pids for path in _SHM.glob(f"{pid}:*")]

    def trouble(self, text: str) -> None:
        """Take down what fails the run."""
        self.troubles.append(f"{time.monotonic() - self._began_s:7.2f} s: {text}")

    async def _read(self, worker: Process) -> None:
        assert worker.process.stdout is not None
        while line := await worker.process.stdout.readline():
            with suppress(json.JSONDecodeError):  # the last line of a killed process
                self._take(worker, json.loads(line))
        status = await worker.process.wait()
        if not worker.killed and (status or not worker.ended):
            self.trouble(
                f"process {worker.process.pid} ended with status {status}; its errors are above"
            )

    def _reader_ended(self, reader: asyncio.Task[None]) -> None:
        if not reader.cancelled() and (error := reader.exception()) is not None:
            self.trouble(f"a process wrote what cannot be understood: {error!r}")

    def _take(self, worker: Process, event: dict[str, Any]) -> None:
        match event:
            case {"event": "trouble"}:
                self._judge(worker, event)
            case {"event": "joined", "tag": tag, "address": address}:
                self._joined(self.members[tag], address)
            case {"event": "left", "tag": tag}:
                self.members[tag].over = True
            case {"event": "ended", "counts": counts}:
                self.counts.update(counts)
                worker.ended = True
            case {"event": name}:
                if not worker.answers[name].done():
                    worker.answers[name].set_result(event)

    def _joined(self, member: Member, address: str) -> None:
        """Connect it to all who are there; who comes later connects to it."""
        if member.over:
            return
        others = [
            [other.tag, other.address]
            for other in self.living()
            if other.present and other is not member
        ]
        member.address, member.present = address, True
        self._incarnations[Address.parse(address).incarnation.hex()] = member
        member.worker.tell(op="connect", tag=member.tag, to=others)
        self.counts["peers that joined"] += 1

    def _tell_gone(self, member: Member) -> None:
        for worker in self.processes:
            worker.tell(op="gone", tag=member.tag)

    def _judge(self, worker: Process, event: dict[str, Any]) -> None:
        about = self._incarnations.get(event["about"])
        parties = [Party(worker.harms)]
        if event["tag"] is not None:
            parties = [self.members[event["tag"]].party]
        if about is not None:
            parties.append(about.party)
        if event["doing"] != "run" and is_expected(event["kind"], event["at"], parties):
            self.expected[event["kind"]] += 1
            return
        if worker.killed:
            return  # it had no time to say how things stood
        self.trouble(
            f"{event['doing']}, process {worker.process.pid}, peer {event['tag']} with "
            f"{'no peer' if about is None else about.tag}: {event['kind']}: {event['text']}"
        )
