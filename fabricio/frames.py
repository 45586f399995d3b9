"""The frames that messages travel in: their header, and the order of those that come early.

A frame is the header and a slice of an encoded message (of a text, for ERROR). The sequence
counts every frame of its direction from 0.
"""

from __future__ import annotations

import struct
from typing import NoReturn

from fabricio.errors import RemoteProtocolError

# Type, flags, 0, encoded bytes of the whole message, frame sequence, charge consumed so far,
# sequence of a transfer (with NOTIFY), token of a flush or number of a revoked region, frames
# received so far.
HEADER = struct.Struct("<BBHIQQQQ")

# A message costs at least this much of the window.
MIN_CHARGE_BYTES = 256
# Every frame of a message but its last carries at least this much of it.
MIN_FRAGMENT_BYTES = 512
MIN_FRAME_BYTES = HEADER.size + MIN_FRAGMENT_BYTES
MAX_ERROR_BYTES = MIN_FRAGMENT_BYTES

# Types.
DATA, CREDIT, FLUSH, FLUSHED, CLOSE, ERROR, REVOKE, REVOKED = range(1, 9)
# Flags of DATA.
FIRST, LAST, NOTIFY = 1, 2, 4

Frame = tuple[bytes, bytes | memoryview]


class EarlyFrames:
    """Frames that came before one that is still missing; bounded in count and in bytes.

    Attributes:
        duplicate_count: frames that came again and were dropped.
    """

    def __init__(self, *, limit_count: int, limit_bytes: int) -> None:
        """Set the bounds.

        Args:
            limit_count: how far a frame may be ahead of the missing one.
            limit_bytes: what all frames kept may carry, headers aside.
        """
        self._limit_count = limit_count
        self._limit_bytes = limit_bytes
        self._frames: dict[int, bytes] = {}
        self._bytes = 0
        self.duplicate_count = 0

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._frames)

    def keep(self, sequence: int, expected: int, data: bytes | bytearray | memoryview) -> None:
        """Keep a copy of a frame, or drop one that was received before.

        Args:
            sequence: its own.
            expected: that of the frame which is missing.
            data: header and slice.

        Raises:
            RemoteProtocolError: it exceeds the bounds.
        """
        if sequence < expected or sequence in self._frames:
            self.duplicate_count += 1
            return
        if sequence - expected >= self._limit_count:
            refuse(
                f"frame {sequence} while frame {expected} is missing, beyond the "
                f"{self._limit_count} that the window allows"
            )
        self._bytes += len(data) - HEADER.size
        if self._bytes > self._limit_bytes:
            refuse(
                f"{self._bytes} bytes while frame {expected} is missing, beyond the "
                f"{self._limit_bytes} that the window allows"
            )
        self._frames[sequence] = bytes(data)

    def take(self, sequence: int) -> bytes | None:
        """Give the frame with this sequence back, if it is here."""
        data = self._frames.pop(sequence, None)
        if data is not None:
            self._bytes -= len(data) - HEADER.size
        return data


def refuse(what: str) -> NoReturn:
    """Raise RemoteProtocolError about what the peer sent."""
    raise RemoteProtocolError(
        f"the peer sent {what}: it is broken, hostile or of another version. Install the same "
        "release of fabricio on both sides"
    )
