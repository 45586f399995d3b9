"""What the system has runs out: whoever asks for more is told, and nobody else notices."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("scarce.py")
LIMIT_S = 18.0
# Of a mount namespace of its own: room for an endpoint, as libfabric counts (13.4 MB a core).
SHM_MB = 14 * (os.cpu_count() or 1)


def may_mount() -> bool:
    """Whether this process may make a mount namespace and mount there."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /dev/shm"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.stderr


def test_descriptors(shared_peers: dict[tuple[str, str], str]) -> None:
    run(sys.executable, str(PROGRAMS), "descriptors", shared_peers["tcp", "asyncio"])


def test_descriptors_where_a_peer_joins() -> None:
    run(sys.executable, str(PROGRAMS), "no_descriptors_to_join_with")


@pytest.mark.parametrize("software", ["tcp", "shm"])
def test_locked_memory(shared_peers: dict[tuple[str, str], str], software: str) -> None:
    address = shared_peers[software, "asyncio"]
    run(sys.executable, str(PROGRAMS), "locked_memory", software, address)


@pytest.mark.skipif(not may_mount(), reason="this process may not mount anything")
def test_shared_memory() -> None:
    mount = f"mount -t tmpfs -o size={SHM_MB}m tmpfs /dev/shm"
    run("unshare", "-m", "sh", "-c", f"{mount} && exec {sys.executable} {PROGRAMS} shm")
