"""Transfers over a fake engine: outcomes, cancellation, and when the memory is let go."""

import asyncio
import errno
import gc
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from fabricio._ffi.check import error_from
from fabricio.completion import Completion, Failure
from fabricio.errors import (
    BrokenResourceError,
    ClosedResourceError,
    CompletionError,
    FabricioError,
    PeerLostError,
    RemoteAccessError,
)
from fabricio.remote import Grant
from fabricio.transfer import Transfer, lost
from fabricio.waiting import Once

DONE, QUIET, FAILED = 1, 2, 3


class FakeLib:
    FAB_TRANSFER_DONE = DONE
    FAB_TRANSFER_QUIET = QUIET

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.cancelled = asyncio.Event()
        self.bytes_done = self.pages_done = 0

    def fab_transfer_bytes_done(self, handle: object) -> int:
        assert "release" not in self.calls
        return self.bytes_done

    def fab_transfer_pages_done(self, handle: object) -> int:
        assert "release" not in self.calls
        return self.pages_done

    def fab_transfer_cancel(self, engine: object, handle: object) -> int:
        assert "release" not in self.calls
        self.calls.append("cancel")
        self.cancelled.set()
        return 0

    def fab_transfer_release(self, engine: object, handle: object) -> int:
        self.calls.append("release")
        return 0


class FakeEngine:
    handle = object()
    has_workers = True

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.lib = FakeLib()
        self.dependents: set[Any] = set()

    def check_loop(self) -> None:
        assert asyncio.get_running_loop() is self.loop

    def error(self, completion: Completion, operation: str | None = None) -> FabricioError:
        failure = completion.failure or Failure(completion.status, 0, "", "")
        return error_from(failure, operation=operation, provider="fake")


class Running:
    """A transfer of 4 pages of 100 bytes, with what it was told."""

    def __init__(self, sent: Once | None = None) -> None:
        self.engine = FakeEngine()
        self.lib = self.engine.lib
        self.ended: list[Transfer] = []
        engine: Any = self.engine
        self.transfer = Transfer(engine, "write", 4, 100, self.ended.append)
        region: Any = object()
        handle: Any = object()
        self.grant = Grant()
        self.transfer.started(handle, region, self.grant)
        self.transfer.notifies(sent)

    def done(self, status: int = 0, *, quiet: bool = True, failure: Failure | None = None) -> None:
        completion = Completion(DONE, status, quiet=quiet, failure=failure)
        self.transfer.on_completion(completion)


