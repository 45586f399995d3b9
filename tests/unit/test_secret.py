"""Secrets: which are refused, that they are read for each handshake, and that none is shown."""

from __future__ import annotations

import dataclasses
import pickle
import traceback
from collections.abc import Sequence
from typing import Any

import pytest

from fabricio.errors import OptionsError
from fabricio.options import FabricOptions
from fabricio.proofs import Root
from fabricio.secret import MAX_SECRET_BYTES, MIN_SECRET_BYTES, check_secret, read_secrets

SECRET = b"open sesame, and close behind me"
OTHER = b"sixteen bytes or more of another"


class Broken(Sequence[bytes]):
    """A sequence that cannot be read."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401  (it gives nothing)
        raise ValueError("broken")


WRONG = [
    b"",
    SECRET[: MIN_SECRET_BYTES - 1],
    pytest.param(bytes(MAX_SECRET_BYTES + 1), id="too long"),
    SECRET.decode(),
    bytearray(SECRET),
    pytest.param(memoryview(SECRET), id="memoryview"),
    [],
    [SECRET.decode()],
    [SECRET, b"short"],
    [SECRET] * 5,
    {SECRET: 1},
    3,
    True,
]


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_a_wrong_secret_is_refused_and_not_shown(value: Any) -> None:  # noqa: ANN401  (the wrong ones)
    for attempt in (
        lambda: check_secret(value),
        lambda: FabricOptions(secret=value),
        lambda: read_secrets(lambda: value),
    ):
        with pytest.raises(OptionsError, match="secret=") as caught:
            attempt()
        shown = "".join(traceback.format_exception(caught.value))
        assert "sesame" not in shown
        assert "such as" in str(caught.value) or "the most is" in str(caught.value)


def test_what_is_too_short_is_told_why() -> None:
    with pytest.raises(OptionsError, match=r"of 15 bytes, and the least is 16, since .*try out"):
        FabricOptions(secret=SECRET[:15])


@pytest.mark.parametrize("value", [SECRET, SECRET[:MIN_SECRET_BYTES], (SECRET, OTHER), [SECRET]])
def test_a_good_secret(value: Any) -> None:  # noqa: ANN401  (each kind)
    expected = (value,) if isinstance(value, bytes) else tuple(value)
    assert read_secrets(FabricOptions(secret=value).secret) == expected
    assert read_secrets(FabricOptions(secret=lambda: value).secret) == expected


def test_no_secret() -> None:
    assert read_secrets(FabricOptions().secret) == ()
    with pytest.raises(OptionsError, match="returned a NoneType"):
        read_secrets(lambda: None)  # type: ignore[arg-type]  # that is the point


def test_a_callable_is_read_each_time_and_not_before() -> None:
    read = iter([SECRET, OTHER])
    options = FabricOptions(secret=lambda: next(read))
    assert [read_secrets(options.secret) for _ in range(2)] == [(SECRET,), (OTHER,)]


def test_a_callable_that_raises() -> None:
    def fail() -> bytes:
        raise KeyError(SECRET)

    with pytest.raises(OptionsError, match="raised KeyError: have it return") as caught:
        read_secrets(fail)
    assert "sesame" not in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(OptionsError, match="raised ValueError"):
        read_secrets(Broken)


def test_a_coroutine_function_is_no_callable_of_ours() -> None:
    async def secret() -> bytes:
        return SECRET

    with pytest.raises(OptionsError, match="returned a coroutine"):
        read_secrets(secret)  # type: ignore[arg-type]  # that is the point


def test_options_do_not_show_it() -> None:
    options = FabricOptions(secret=(SECRET, OTHER))
    assert "secret" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options
    assert dataclasses.replace(options, workers=1).secret == (SECRET, OTHER)
    assert FabricOptions.merged(options, {"workers": 1}).secret == (SECRET, OTHER)


def test_a_root_does_not_show_it() -> None:
    root = Root(SECRET)
    assert "sesame" not in repr(root)
    assert SECRET not in pickle.dumps(root._key)
