"""FabricOptions: every refusal names the option, its value and the cure."""

import dataclasses
import pickle
from typing import Any

import pytest

from fabricio.errors import OptionsError
from fabricio.options import FabricOptions


def test_defaults_are_consistent() -> None:
    options = FabricOptions()
    assert options.provider is None
    assert options.polling == "adaptive"
    assert options.max_message_bytes == 16 * 1024 * 1024
    assert options.receive_window_bytes >= options.max_message_bytes + options.frame_bytes
    assert pickle.loads(pickle.dumps(options)) == options


def test_options_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        FabricOptions().merge = False  # type: ignore[misc]  # that is the point


def test_every_option_is_documented() -> None:
    text = FabricOptions.__doc__ or ""
    for field in dataclasses.fields(FabricOptions):
        assert f"\n        {field.name}: " in text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("provider", ""),
        ("provider", 3),
        ("provider", "tcp\n"),
        ("source", "x" * 64),
        ("nics", "lo"),
        ("nics", []),
        ("nics", [b"lo"]),
        ("nics", 7),
        ("gpus", [1.5]),
        ("gpus", [True]),
        ("nics_per_gpu", 0),
        ("workers", 0),
        ("workers", 65),
        ("pin", [True]),
        ("pin", []),
        ("pin", "no"),
        ("stripe_bytes", 4095),
        ("polling", "lazy"),
        ("polling", None),
        ("polling", ["busy"]),
        ("spin_us", -1),
        ("spin_us", float("nan")),
        ("spin_us", True),
        ("nap_us", 0),
        ("connect_timeout_s", 0.0),
        ("connect_timeout_s", float("inf")),
        ("peer_timeout_s", "10"),
        ("max_message_bytes", 0),
        ("max_message_bytes", 1.5),
        ("max_message_bytes", 1 << 32),
        ("receive_window_bytes", -1),
        ("frame_bytes", 100),
        ("frame_bytes", 1 << 30),
        ("receive_count", 0),
        ("receive_count", False),
        ("max_operation_bytes", 0),
        ("inflight_count", -3),
        ("inflight_bytes", 1 << 64),
        ("quantum", 0),
        ("segments", "4"),
        ("merge", 1),
        ("merge", None),
    ],
)
def test_wrong_value_is_named(name: str, value: object) -> None:
    with pytest.raises(OptionsError) as caught:
        FabricOptions.merged(None, {name: value})
    assert name in str(caught.value)
    assert repr(value) in str(caught.value)
    assert "use" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spin_us", 0),
        ("nap_us", 0.5),
        ("provider", "tcp;ofi_rxm"),
        ("source", "fe80::1%eth0"),
        ("max_operation_bytes", 1),
        ("inflight_bytes", (1 << 64) - 1),
        ("max_message_bytes", 1),
        ("frame_bytes", 2048),
        ("polling", "busy"),
    ],
)
def test_values_at_the_edge_pass(name: str, value: object) -> None:
    assert getattr(FabricOptions.merged(None, {name: value}), name) == value


def test_window_must_hold_a_message_and_a_frame() -> None:
    FabricOptions(max_message_bytes=1000, frame_bytes=4096, receive_window_bytes=5096)
    with pytest.raises(OptionsError, match=r"5095.*1000.*4096.*5096"):
        FabricOptions(max_message_bytes=1000, frame_bytes=4096, receive_window_bytes=5095)


def test_operation_must_fit_in_flight() -> None:
    FabricOptions(max_operation_bytes=4096, inflight_bytes=4096)
    with pytest.raises(OptionsError, match=r"inflight_bytes=4095.*max_operation_bytes=4096"):
        FabricOptions(max_operation_bytes=4096, inflight_bytes=4095)


def test_merged_overrides_the_base_and_nothing_else() -> None:
    base = FabricOptions(provider="shm", spin_us=3.0)
    assert FabricOptions.merged(base, {}) is base
    merged = FabricOptions.merged(base, {"spin_us": 4.0})
    assert merged == dataclasses.replace(base, spin_us=4.0)
    assert base.spin_us == 3.0


def test_unknown_option_is_named_with_the_known_ones() -> None:
    with pytest.raises(OptionsError, match=r"'spin_ms'.*spin_us"):
        FabricOptions.merged(None, {"spin_ms": 1})


def test_base_of_another_type_is_refused() -> None:
    wrong: Any = {"provider": "tcp"}
    with pytest.raises(OptionsError, match="FabricOptions"):
        FabricOptions.merged(wrong, {})
