"""Region descriptors: what is read back, and how what nobody could have meant is refused."""

from __future__ import annotations

import re
import struct

import pytest

from fabricio.descriptor import Descriptor
from fabricio.errors import RemoteProtocolError

GOOD = Descriptor(3, bytes(range(16)), 7, 1 << 63, 1 << 20, 3, (1, (1 << 64) - 1))
HEAD_BYTES = len(GOOD.encode()) - 16

BAD = {
    "of 0 bytes, not of 52 at least": b"",
    "of 51 bytes, not of 52 at least": GOOD.encode()[: HEAD_BYTES - 1],
    "of version 2, where this side knows 1": b"\2" + GOOD.encode()[1:],
    "unknown access bits 0x0": Descriptor(0, bytes(16), 1, 0, 8, 1, (1,)).encode(),
    "unknown access bits 0x4": Descriptor(4, bytes(16), 1, 0, 8, 1, (1,)).encode(),
    "of 52 bytes for 0 keys": Descriptor(1, bytes(16), 1, 0, 8, 1, ()).encode(),
    "of 69 bytes for 2 keys": GOOD.encode() + b"\0",
    "of 60 bytes for 2 keys": GOOD.encode()[:-8],
    "that no worker has": Descriptor(1, bytes(16), 1, 0, 8, 0, (1,)).encode(),
    "of 9 bytes at 0xfffffffffffffff8, beyond": Descriptor(
        1, bytes(16), 1, (1 << 64) - 8, 9, 1, (1,)
    ).encode(),
}


def test_the_layout() -> None:
    assert struct.calcsize("<BBH16sQQQQ") == HEAD_BYTES
    assert Descriptor.decode(GOOD.encode()) == GOOD


def test_one_key_for_all_lanes_is_written_once() -> None:
    same = Descriptor(1, bytes(16), 1, 0, 8, 3, (5,) * 32)
    assert len(same.encode()) == HEAD_BYTES + 8
    assert Descriptor.decode(same.encode()).keys == (5,)


def test_the_last_byte_of_the_address_space() -> None:
    last = Descriptor(1, bytes(16), 1, (1 << 64) - 8, 8, 1, (1,))
    assert Descriptor.decode(last.encode()) == last


@pytest.mark.parametrize("text", BAD)
def test_a_refusal_says_whose_it_was_and_what_to_do(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match=re.escape(text)) as caught:
        Descriptor.decode(BAD[text])
    assert str(caught.value).startswith("the peer sent a region descriptor ")
    assert str(caught.value).endswith(" Install the same release of fabricio on both sides")
