"""`Revocation`: whom it asks, and how long it waits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from fabricio.errors import RegionError
from fabricio.remote import Grant
from fabricio.revocation import Revocation

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricio.engine import Engine
    from fabricio.memory import MemoryRegion


class FakeHolder:
    """Answers at once, or when the test says so."""

    engine: Engine

    def __init__(self, *, at_once: bool = False) -> None:
        self.at_once = at_once
        self.asked: list[int] = []
        self.let_go: Callable[[], object] = lambda: None

    def let_write(self, region: MemoryRegion) -> None:
        raise AssertionError

    def revoke(self, region: int, on_let_go: Callable[[], object]) -> None:
        self.asked.append(region)
        self.let_go = on_let_go
        if self.at_once:
            on_let_go()


def start(holders: list[FakeHolder], patience_s: float = 60.0) -> tuple[Revocation, list[Any]]:
    done: list[Any] = []
    revocation = Revocation(asyncio.get_running_loop(), patience_s)
    revocation.start(7, holders, lambda: done.append(True), lambda: done.append(False))
    return revocation, done


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_nobody_left_to_wait_for(count: int) -> None:
    holders = [FakeHolder(at_once=True) for _ in range(count)]
    revocation, done = start(holders)
    assert done == [True]
    assert revocation._timer is None
    assert all(holder.asked == [7] for holder in holders)


async def test_it_waits_for_all() -> None:
    first, second, third = FakeHolder(), FakeHolder(at_once=True), FakeHolder()
    revocation, done = start([first, second, third])
    third.let_go()
    assert done == []
    first.let_go()
    assert done == [True]
    assert revocation._timer is None


async def test_it_does_not_wait_for_ever() -> None:
    holder = FakeHolder()
    ended = asyncio.Event()
    revocation = Revocation(asyncio.get_running_loop(), 0.0)
    done: list[bool] = []

    def end() -> None:
        done.append(True)
        ended.set()

    revocation.start(7, [holder], end, lambda: done.append(False))
    assert done == []
    assert not revocation.overdue
    await ended.wait()
    assert revocation.overdue
    holder.let_go()  # too late
    assert done == [True, False]
    assert not revocation.overdue


async def test_cancelled_it_does_nothing_more() -> None:
    holder = FakeHolder()
    revocation, done = start([holder])
    revocation.cancel()
    revocation.cancel()
    assert revocation._timer is None
    holder.let_go()
    assert done == []


def test_a_grant_is_let_go_when_its_last_transfer_ends() -> None:
    grant = Grant()
    grant.check()
    grant.begin()
    grant.begin()
    grant.end()
    let_go: list[bool] = []
    grant.revoke(lambda: let_go.append(True))
    with pytest.raises(RegionError, match="have it register memory again"):
        grant.check()
    assert (grant.revoked, grant.transfers, let_go) == (True, 1, [])
    grant.end()
    assert let_go == [True]


def test_an_unused_grant_is_let_go_at_once() -> None:
    let_go: list[bool] = []
    Grant().revoke(lambda: let_go.append(True))
    assert let_go == [True]