async def soon(count: int = 5) -> None:
    """Let others run."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_awaits_give_the_bytes_to_all() -> None:
    run = Running()
    waiters = [asyncio.ensure_future(run.transfer) for _ in range(3)]
    await soon()
    assert not run.transfer.done()
    run.lib.bytes_done, run.lib.pages_done = 200, 2
    assert (run.transfer.bytes_done, run.transfer.pages_done) == (200, 2)
    run.lib.bytes_done, run.lib.pages_done = 400, 4
    run.done()
    assert await asyncio.gather(*waiters) == [400, 400, 400]
    assert await run.transfer == 400
    assert (run.transfer.bytes_done, run.transfer.pages_done) == (400, 4)
    assert run.lib.calls == ["release"]
    assert run.ended == [run.transfer]


async def test_failure_says_how_far_it_came() -> None:
    run = Running()
    run.lib.bytes_done, run.lib.pages_done = 100, 1
    run.done(-errno.EACCES, failure=Failure(-errno.EACCES, 3, "fi_writemsg", "no"))
    for _ in range(2):
        with pytest.raises(RemoteAccessError) as caught:
            await run.transfer
        assert (caught.value.bytes_done, caught.value.pages_done) == (100, 1)
        assert caught.value.operation == "write"
        assert caught.value.quiesced
    assert "RemoteAccessError" in repr(run.transfer)


async def test_memory_stays_pinned_until_quiet() -> None:
    run = Running()
    run.done(-errno.EIO, quiet=False)
    with pytest.raises(CompletionError) as caught:
        await run.transfer
    assert not caught.value.quiesced
    assert run.lib.calls == []
    assert run.transfer._region is not None
    let_go: list[bool] = []
    run.grant.revoke(lambda: let_go.append(True))
    assert (run.grant.transfers, let_go) == (1, [])
    run.transfer.on_completion(Completion(QUIET))
    assert run.lib.calls == ["release"]
    assert run.transfer._region is None
    assert (run.grant.transfers, let_go) == (0, [True])
    assert run.ended == [run.transfer]


async def test_cancelled_task_waits_for_quiet_memory() -> None:
    run = Running()

    async def wait() -> int:
        return await run.transfer

    first, second = asyncio.create_task(wait()), asyncio.create_task(wait())
    await soon()
    first.cancel()
    await soon()
    assert run.lib.calls == ["cancel"]
    assert not first.done()
    first.cancel()  # impatience changes nothing
    await soon()
    assert not first.done()
    run.done(-errno.ECANCELED)
    await asyncio.wait([first, second])
    assert first.cancelled()
    assert second.cancelled()
    with pytest.raises(asyncio.CancelledError):
        await run.transfer


async def test_cancel_after_all_was_done_is_success() -> None:
    run = Running()
    assert run.transfer.cancel()
    run.done(0)
    assert await run.transfer == 400
    assert not run.transfer.cancel()
    assert run.lib.calls == ["cancel", "release"]


async def test_timeout_cancels_the_transfer() -> None:
    run = Running()

    async def wait() -> None:
        async with asyncio.timeout(0):
            await run.transfer

    task = asyncio.create_task(wait())
    await run.lib.cancelled.wait()
    run.done(-errno.ECANCELED)
    with pytest.raises(TimeoutError):
        await task


async def test_the_first_cause_is_the_outcome() -> None:
    run = Running()
    closed = ClosedResourceError("closed")
    run.transfer.end(closed)
    run.transfer.end(BrokenResourceError("later"))
    run.transfer.cancel()
    run.done(-errno.ECANCELED)
    with pytest.raises(ClosedResourceError):
        await run.transfer
    assert run.lib.calls == ["cancel", "release"]


async def test_a_lost_peer_is_called_so() -> None:
    run = Running()
    since = datetime.now(UTC)
    run.transfer.loss = PeerLostError("gone")
    run.transfer.loss.since = since
    run.lib.bytes_done = 300
    run.done(-errno.EIO, quiet=False)
    with pytest.raises(PeerLostError) as caught:
        await run.transfer
    assert caught.value.code == errno.EIO
    assert caught.value.bytes_done == 300
    assert not caught.value.quiesced
    assert isinstance(caught.value.__cause__, CompletionError)
    assert caught.value.since == since
    assert f"last heard of at {since:%Y-%m-%d %H:%M:%S} UTC" in str(caught.value)


async def test_the_memory_is_waited_for_after_the_outcome() -> None:
    run = Running()
    run.done(-errno.EIO, quiet=False)
    with pytest.raises(CompletionError) as caught:
        await run.transfer
    waits = asyncio.ensure_future(caught.value.drained())
    await soon()
    assert not waits.done()
    copied = pickle.loads(pickle.dumps(caught.value))
    assert not copied.quiesced
    await copied.drained()  # it knows of nothing to wait for
    run.transfer.on_completion(Completion(QUIET))
    await waits
    await run.transfer.drained()
    assert not run.engine.dependents


async def test_the_end_of_the_engine_ends_the_wait_for_memory() -> None:
    run = Running()
    run.done(-errno.EIO, quiet=False)
    waits = asyncio.ensure_future(run.transfer.drained())
    run.transfer.engine_failed(BrokenResourceError("dead"))
    await soon()
    assert not waits.done()
    for dependent in list(run.engine.dependents):
        dependent.engine_closed()
    await waits


async def test_a_dead_engine_ends_it_and_keeps_the_region() -> None:
    run = Running()
    cause = BrokenResourceError("dead")
    run.lib.bytes_done = 50
    run.transfer.on_completion(Completion(FAILED, cause=cause))
    with pytest.raises(BrokenResourceError):
        await run.transfer
    assert run.transfer.bytes_done == 50
    assert run.transfer._region is not None
    assert run.lib.calls == []
    run.done(-errno.ECANCELED)  # a worker that still stops in order
    assert run.ended == [run.transfer]


async def test_nothing_is_asked_of_a_closed_engine() -> None:
    run = Running()
    run.engine.has_workers = False
    run.lib.calls.append("release")  # the fake then refuses every call
    assert run.transfer.bytes_done == 0
    run.transfer.cancel()


async def test_a_notification_that_waits_holds_up_the_await() -> None:
    sent = Once(asyncio.get_running_loop())
    run = Running(sent)
    task = asyncio.ensure_future(run.transfer)
    run.done()
    await soon()
    assert run.transfer.done()
    assert not task.done()
    sent.set()
    assert await task == 400


async def test_a_notification_that_cannot_leave_is_an_error() -> None:
    sent = Once(asyncio.get_running_loop())
    run = Running(sent)
    run.done()
    sent.set(ClosedResourceError("closed"))
    with pytest.raises(ClosedResourceError):
        await run.transfer


async def test_nothing_to_move_is_done_at_once() -> None:
    engine: Any = FakeEngine()
    transfer = Transfer(engine, "read", 0, 100, lambda _: None)
    transfer.skip()
    assert transfer.done()
    assert await transfer == 0
    assert not transfer.cancel()


async def test_an_unawaited_failure_is_not_complained_about() -> None:
    met: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: met.append(context))
    run = Running()
    run.done(-errno.EIO)
    del run
    gc.collect()
    await soon()
    assert not met


def test_lost_keeps_what_is_lost_already() -> None:
    error = PeerLostError("gone")
    assert lost(error) is error
    made = lost(BrokenResourceError("hm"))
    assert isinstance(made, PeerLostError)
    assert isinstance(made, ConnectionError)
