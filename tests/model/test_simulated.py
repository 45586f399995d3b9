"""The model on simulated NICs: out of order, refused, unequal, with NICs that fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.model.simulated import SETTINGS

PROGRAM = Path(__file__).with_name("simulated.py")
LIMIT_S = 55.0


@pytest.mark.timeout(60)
@pytest.mark.parametrize("setting", SETTINGS)
def test_every_byte(setting: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", str(PROGRAM), setting],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.stderr
