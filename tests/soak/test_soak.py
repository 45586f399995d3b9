"""A short soak, and what would make a long one fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.verdict import GRACE_S, HARMLESS_STOP_S, Harm, Party, Samples, is_expected

ROOT = Path(__file__).parents[2]
MINUTES, PEERS = 0.2, 8


@pytest.mark.timeout(180)  # joins, stops and ends of other processes: each is bounded by itself
def test_a_short_soak_is_clean(provider: str) -> None:
    run = subprocess.run(
        [
            *(sys.executable, "-m", "tests.soak", "--provider", provider, "--seed", "3"),
            *("--minutes", str(MINUTES), "--peers", str(PEERS)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Clean." in run.stdout
    assert "processes killed" in run.stdout
    assert not run.stderr


def test_an_error_is_expected_only_of_a_peer_that_was_hurt() -> None:
    harm = Harm(10.0, 10.0 + 2 * HARMLESS_STOP_S)
    assert is_expected("PeerLostError", 12.0, [Party([]), Party([harm])])
    assert not is_expected("PeerLostError", 12.0, [Party([]), Party([])])
    assert not is_expected("PeerLostError", 9.0, [Party([harm])])
    assert not is_expected("PeerLostError", 12.0 + GRACE_S, [Party([harm])])
    assert not is_expected("Wrong", 12.0, [Party([harm])])


def test_a_moment_of_rest_explains_nothing() -> None:
    assert not is_expected("PeerLostError", 10.1, [Party([Harm(10.0, 10.0 + HARMLESS_STOP_S / 2)])])


def test_who_leaves_in_order_is_not_lost() -> None:
    assert is_expected("ClosedResourceError", 5.0, [Party([], left_s=4.0)])
    assert not is_expected("ClosedResourceError", 3.0, [Party([], left_s=4.0)])
    assert not is_expected("PeerLostError", 5.0, [Party([], left_s=4.0)])


@pytest.mark.parametrize(("last", "too_much"), [(104, False), (106, True)])
def test_growth_of_medians_is_bounded(last: int, too_much: bool) -> None:
    samples = Samples()
    for value in (100, 100, 200, 120, 120, 120, last, last, 50, 100, 100, last):
        samples.add({"descriptors": value})
    samples.held["descriptors"][-3:] = [last, last, 50]
    assert samples.growth()["descriptors"].is_too_much is too_much


def test_what_was_not_there_has_grown() -> None:
    samples = Samples()
    for value in (0, 0, 1, 1):
        samples.add({"files in /dev/shm": value})
    assert samples.growth()["files in /dev/shm"].is_too_much
