"""Links that go down and up, addresses that change: hosts are made of network namespaces."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.two_process.conftest import lab_or_skip
from tests.two_process.outage import HOME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.lab import Lab

ROOT = Path(__file__).parents[2]
LIMIT_S = 30.0  # a backstop
NEW_ADDRESS = "10.77.0.9"


def do(*command: str) -> None:
    subprocess.run(command, check=True, timeout=LIMIT_S)


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Host a has an address of its own, which host b reaches by the link that it was called on."""
    with lab_or_skip(2, 200) as made:
        do(*made.command(0, "ip", "address", "add", f"{HOME}/32", "dev", "lo"))
        for link in range(2):
            table = str(100 + link)
            rule = ("ip", "rule", "add", "from", f"10.77.{link}.0/24", "table", table)
            do(*made.command(1, *rule))
            route = ("ip", "route", "add", "10.78.0.0/24", "via", made.address(0, link))
            do(*made.command(1, *route, "table", table))
        yield made


@contextmanager
def process(lab: Lab, host: int, *words: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        lab.command(host, sys.executable, "-m", *words),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def read(started: subprocess.Popen[str]) -> str:
    assert started.stdout is not None
    return started.stdout.readline().strip()


class Run:
    """A program of outage.py on host a, and its peers on host b."""

    def __init__(self, stack: ExitStack, lab: Lab, name: str) -> None:
        self._stack = stack
        self._lab = lab
        self.peers = [self.peer(lab.address(1, link)) for link in range(2)]
        addresses = [address for _, address in self.peers]
        words = ("tests.two_process.outage", name, *addresses)
        self._program = stack.enter_context(process(lab, 0, *words))

    def peer(self, source: str) -> tuple[subprocess.Popen[str], str]:
        words = ("tests.two_process.peer", f"tcp@{source}", "asyncio")
        started = self._stack.enter_context(process(self._lab, 1, *words))
        return started, read(started)

    def asks(self) -> str:
        return read(self._program)

    def answer(self, line: str) -> None:
        assert self._program.stdin is not None
        self._program.stdin.write(f"{line}\n")
        self._program.stdin.flush()

    def end(self) -> None:
        """It has ended well."""
        said, complaints = self._program.communicate(timeout=LIMIT_S)
        assert (self._program.returncode, said, complaints) == (0, "", ""), complaints

    def first_lost_it(self) -> None:
        """The first peer says that it has lost the program's Fabric."""
        errors = self.peers[0][0].stderr
        assert errors is not None
        assert "last heard of" in errors.readline()


@pytest.fixture
def run(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Run]:
    with ExitStack() as stack:
        yield Run(stack, lab, request.param)


def runs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("run", [name], indirect=True)


@runs("short")
def test_a_short_outage_costs_nothing(run: Run) -> None:
    run.end()


@runs("long")
def test_after_a_long_one_both_sides_connect_anew(run: Run) -> None:
    assert run.asks() == "let the first peer notice"
    run.first_lost_it()
    run.answer("done")
    run.end()


@runs("moved")
def test_a_peer_whose_address_changes_is_lost(run: Run, lab: Lab) -> None:
    assert run.asks() == "change the first address"
    nic = lab.nics(1)[0]
    do(*lab.command(1, "ip", "address", "add", f"{NEW_ADDRESS}/32", "dev", nic))
    do(*lab.command(1, "ip", "address", "delete", f"{lab.address(1, 0)}/24", "dev", nic))
    run.first_lost_it()
    _, address = run.peer(NEW_ADDRESS)
    run.answer(address)
    run.end()


@runs("homeless")
def test_a_fabric_whose_address_is_gone_loses_all(run: Run) -> None:
    run.first_lost_it()
    run.end()
