"""Values as bytes and back: what is refused here rather than at the peer."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricio.codec import MAX_NESTING, REGION_EXT_CODE, ValueCodec
from fabricio.errors import LocalProtocolError, RegionError, RemoteProtocolError

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
)
VALUES = st.recursive(
    SCALARS | st.datetimes(timezones=st.just(UTC)),
    lambda inner: st.lists(inner) | st.dictionaries(SCALARS, inner),
    max_leaves=20,
)


class Region:
    """Stands for a shared region."""


def pack_default(obj: object) -> msgpack.ExtType:
    if isinstance(obj, Region):
        return msgpack.ExtType(REGION_EXT_CODE, b"region")
    if isinstance(obj, set):
        raise RegionError("of another Fabric")
    raise TypeError(f"no {type(obj).__name__}")


def make(limit: int = 1 << 20) -> ValueCodec:
    return ValueCodec(
        max_message_bytes=limit,
        pack_default=pack_default,
        ext_hook=lambda code, data: (code, data),
    )


CODEC = make()


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


@given(VALUES)
def test_round_trip(value: object) -> None:
    assert CODEC.decode(CODEC.encode(value)) == value


def test_what_arrives_as_something_else() -> None:
    plus2 = timezone(timedelta(hours=2))
    sent = {
        "t": (1, (2,)),
        "b": [bytearray(b"x"), memoryview(b"y")],
        5: datetime(2020, 1, 1, 2, tzinfo=plus2),
    }
    got = CODEC.decode(CODEC.encode(sent))
    assert got == {"t": [1, [2]], "b": [b"x", b"y"], 5: datetime(2020, 1, 1, tzinfo=UTC)}


def test_regions_pass_through_the_hooks() -> None:
    assert CODEC.decode(CODEC.encode({"kv": [Region()]})) == {"kv": [(1, b"region")]}


@pytest.mark.parametrize(
    "value",
    [
        object(),
        [1, {"a": object()}],
        1 << 64,
        -(1 << 63) - 1,
        [1 << 70],
        "\ud800",
        datetime(2020, 1, 1),  # no time zone: that is the point
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-3))),
        {(1, 2): 3},
        [{(): 1}],
        msgpack.ExtType(5, b""),
        [msgpack.ExtType(REGION_EXT_CODE, b"forged")],
        {"a": {"b": msgpack.ExtType(2, b"")}},
        {msgpack.ExtType(2, b""): 1},
        msgpack.unpackb(b"\xd6\xff\x00\x00\x00\x00"),
        nested(MAX_NESTING + 1),
        nested(100_000),
        memoryview(b"abcdef")[::2],
        1j,
    ],
    ids=lambda value: type(value).__name__,
)
def test_unencodable_and_undecodable_values(value: object) -> None:
    with pytest.raises(LocalProtocolError, match="message") as caught:
        CODEC.encode(value)
    assert len(str(caught.value)) < 400
    assert CODEC.decode(CODEC.encode([1])) == [1]


def test_a_list_within_itself() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(LocalProtocolError):
        CODEC.encode(value)


def test_nesting_at_the_limit_arrives() -> None:
    assert CODEC.decode(CODEC.encode(nested(MAX_NESTING))) == nested(MAX_NESTING)


def test_errors_of_the_hook_keep_their_class() -> None:
    with pytest.raises(RegionError, match="another Fabric"):
        CODEC.encode([{1, 2}])


def test_size_limit_is_exact() -> None:
    codec = make(limit=100)
    body = codec.encode(bytes(98))
    assert len(body) == 100
    with pytest.raises(LocalProtocolError, match=r"101 bytes, and max_message_bytes=100"):
        codec.encode(bytes(99))


def test_a_long_message_leaves_the_codec_usable() -> None:
    codec = make(limit=1 << 23)
    assert codec.decode(codec.encode(bytes(1 << 22))) == bytes(1 << 22)
    assert codec.decode(codec.encode("short")) == "short"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x01\x01",
        b"\x92\x01",
        b"\x91" * 5000,
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xa1\xff",
        b"\x81\x90\x01",
        b"\xd4\x02a",
        b"\xd4\x00a",
        b"\xd4\x80a",
        b"\xd5\xffab",
        b"\xc7\x0c\xff\x00\x00\x00\x00\x7f" + b"\xff" * 7,
    ],
)
def test_malformed_bytes(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="peer sent a message"):
        CODEC.decode(body)


@given(st.binary())
def test_garbage_is_a_value_or_a_remote_protocol_error(body: bytes) -> None:
    try:
        CODEC.decode(memoryview(body))
    except RemoteProtocolError:
        return


def test_hook_failures_are_the_peers() -> None:
    def refuse(code: int, data: bytes) -> object:
        raise RemoteProtocolError("region of 6 bytes")

    def crash(code: int, data: bytes) -> object:
        raise KeyError(code)

    body = CODEC.encode(Region())
    for hook, text in ((refuse, "region of 6 bytes"), (crash, "KeyError")):
        codec = ValueCodec(max_message_bytes=100, pack_default=None, ext_hook=hook)
        with pytest.raises(RemoteProtocolError, match=text):
            codec.decode(body)
    with pytest.raises(RemoteProtocolError, match="unknown extension type 1"):
        ValueCodec(max_message_bytes=100, pack_default=None, ext_hook=None).decode(body)
