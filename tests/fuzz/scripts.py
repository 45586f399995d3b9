"""Bytes as a source of decisions, and what may be done to a valid body on its way."""

from __future__ import annotations

import struct
from typing import Any

import msgpack

ABSURD = (0, 1, 255, 256, 512, 65535, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 63, (1 << 64) - 1)


class Script:
    """Hands out the bytes of an input, piece by piece; zeros when they are used up."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def __bool__(self) -> bool:
        return self._place < len(self._data)

    def take(self, count: int) -> bytes:
        piece = self._data[self._place : self._place + count]
        self._place += count
        return piece.ljust(count, b"\0")

    def below(self, limit: int) -> int:
        """Draw a number below `limit`."""
        return int.from_bytes(self.take(2 if limit <= 1 << 16 else 8), "little") % limit

    def rest(self) -> bytes:
        piece = self._data[self._place :]
        self._place = len(self._data)
        return piece


def _flip(script: Script, body: bytes) -> bytes:
    changed = bytearray(body)
    place = script.below(8 * len(changed))
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def _truncate(script: Script, body: bytes) -> bytes:
    return body[: script.below(len(body))]


def _extend(script: Script, body: bytes) -> bytes:
    return body + script.take(1 + script.below(64))


def _absurd_number(script: Script, body: bytes) -> bytes:
    """Put a number that nobody means over any eight bytes, in either byte order."""
    number = struct.pack("<>"[script.below(2)] + "Q", ABSURD[script.below(len(ABSURD))])
    place = script.below(len(body))
    return body[:place] + number + body[place + len(number) :]


def _splice(script: Script, body: bytes) -> bytes:
    start, end = sorted((script.below(len(body) + 1), script.below(len(body) + 1)))
    return body[:end] + body[start:]


def _deep(script: Script, body: bytes) -> bytes:
    """Nest what follows in containers, many of which say that they hold more than there is."""
    head = (
        b"\x91",
        b"\x81\xa1x",
        b"\xdc\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
    )
    place = script.below(len(body) + 1)
    return body[:place] + head[script.below(len(head))] * (1 + script.below(1500)) + body[place:]


def _huge_extension(script: Script, body: bytes) -> bytes:
    place = script.below(len(body) + 1)
    length = ABSURD[script.below(len(ABSURD))] % (1 << 32)
    return body[:place] + b"\xc9" + struct.pack(">I", length) + script.take(1) + body[place:]


def _other_field(script: Script, body: bytes) -> bytes:
    """Change one field of a msgpack map to a value of another kind, or leave it out."""
    values: tuple[Any, ...] = (None, True, -1, 0.5, "", "x" * 600, b"", bytes(17), [], [0] * 65, {})
    values += ABSURD
    try:
        content = dict(msgpack.unpackb(body, strict_map_key=False))
        name = sorted(content, key=repr)[script.below(len(content))]
        content[name] = values[script.below(len(values))]
        if not script.below(4):
            del content[name]
        packed: bytes = msgpack.packb(content)
    except Exception:  # it is no map, or none that can be written
        return _flip(script, body)
    return packed


CHANGES = (
    _flip,
    _truncate,
    _extend,
    _absurd_number,
    _splice,
    _deep,
    _huge_extension,
    _other_field,
)


def change(script: Script, body: bytes) -> bytes:
    """Do one or more of these to a body, as the script has it."""
    for _ in range(1 + script.below(3)):
        if body:
            body = CHANGES[script.below(len(CHANGES))](script, body)
    return body
