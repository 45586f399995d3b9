"""`Replay`: frames that may have to be sent again, since they took a path that failed.

Several paths may lead to a peer, and messages take the first that works (route.h). Whatever was on
its way when that fails is lost, whether or not the provider called it sent. So frames are kept
until the peer has said that it received them. Both sides hear of each path that fails, and send
what they have kept by the next one.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fabricio.frames import Frame


class Replay:
    """Frames of one direction that the peer is not known to have, the oldest first.

    Thread: one at a time.
    """

    def __init__(self) -> None:
        """Begin with nothing sent."""
        self._kept: deque[Frame] = deque()
        self._received = 0  # by the peer, so that _kept[0] has this sequence
        self._again: deque[Frame] = deque()

    def __len__(self) -> int:
        """How many frames are kept."""
        return len(self._kept)

    @property
    def idle(self) -> bool:
        """Whether no frame has to leave once more."""
        return not self._again

    def keep(self, frame: Frame) -> None:
        """Keep the next frame of the direction."""
        self._kept.append(frame)

    def received(self, count: int) -> None:
        """Let go of the first `count` frames: the peer has them. An older word is no news."""
        while self._received < count:
            self._kept.popleft()
            self._received += 1

    def rewind(self) -> None:
        """Have all that is kept leave once more."""
        self._again = self._kept.copy()

    def next_frame(self) -> Frame | None:
        """Take the next frame that leaves once more, if there is one."""
        return self._again.popleft() if self._again else None
