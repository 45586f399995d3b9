"""The reader of completions, over a fake engine: who is told what, and what survives what."""

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fabricio.completion import BATCH_COUNT, Completion, CompletionReader, Failure
from fabricio.errors import BrokenResourceError

KINDS = (
    "WORKER_OPENED",
    "WORKER_CLOSED",
    "WORKER_FAILED",
    "REGION_REGISTERED",
    "REGION_DEREGISTERED",
    "PEER_ADDED",
    "PEER_REMOVED",
    "PEER_FAILED",
    "FRAME_SENT",
    "FRAME_RECEIVED",
    "TRANSFER_DONE",
    "TRANSFER_QUIET",
    "TRANSFER_ARRIVED",
    "LANE_FAILED",
    "PATH_FAILED",
    "CONNECTIONS_ENDED",
)


class FakeLib:
    FAB_NO_PEER = 0xFFFFFFFF

    def __init__(self) -> None:
        for number, kind in enumerate(KINDS, 1):
            setattr(self, f"FAB_{kind}", number)
        self.queue: deque[Any] = deque()
        self.freed: list[Any] = []

    def fab_engine_fd(self, engine: object) -> int:
        return 42

    def fab_engine_reap(self, engine: object, batch: list[Any], capacity: int) -> int:
        count = min(capacity, len(self.queue))
        for place in range(count):
            batch[place] = self.queue.popleft()
        return count

    def fab_error_free(self, error: object) -> None:
        self.freed.append(error)

    def put(self, kind: str, **fields: object) -> None:
        entry = SimpleNamespace(
            kind=getattr(self, f"FAB_{kind}", 99),
            status=0,
            worker=0,
            peer=self.FAB_NO_PEER,
            token=0,
            sequence=0,
            count=0,
            quiet=0,
            data=b"",
            bytes=0,
            error=None,
        )
        vars(entry).update(fields)
        if "data" in fields:
            entry.bytes = len(entry.data)
        self.queue.append(entry)


class FakeFfi:
    def new(self, declaration: str, count: int) -> list[SimpleNamespace]:
        assert declaration == "struct fab_completion[]"
        return [SimpleNamespace(kind=0) for _ in range(count)]

    def buffer(self, data: bytes, size: int) -> bytes:
        return data[:size]

    def string(self, text: bytes) -> bytes:
        return text


class FakeLoop:
    def __init__(self) -> None:
        self.soon: list[Callable[[], object]] = []
        self.readers: dict[int, Any] = {}
        self.closed = False

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        self.readers[fd] = callback

    def remove_reader(self, fd: int) -> None:
        del self.readers[fd]

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def is_closed(self) -> bool:
        return self.closed


class Sink:
    """Notes what it is told, and raises where asked to."""

    def __init__(self, raises: Exception | None = None) -> None:
        self.told: list[Any] = []
        self.raises = raises

    def _note(self, *what: object) -> None:
        self.told.append(what)
        if self.raises is not None:
            raise self.raises

    def frame_received(self, data: bytes) -> None:
        self._note("frame", data)

    def transfer_arrived(self, sequence: int, status: int) -> None:
        self._note("arrived", sequence, status)

    def lane_failed(self, lane: int, completion: Completion) -> None:
        self._note("lane", lane, completion.status)

    def path_failed(self, path: int, completion: Completion) -> None:
        self._note("path", path, completion.status)

    def peer_failed(self, completion: Completion) -> None:
        self._note("failed", completion.status)

    def peer_removed(self) -> None:
        self._note("removed")

    def engine_failed(self, cause: Exception) -> None:
        self._note("engine", cause)

    def crashed(self, error: Exception) -> None:
        self.told.append(("crashed", error))


class World:
    def __init__(self) -> None:
        self.lib, self.loop = FakeLib(), FakeLoop()
        self.workers: list[Completion] = []
        self.crashes: list[Exception] = []
        self.reader = CompletionReader(
            self.loop,  # type: ignore[arg-type]  # fakes
            FakeFfi(),  # type: ignore[arg-type]
            self.lib,  # type: ignore[arg-type]
            object(),  # type: ignore[arg-type]
            on_worker=self.workers.append,
            on_crash=self.crashes.append,
        )
        self.reader.start()

    def turn(self) -> None:
        self.loop.readers[42]()


