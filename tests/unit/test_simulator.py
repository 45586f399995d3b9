"""How libfabric is led to the simulated NICs: nothing that was configured before is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabricio._ffi.simulator import default_folder, provider_filter, provider_path

OURS = Path("/ours")
DEFAULT = Path("/lib/libfabric")


@pytest.mark.parametrize(
    ("current", "expected"),
    [
        (None, "/lib/libfabric:/ours"),
        ("", "/lib/libfabric:/ours"),
        ("/theirs", "/theirs:/ours"),
        ("/theirs:/more", "/theirs:/more:/ours"),
        ("/ours", "/ours"),
        ("/theirs:/ours:/more", "/theirs:/ours:/more"),
        ("@", "@/lib/libfabric:/ours"),
        ("@/theirs", "@/theirs:/ours"),
        ("+/theirs/libx-fi.so", "+/theirs/libx-fi.so:/lib/libfabric:/ours"),
        ("+/x-fi.so:/theirs", "+/x-fi.so:/theirs:/ours"),
    ],
)
def test_path_is_added_to(current: str | None, expected: str) -> None:
    assert provider_path(current, DEFAULT, OURS) == expected


def test_path_without_a_default() -> None:
    assert provider_path(None, None, OURS) == "/ours"
    assert provider_path("/theirs", None, OURS) == "/theirs:/ours"


@pytest.mark.parametrize(
    ("current", "expected"),
    [
        (None, None),
        ("", ""),
        ("tcp", "tcp,sim"),
        ("tcp,shm", "tcp,shm,sim"),
        ("sim", "sim"),
        ("tcp,SIM", "tcp,SIM"),
        ("^tcp", "^tcp"),
        ("^tcp,sim,shm", "^tcp,shm"),
        ("^sim", None),
    ],
)
def test_filter_admits_the_provider(current: str | None, expected: str | None) -> None:
    assert provider_filter(current) == expected


def test_default_folder(tmp_path: Path) -> None:
    library = tmp_path / "libfabric.so.1"
    assert default_folder(library) is None
    (tmp_path / "libfabric").mkdir()
    assert default_folder(library) == tmp_path / "libfabric"
