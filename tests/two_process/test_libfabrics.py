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
CASES = [("default", "tcp;ofi_rxm"), ("system", "tcp;ofi_rxm"), ("system", "shm")]


def run(library: str, provider: str, *command: str) -> None:
    environment = dict(os.environ)
    if library == "system":
        if not SYSTEM:
            pytest.skip("no libfabric is installed on this system")
        environment["FABRICIO_LIBFABRIC"] = str(SYSTEM[0])
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False
    )
    if "NoProviderError" in done.stderr or "is not usable here" in done.stderr:
        pytest.skip(f"the {library} libfabric has no {provider}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("read", [False, True], ids=["write", "read"])
@pytest.mark.parametrize(("library", "layers"), CASES)
def test_two_processes(library: str, layers: str, read: bool) -> None:
    options = ["--provider", layers, "--pages", "500", "--page-bytes", "10000", "--repeat", "4"]
    run(library, layers, str(DEMO), *options, *(["--read"] if read else []))


@pytest.mark.parametrize(("library", "layers"), CASES)
def test_conformance(library: str, layers: str) -> None:
    run(library, layers, str(CONFORMANCE), layers)
