"""The targets, for a minute under atheris, and with examples that hypothesis makes."""

from __future__ import annotations

import importlib.util
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricio.errors import RemoteProtocolError
from tests.fuzz.__main__ import AT_ONCE, fuzz
from tests.fuzz.scripts import CHANGES, Script
from tests.fuzz.targets import TARGETS

SECONDS = 60
EXAMPLES = 150

HAS_ATHERIS = importlib.util.find_spec("atheris") is not None


@pytest.mark.parametrize("name", TARGETS)
def test_examples(name: str) -> None:
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.binary(max_size=600))
    def run(data: bytes) -> None:
        TARGETS[name](data)

    run()


@pytest.mark.skipif(not HAS_ATHERIS, reason="atheris has no wheel for this Python or machine")
@pytest.mark.timeout(SECONDS + 120)
def test_a_minute_of_fuzzing() -> None:
    seconds = SECONDS // len(TARGETS)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = list(pool.map(lambda name: fuzz(name, seconds), TARGETS))
    for run in runs:
        assert run.returncode == 0, run.stdout
        assert "number_of_executed_units" in run.stdout


@pytest.mark.parametrize("place", range(len(CHANGES)))
def test_every_change_changes(place: int) -> None:
    body = msgpack.packb({"one": 1, "two": b"22"})
    seen = {CHANGES[place](Script(bytes(range(number, number + 40))), body) for number in range(64)}
    assert len(seen - {body}) > 1


@pytest.mark.parametrize("target", ["message", "hello"])
@pytest.mark.parametrize(
    "head", [b"\xdc\xff\xff", b"\xdd\x00\x00\xf0\x00", b"\x92\xdd\x00\x00\xf0\x00"]
)
def test_elements_that_are_missing_take_no_memory(target: str, head: bytes) -> None:
    # Each container says that it holds as many as the message has bytes, and holds the next.
    data = head * 500 + bytes(60_000)
    tracemalloc.start()
    try:
        TARGETS[target](data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 * len(data)


def test_a_target_fails_where_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    def take_anything(*_: object) -> None:
        raise RemoteProtocolError("never")

    monkeypatch.setattr("fabricio.messages.MessageStream.receive", take_anything)
    with pytest.raises(RemoteProtocolError):
        TARGETS["honest_frames"](bytes(range(1, 200)))
