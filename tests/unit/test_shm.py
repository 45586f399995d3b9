"""Files in /dev/shm: whose they are, and which of them nobody needs any more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fabricio.address import Address
from fabricio.shm import process_of, remove_leftovers, shortage


def test_files_of_processes_that_are_gone_are_removed(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    gone = [tmp_path / f"{process.pid}:0:{number}" for number in range(2)]
    kept = [
        tmp_path / f"{os.getpid()}:0:0",
        tmp_path / "1:0:0",
        tmp_path / f"{process.pid}:0",
        tmp_path / f"sem.{process.pid}:0:0",
    ]
    for path in (*gone, *kept):
        path.touch()
    assert remove_leftovers(tmp_path) == 2
    assert sorted(tmp_path.iterdir()) == sorted(kept)
    assert remove_leftovers(tmp_path / "nowhere") == 0


def test_a_shortage_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("fabricio.shm.FILE_BYTES", 0)
    assert shortage() == ""
    monkeypatch.setattr("fabricio.shm.FILE_BYTES", 1 << 60)
    assert "--shm-size" in shortage()
    monkeypatch.setattr("fabricio.shm.FOLDER", tmp_path / "nowhere")
    assert "cannot be used" in shortage()


def test_processes_are_known_by_addresses_of_shm_alone() -> None:
    def address(provider: str, lane: bytes) -> Address:
        return Address(provider, bytes(16), (lane,))

    assert process_of(address("shm", b"fi_shm://4711:0:0\0")) == 4711
    assert process_of(address("tcp", b"fi_shm://4711:0:0\0")) is None
    assert process_of(address("shm", b"my own name\0")) is None
    assert process_of(address("shm", f"fi_shm://{os.getpid()}:0:1".encode())) is None
