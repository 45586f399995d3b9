"""Two Fabrics on simulated NICs, whole and broken ones: shown by processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).with_name("simulated.py")
LIMIT_S = 18.0
SYSTEM = sorted(Path("/usr/lib").glob("*-linux-gnu/libfabric.so.1"))


def run(program: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", str(PROGRAMS), program],
        check=False,
        capture_output=True,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.stderr


@pytest.mark.parametrize(
    "program",
    [
        "order",
        "failure",
        "storm",
        "down",
        "silent",
        "overrun",
        "pace",
        "virtual_clock",
        "statistics",
        "lanes",
        "lane_down",
        "path_down",
        "confirmation_lost",
        "cancelled_path",
        "slow_lane",
        "lane_errors",
        "locked_memory",
        "too_late",
        "manners",
    ],
)
def test_simulated_nics(program: str) -> None:
    run(program)


@pytest.mark.skipif(not SYSTEM, reason="no libfabric is installed on this system")
@pytest.mark.parametrize("program", ["order", "too_late", "manners"])
def test_the_systems_libfabric(program: str) -> None:
    run(program, FABRICIO_LIBFABRIC=str(SYSTEM[0]))


def test_a_p5_host() -> None:
    # The fixture is the machine's hardware, and its CPUs are not those of this one.
    xml = Path(__file__).parents[1] / "data" / "p5.xml"
    run("p5", HWLOC_XMLFILE=str(xml), HWLOC_HIDE_ERRORS="2")