@pytest.fixture
def world() -> World:
    return World()


def test_start_and_stop_watch_the_descriptor(world: World) -> None:
    assert list(world.loop.readers) == [42]
    world.reader.stop()
    assert not world.loop.readers
    world.reader.stop()


def test_stop_leaves_a_closed_loop_alone(world: World) -> None:
    world.loop.closed = True
    world.reader.stop()
    assert list(world.loop.readers) == [42]


def test_a_token_is_told_and_forgotten(world: World) -> None:
    told: list[Completion] = []
    token = world.reader.expect(told.append)
    world.lib.put("PEER_ADDED", token=token, peer=7)
    world.lib.put("PEER_ADDED", token=token, peer=8)
    world.turn()
    assert [completion.peer for completion in told] == [7]


def test_tokens_are_never_used_twice(world: World) -> None:
    tokens = {world.reader.expect(lambda _: None) for _ in range(100)}
    assert len(tokens) == 100
    assert 0 not in tokens


def test_a_region_token_lives_until_deregistration(world: World) -> None:
    told: list[Completion] = []
    token = world.reader.expect(told.append)
    for kind in ("REGION_REGISTERED", "REGION_DEREGISTERED", "REGION_DEREGISTERED"):
        world.lib.put(kind, token=token)
    world.turn()
    lib = world.lib
    assert [each.kind for each in told] == [
        lib.FAB_REGION_REGISTERED,  # type: ignore[attr-defined]  # set by name
        lib.FAB_REGION_DEREGISTERED,  # type: ignore[attr-defined]
    ]


def test_a_transfer_that_is_not_quiet_is_told_twice(world: World) -> None:
    told: list[Completion] = []
    loud, quiet = world.reader.expect(told.append), world.reader.expect(told.append)
    world.lib.put("TRANSFER_DONE", token=loud, quiet=0, status=-5, count=3)
    world.lib.put("TRANSFER_DONE", token=quiet, quiet=1)
    world.lib.put("TRANSFER_QUIET", token=quiet)
    world.lib.put("TRANSFER_QUIET", token=loud)
    world.lib.put("TRANSFER_QUIET", token=loud)
    world.turn()
    assert [(each.quiet, each.status, each.count) for each in told] == [
        (False, -5, 3),
        (True, 0, 0),
        (False, 0, 0),
    ]


def test_errors_are_copied_and_freed(world: World) -> None:
    told: list[Completion] = []
    error = SimpleNamespace(code=-12, provider_code=4, call=b"fi_mr_reg", text=b"gel\xc3\xa9 \xff")
    world.lib.put("REGION_REGISTERED", token=world.reader.expect(told.append), error=error)
    world.lib.put("TRANSFER_ARRIVED", peer=1, error=error, status=-12)
    world.lib.put("PEER_ADDED", token=999, error=error)
    world.turn()
    assert told[0].failure == Failure(-12, 4, "fi_mr_reg", "gelé �")
    assert world.lib.freed == [error] * 3


def test_sinks_are_told(world: World) -> None:
    sink = Sink()
    world.reader.attach(3, sink)
    world.lib.put("FRAME_RECEIVED", peer=3, data=b"frame")
    world.lib.put("TRANSFER_ARRIVED", peer=3, sequence=9, status=-5)
    world.lib.put("LANE_FAILED", peer=3, token=2, status=-113)
    world.lib.put("PATH_FAILED", peer=3, sequence=1, status=-113)
    world.lib.put("PEER_FAILED", peer=3, status=-104)
    world.lib.put("PEER_REMOVED", peer=3)
    world.lib.put("FRAME_RECEIVED", peer=3, data=b"late")
    world.turn()
    assert sink.told == [
        ("frame", b"frame"),
        ("arrived", 9, -5),
        ("lane", 2, -113),
        ("path", 1, -113),
        ("failed", -104),
        ("removed",),
    ]


