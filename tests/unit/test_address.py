"""Address: text and back, and nothing but OptionsError for garbage."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricio.address import Address, is_host_port, split_host_port
from fabricio.errors import OptionsError

INCARNATION = bytes(range(16))
PROVIDERS = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=63)
LANES = st.lists(st.binary(min_size=1, max_size=80), min_size=1, max_size=12).map(tuple)


@st.composite
def addresses(draw: st.DrawFn) -> Address:
    workers = draw(st.lists(LANES, min_size=1, max_size=8))
    return Address(
        draw(PROVIDERS),
        draw(st.binary(min_size=16, max_size=16)),
        tuple(lane for lanes in workers for lane in lanes),
        tuple(map(len, workers)),
    )


ADDRESSES = addresses()


@given(ADDRESSES)
def test_round_trip_in_one_shell_safe_word(address: Address) -> None:
    text = str(address)
    assert Address.parse(text) == address
    assert Address.parse(f"  {text}\n") == address
    assert shlex.split(text) == [text]
    assert not is_host_port(text)


def test_the_text_is_as_documented() -> None:
    address = Address("tcp;ofi_rxm", INCARNATION, (b"\xff\xfe", b"ab"))
    assert str(address) == ("fabricio:1:tcp%3Bofi_rxm:000102030405060708090a0b0c0d0e0f:__4,YWI")
    assert address.lane_counts == (2,)
    workers = Address("tcp", INCARNATION, (b"a", b"b", b"c"), (1, 2))
    assert str(workers).endswith(":YQ+Yg,Yw")


@pytest.mark.parametrize("counts", [(1,), (1, 1, 1), (0, 2), (2, 0), [2], (True, 1), (1,) * 65])
def test_lanes_must_belong_to_workers(counts: tuple[int, ...]) -> None:
    with pytest.raises(OptionsError, match="do not belong to"):
        Address("tcp", INCARNATION, (b"a", b"b"), counts)


@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_garbage_is_an_options_error(text: str) -> None:
    with pytest.raises(OptionsError, match="is not an address"):
        Address.parse(text)


@given(ADDRESSES, st.data())
def test_damaged_text_is_an_address_or_an_options_error(
    address: Address, data: st.DataObject
) -> None:
    text = str(address)
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 5)))
    damaged = text[:start] + data.draw(st.text(max_size=4)) + text[stop:]
    try:
        parsed = Address.parse(damaged)
    except OptionsError:
        return
    assert Address.parse(str(parsed)) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fabricio",
        "fabricio:1:tcp:00:AA",
        "fabricio:1:tcp:" + "0" * 32 + ":",
        "fabricio:1:tcp:" + "0" * 32 + ":A",
        "fabricio:1:tcp:" + "0" * 32 + ":AA,,AA",
        "fabricio:1:tcp:" + "G" * 32 + ":AA",
        "fabricio:1::" + "0" * 32 + ":AA",
        "fabricio:1:%FF:" + "0" * 32 + ":AA",
        "fabricio:1:%0A:" + "0" * 32 + ":AA",
        "fabricio:1:tcp:" + "0" * 32 + ":" + "A" * 1000,
        "fabricio:1:tcp:" + "0" * 32 + ":" + ",".join(["AA"] * 1025),
        "x" * (1 << 21),
    ],
)
def test_near_misses_are_refused_with_the_cure(text: str) -> None:
    with pytest.raises(OptionsError, match=r"Fabric\.address"):
        Address.parse(text)


def test_another_version_is_named() -> None:
    with pytest.raises(OptionsError, match=r"version 2.*reads 1"):
        Address.parse("fabricio:2:tcp:" + "0" * 32 + ":AA")


@pytest.mark.parametrize("value", [None, 7, b"fabricio:1:tcp"])
def test_parse_takes_text_only(value: object) -> None:
    with pytest.raises(OptionsError, match="an address is a str"):
        Address.parse(value)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize(
    ("provider_name", "incarnation", "lanes"),
    [
        ("", INCARNATION, (b"a",)),
        ("t\n", INCARNATION, (b"a",)),
        ("tcp", b"", (b"a",)),
        ("tcp", "0" * 16, (b"a",)),
        ("tcp", INCARNATION, ()),
        ("tcp", INCARNATION, [b"a"]),
        ("tcp", INCARNATION, (b"",)),
        ("tcp", INCARNATION, ("a",)),
    ],
)
def test_fields_are_checked(
    provider_name: str, incarnation: bytes, lanes: tuple[bytes, ...]
) -> None:
    with pytest.raises(OptionsError):
        Address(provider_name, incarnation, lanes)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("10.0.0.1:7000", "10.0.0.1", 7000),
        ("node-3.example:0", "node-3.example", 0),
        ("[::1]:65535", "::1", 65535),
        ("[fe80::1%eth0]:80", "fe80::1%eth0", 80),
    ],
)
def test_host_and_port(text: str, host: str, port: int) -> None:
    assert is_host_port(text)
    assert split_host_port(text) == (host, port)


@pytest.mark.parametrize(
    "text",
    ["", "host", ":7000", "host:", "host:65536", "host:-1", "::1:7000", "[::1]", "a b:1", "h:1\n"],
)
def test_no_host_and_port(text: str) -> None:
    assert not is_host_port(text)
    with pytest.raises(OptionsError, match="host:port"):
        split_host_port(text)


@given(st.text())
def test_host_port_of_garbage_never_raises_anything_else(text: str) -> None:
    assert isinstance(is_host_port(text), bool)
