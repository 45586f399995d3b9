"""A peer in a process of its own, and a connection to it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import uvloop

from benchmarks.lab import open_lab
from fabricio import Endpoint, Fabric, RemoteRegion

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from benchmarks.lab import Lab

    OpenPeer = Callable[..., AbstractAsyncContextManager["Peer"]]
    OpenLink = Callable[..., AbstractAsyncContextManager[tuple["Link", "Peer"]]]

# What `ip` and `tc` say in a container without rights, or on a kernel without htb.
_UNABLE = ("not permitted", "Permission denied", "not supported", "qdisc kind is unknown")

_SCRIPT = Path(__file__).with_name("peer.py")
_SHM = Path("/dev/shm")


@pytest.fixture(autouse=True)
async def clean(loop_errors_refused: None) -> None:
    """Every test here must leave nothing behind."""


@contextmanager
def lab_or_skip(links: int, mbit_per_s: int) -> Iterator[Lab]:
    """Make two hosts of network namespaces; skip the test where that is not possible."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    with ExitStack() as stack:
        try:
            lab = stack.enter_context(open_lab(links, mbit_per_s))
        except FileNotFoundError:
            pytest.skip("there is no `ip` or no `tc` (iproute2)")
        except RuntimeError as error:
            if any(words in str(error) for words in _UNABLE):
                pytest.skip(f"this system allows no such links: {error}")
            raise
        yield lab


@dataclass
class Peer:
    """A process of its own that runs peer.py, on the other kind of loop than this one."""

    process: asyncio.subprocess.Process
    address: str

    def wake(self) -> None:
        """End its answer to "wait"."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")

    async def end(self, signal_number: int | None = None) -> int:
        """End it by a signal, or well; returns its exit status, once it has gone."""
        if signal_number is not None:
            self.process.send_signal(signal_number)
        else:
            assert self.process.stdin is not None
            self.process.stdin.close()
        return await self.process.wait()


@dataclass
class Link:
    """A connection of this process to a peer's, at `address`."""

    address: str
    fabric: Fabric
    endpoint: Endpoint

    async def ask(self, **question: object) -> dict[str, Any]:
        """Put a question, see peer.py."""
        await self.endpoint.send(question)
        answer = await self.endpoint.recv()
        assert isinstance(answer, dict)
        return answer

    async def remote(self, length_bytes: int, seed: int | None = None) -> RemoteRegion:
        """Have the peer make its memory, zeros or random bytes."""
        region = (await self.ask(op="region", bytes=length_bytes, seed=seed))["region"]
        assert isinstance(region, RemoteRegion)
        return region

    async def holds(self, start: int, expected: bytes) -> bool:
        """Whether the peer's memory holds that from `start` on, by its hash."""
        digest = hashlib.sha256(expected).hexdigest()
        stop = start + len(expected)
        return bool((await self.ask(op="hash", start=start, stop=stop))["sha256"] == digest)

    @asynccontextmanager
    async def to(self, address: str) -> AsyncIterator[Link]:
        """A connection of the same Fabric to another peer."""
        async with await self.fabric.connect(address) as endpoint:
            yield Link(address, self.fabric, endpoint)

    async def meets(self, address: str) -> None:
        """The same Fabric works with another peer."""
        async with self.to(address) as other:
            await other.works()

    async def works(self) -> None:
        """A message and a write still reach the peer."""
        page = np.random.default_rng(3).integers(256, size=70_000, dtype=np.uint8)
        remote = await self.remote(100_000)
        async with await self.fabric.register(page) as region:
            assert await self.endpoint.write(region, remote[10_000:]) == len(page)
        assert await self.holds(10_000, page.tobytes())
        assert await self.holds(0, bytes(10_000))
        assert await self.holds(80_000, bytes(20_000))


@pytest.fixture
def started() -> Iterator[list[int]]:
    """Process ids of peers. What those that were killed have left in /dev/shm is removed."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        for left in _SHM.glob(f"{pid}:*"):
            left.unlink()


@pytest.fixture(scope="session")
def shared_peers() -> Iterator[dict[tuple[str, str], str]]:
    """Addresses of peers that serve all tests which leave them as they are, by their argument."""
    arguments = [(provider, loop) for provider in ("tcp", "shm") for loop in ("asyncio", "uvloop")]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, str(_SCRIPT), *pair],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for pair in arguments
        ]
        yield dict(zip(arguments, map(_first_line, processes), strict=True))
        assert [_end(process) for process in processes] == [0] * len(processes)


@pytest.fixture
async def shared_peer(provider: str, shared_peers: dict[tuple[str, str], str]) -> str:
    """The address of a peer that is there for all tests."""
    return shared_peers[provider, _other_loop()]


@pytest.fixture
def open_peer(provider: str, started: list[int]) -> OpenPeer:
    """Start a peer, which may have a secret, as a context; at its end it must end well, unless the
    test has ended it.
    """

    @asynccontextmanager
    async def open_one(secret: bytes | None = None) -> AsyncIterator[Peer]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(_SCRIPT), provider, _other_loop()),
            *([] if secret is None else [secret.decode()]),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        started.append(process.pid)
        assert process.stdout is not None
        try:
            address = (await process.stdout.readline()).decode().strip()
            assert address, "the peer has ended; its errors are above"
            peer = Peer(process, address)
            yield peer
            if process.returncode is None:
                assert await peer.end() == 0
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()  # closes the pipes

    return open_one


@pytest.fixture
def open_link(open_peer: OpenPeer, options: dict[str, Any]) -> OpenLink:
    """Start a peer and connect to it, as a context, with options of the Fabric here."""

    @asynccontextmanager
    async def open_one(**overrides: Any) -> AsyncIterator[tuple[Link, Peer]]:  # noqa: ANN401
        async with open_peer() as peer, connect_to(peer.address, options | overrides) as link:
            yield link, peer

    return open_one


@pytest.fixture
async def link(options: dict[str, Any], shared_peer: str) -> AsyncIterator[Link]:
    """A connection with default options to a peer that is there for all tests."""
    async with connect_to(shared_peer, options) as opened:
        yield opened


@asynccontextmanager
async def connect_to(address: str, options: dict[str, Any]) -> AsyncIterator[Link]:
    """Connect a Fabric of this process to a peer's address, as a context."""
    async with Fabric(**options) as fabric, await fabric.connect(address) as endpoint:
        yield Link(address, fabric, endpoint)


def _other_loop() -> str:
    return "asyncio" if isinstance(asyncio.get_running_loop(), uvloop.Loop) else "uvloop"


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _end(process: subprocess.Popen[str]) -> int:
    assert process.stdin is not None
    process.stdin.close()
    return process.wait()
