"""What fabricio does to the process that it lives in: shown by processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("programs.py")
LIMIT_S = 15.0

loops = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


def run(program: str, loop: str, provider: str, *flags: str, **environment: str) -> str:
    """Run a program; return what it said on stderr."""
    done = subprocess.run(
        [sys.executable, *flags, str(PROGRAMS), program, loop, provider],
        check=False,
        capture_output=True,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return done.stderr


STRICT = ("-X", "dev", "-W", "error")
# Python 3.12 warns of every fork in a process with threads.
FORKING = (*STRICT, "-W", "ignore:This process:DeprecationWarning")


@loops
@pytest.mark.parametrize("program", ["signals", "left_behind", "cancelled"])
def test_manners(program: str, loop: str, provider: str) -> None:
    assert run(program, loop, provider, *STRICT) == ""


@loops
@pytest.mark.parametrize("program", ["fork_exit", "fork_killed"])
def test_a_forked_child(program: str, loop: str, provider: str) -> None:
    assert run(program, loop, provider, *FORKING) == ""


@loops
def test_a_forked_child_that_exits(loop: str, provider: str) -> None:
    run("fork_sys_exit", loop, provider)  # Python complains of the child's loop, which is open


def test_a_forked_child_that_unwinds(provider: str) -> None:
    run("fork_unwinds", "asyncio", provider)


def test_without_numpy(provider: str) -> None:
    assert run("without_numpy", "asyncio", provider, *STRICT) == ""


def test_importing_loads_nothing() -> None:
    assert run("import_alone", "asyncio", "", *STRICT, FABRICIO_LIBFABRIC="/nowhere") == ""


@loops
@pytest.mark.parametrize("program", ["exit_open", "exit_open_loop", "exit_within", "exit_thread"])
def test_the_interpreter_exits_with_open_fabrics(program: str, loop: str, provider: str) -> None:
    run(program, loop, provider)
