"""Programs that end while transfers run: soon, with the usual status, and nothing is left."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from array import array
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fabricio import ClosedResourceError, PeerLostError
from tests.loopback.conftest import SLOW

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabricio import Transfer
    from tests.two_process.conftest import OpenLink, OpenPeer

ROOT = Path(__file__).parents[2]
LIMIT_S = 15.0  # a backstop: a program that hangs is found by it
PAGES, PAGE_BYTES = 1 << 20, 8
ALL_PAGES = array("q", range(PAGES))

loops = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])

STRICT = ("-X", "dev", "-W", "error")
# Exit status of each program; of those that leave Fabrics open, ResourceWarnings come on stderr.
ORDERLY = {"raises": 1, "exits": 3, "one_fails": 3}
LEFT_OPEN = {"raises_open": 1, "exits_open": 3, "loop_closed": 0, "dropped": 0}
LEFT_RUNNING = {"loop_stopped": 0, "daemon": 0}


@contextmanager
def program(name: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a program; its transfers are under way."""
    with subprocess.Popen(
        [sys.executable, *STRICT, "-m", "tests.two_process.endings", name, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in the background may have it ignored.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.default_int_handler),
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "under way\n", process.communicate()[1]
            yield process
        finally:
            process.kill()


def end(process: subprocess.Popen[str]) -> str:
    """Let a program go on to its end; return what it said on stderr."""
    said, complaints = process.communicate("\n", timeout=LIMIT_S)
    assert said == ""
    for name in os.listdir("/dev/shm"):
        assert str(process.pid) not in re.findall(r"\d+", name)
    return complaints


@loops
@pytest.mark.parametrize("name", ORDERLY)
def test_an_orderly_end(name: str, loop: str, provider: str) -> None:
    with program(name, loop, provider) as process:
        complaints = end(process)
    assert process.returncode == ORDERLY[name]
    if name == "raises":
        assert complaints.count("Traceback") == 1
        assert complaints.endswith("Mine\n")
    else:
        assert complaints == ""


@loops
@pytest.mark.parametrize("name", LEFT_OPEN)
def test_nobody_closes(name: str, loop: str, provider: str) -> None:
    with program(name, loop, provider) as process:
        complaints = end(process)
    assert process.returncode == LEFT_OPEN[name]
    assert complaints.count("ResourceWarning: <Fabric") == 2
    assert complaints.count("Traceback") == 2 + (name == "raises_open")


@loops
@pytest.mark.parametrize("name", LEFT_RUNNING)
def test_the_loop_is_left_in_the_middle(name: str, loop: str, provider: str) -> None:
    with program(name, loop, provider) as process:
        end(process)
    assert process.returncode == LEFT_RUNNING[name]


@loops
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c(times: int, loop: str, provider: str) -> None:
    with program("waits", loop, provider) as process:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        for _ in range(times):
            process.send_signal(signal.SIGINT)
        complaints = end(process)
    assert process.returncode == -signal.SIGINT
    assert complaints.endswith("KeyboardInterrupt\n")
    for noise in ("never retrieved", "Exception ignored", "ResourceWarning", "Error:"):
        assert noise not in complaints


@pytest.mark.parametrize("name", ["exits", "exits_open", "raises"])
async def test_with_a_stopped_peer(name: str, provider: str, open_peer: OpenPeer) -> None:
    async with open_peer() as peer:

        def end_while_stopped() -> int:
            with program(name, "asyncio", provider, peer.address) as process:
                peer.process.send_signal(signal.SIGSTOP)
                try:
                    end(process)
                finally:
                    peer.process.send_signal(signal.SIGCONT)
            return process.returncode

        assert await asyncio.to_thread(end_while_stopped) == (ORDERLY | LEFT_OPEN)[name]


@pytest.mark.parametrize("how", ["fabric", "endpoint first", "cancelled"])
async def test_closing_with_a_stopped_peer(open_link: OpenLink, how: str) -> None:
    async with open_link(**SLOW, peer_timeout_s=0.5) as (link, peer):
        region = await link.fabric.register(memory := bytearray(PAGES * PAGE_BYTES))
        remote = await link.remote(len(memory))
        where = (region, ALL_PAGES, remote, ALL_PAGES)
        transfers: list[Transfer] = [
            link.endpoint.write_pages(*where, page_bytes=PAGE_BYTES, notify=1),
            link.endpoint.read_pages(*where, page_bytes=PAGE_BYTES),
        ]
        while not all(transfer.pages_done for transfer in transfers):
            await link.endpoint.flush()
        peer.process.send_signal(signal.SIGSTOP)
        try:
            async with asyncio.timeout(LIMIT_S):
                if how == "endpoint first":
                    await link.endpoint.aclose()
                closing = asyncio.create_task(link.fabric.aclose())
                await asyncio.sleep(0)
                if how == "cancelled":
                    closing.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await closing
                else:
                    await closing
            for transfer in transfers:
                with pytest.raises((ClosedResourceError, PeerLostError)):
                    await transfer
            memory.append(1)
        finally:
            peer.process.send_signal(signal.SIGCONT)
