"""Two Fabrics on simulated NICs, whole and broken ones: shown by processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("simulated.py")
LIMIT_S = 18.0


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
        "too_late",
        "manners",
    ],
)
def test_simulated_nics(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", str(PROGRAMS), program],
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.stderr