def test_strangers_are_dropped(world: World) -> None:
    for kind in KINDS[3:]:
        world.lib.put(kind, peer=5, token=5)
    world.lib.put("SOMETHING_NEW")
    world.turn()
    assert not world.crashes
    assert not world.workers


def test_hellos_go_to_their_function(world: World) -> None:
    world.lib.put("FRAME_RECEIVED", data=b"nobody listens")
    world.turn()
    hellos: list[bytes] = []
    world.reader.on_hello = hellos.append
    world.lib.put("FRAME_RECEIVED", data=b"hello")
    world.turn()
    assert hellos == [b"hello"]


def test_workers_are_told(world: World) -> None:
    for number, kind in enumerate(KINDS[:3]):
        world.lib.put(kind, worker=number)
    world.turn()
    assert [each.worker for each in world.workers] == [0, 1, 2]


def test_one_batch_a_turn(world: World) -> None:
    told: list[Completion] = []
    for _ in range(BATCH_COUNT + 1):
        world.lib.put("FRAME_SENT", token=world.reader.expect(told.append))
    world.turn()
    assert len(told) == BATCH_COUNT
    world.turn()
    assert len(told) == BATCH_COUNT + 1


def test_what_a_sink_raises_stays_with_it(world: World) -> None:
    error = ValueError("no")
    sick, well = Sink(error), Sink()
    world.reader.attach(1, sick)
    world.reader.attach(2, well)
    kinds = ("FRAME_RECEIVED", "TRANSFER_ARRIVED", "LANE_FAILED", "PATH_FAILED", "PEER_FAILED")
    for kind in (*kinds, "PEER_REMOVED"):
        world.lib.put(kind, peer=1)
        world.lib.put(kind, peer=2)
    world.turn()
    assert [what for what in sick.told if what[0] == "crashed"] == [("crashed", error)] * 6
    told = ["frame", "arrived", "lane", "path", "failed", "removed"]
    assert [what[0] for what in well.told] == told
    assert not world.crashes


def test_what_a_callback_raises_does_not_stop_the_batch(world: World) -> None:
    error = ValueError("no")
    told: list[Completion] = []

    def fail(completion: Completion) -> None:
        raise error

    world.lib.put("FRAME_SENT", token=world.reader.expect(fail))
    world.lib.put("FRAME_SENT", token=world.reader.expect(told.append))
    world.turn()
    assert world.crashes == [error]
    assert len(told) == 1


def test_an_interrupt_loses_no_completion(world: World) -> None:
    """As Ctrl-C does, between two completions of one batch."""
    told: list[Completion] = []

    def interrupt(completion: Completion) -> None:
        raise KeyboardInterrupt

    world.lib.put("FRAME_SENT", token=world.reader.expect(interrupt))
    world.lib.put("FRAME_SENT", token=world.reader.expect(told.append))
    with pytest.raises(KeyboardInterrupt):
        world.turn()
    assert told == []
    world.lib.put("FRAME_SENT", token=world.reader.expect(told.append))
    for callback in world.loop.soon:
        callback()
    assert len(told) == 2


def test_a_dead_engine_is_told_to_all(world: World) -> None:
    cause = BrokenResourceError("dead")
    told: list[Completion] = []
    sink, sick = Sink(), Sink(ValueError("no"))
    token = world.reader.expect(told.append)
    world.reader.attach(1, sink)
    world.reader.attach(2, sick)
    world.reader.fail_all(cause)
    assert [each.cause for each in told] == [cause]
    assert sink.told == [("engine", cause)]
    assert sick.told[-1][0] == "crashed"
    # The engine may still answer while it stops.
    world.lib.put("TRANSFER_DONE", token=token, quiet=1)
    world.turn()
    assert len(told) == 2


def test_a_forgotten_token_is_not_told(world: World) -> None:
    told: list[Completion] = []
    token = world.reader.expect(told.append)
    world.reader.forget(token)
    world.reader.forget(token)
    world.lib.put("FRAME_SENT", token=token)
    world.turn()
    assert not told
