"""The system's libfabric beside the default one, and providers in layers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "random_fill.py"
CONFORMANCE = Path(__file__).with_name("conformance.py")

SYSTEM = sorted(Path("/usr/lib").glob("*-linux-gnu/libfabric.so.1"))
CASES = [
    ("default", "tcp;ofi_rxm"),
    ("system", "tcp;ofi_rxm"),
    ("system", "tcp"),
    ("system", "shm"),
]


def environment(library: str) -> dict[str, str]:
    """The environment that has a process load that libfabric; skips where there is none."""
    result = dict(os.environ)
    if library == "system":
        if not SYSTEM:
            pytest.skip("no libfabric is installed on this system")
        result["FABRICIO_LIBFABRIC"] = str(SYSTEM[0])
    return result


def run(library: str, provider: str, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        env=environment(library),
        capture_output=True,
        text=True,
        check=False,
    )
    if "fabricio needs" in done.stderr and "NoLibfabricError" in done.stderr:
        pytest.skip(f"the {library} libfabric is too old")
    # Every libfabric has tcp, in one form or the other; shm can be left out.
    if provider == "shm" and "NoProviderError" in done.stderr:
        pytest.skip(f"the {library} libfabric has no {provider}")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("read", [False, True], ids=["write", "read"])
@pytest.mark.parametrize(("library", "layers"), CASES)
def test_two_processes(library: str, layers: str, read: bool) -> None:
    options = ["--provider", layers, "--pages", "500", "--page-bytes", "10000", "--repeat", "4"]
    run(library, layers, str(DEMO), *options, *(["--read"] if read else []))


@pytest.mark.parametrize(("library", "layers"), CASES)
def test_conformance(library: str, layers: str) -> None:
    path, version, opened = run(library, layers, str(CONFORMANCE), layers).splitlines()
    if library == "system":
        assert os.path.samefile(path, SYSTEM[0])
    # Version 1 has tcp for reliable datagrams under a layer only, which is then chosen.
    layered = layers == "tcp" and version.startswith("1.")
    assert opened == ("tcp;ofi_rxm" if layered else layers)
