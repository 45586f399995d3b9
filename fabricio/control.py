"""Questions between two message streams, and their answers: flushes and revocations.

C1 A question leaves only after all messages that were queued before it.
C2 Of each kind at most one question is unanswered in each direction; others wait.
C3 Neither questions nor answers cost anything of the window, or wait for it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from fabricio.events import FlushAcknowledged, RegionRevoked, RevokeAcknowledged
from fabricio.frames import FLUSH, FLUSHED, REVOKE, REVOKED, refuse

if TYPE_CHECKING:
    from fabricio.events import Event

# Types that are handled here.
QUESTIONS = frozenset((FLUSH, FLUSHED, REVOKE, REVOKED))


class Control:
    """Both directions of one stream's questions.

    Attributes:
        active: whether `take` may have something; False is certain.

    Thread: one at a time.
    """

    __slots__ = (
        "_answers",
        "_flush_done",
        "_flush_out",
        "_flush_token",
        "_flushes",
        "_peer_flush",
        "_peer_revoke",
        "_revocations",
        "_revoke_out",
        "active",
    )

    def __init__(self) -> None:
        """Begin without questions."""
        self._flushes: deque[tuple[int, int]] = deque()  # token, messages before it
        self._flush_token = 0
        self._flush_out = 0  # token of the FLUSH frame under way, else 0
        self._flush_done = 0
        self._revocations: deque[tuple[int, int]] = deque()  # region, messages before it
        self._revoke_out: int | None = None  # region of the REVOKE frame under way
        self._answers: deque[tuple[int, int]] = deque()  # type, token or region
        self._peer_flush = 0
        self._peer_revoke: int | None = None  # region that the peer waits for
        self.active = False

    def flush(self, after: int) -> int:
        """Queue a flush behind the first `after` messages; return its token, from 1."""
        self._flush_token += 1
        self._flushes.append((self._flush_token, after))
        self.active = True
        return self._flush_token

    def revoke(self, region: int, after: int) -> None:
        """Queue a revocation behind the first `after` messages."""
        self._revocations.append((region, after))
        self.active = True

    def let_go(self, region: int) -> None:
        """Queue the answer to the peer's revocation.

        Raises: ValueError: the peer does not wait for it.
        """
        if region != self._peer_revoke:
            raise ValueError(f"region={region} is not being revoked by the peer")
        self._peer_revoke = None
        self._answers.append((REVOKED, region))
        self.active = True

    def take(self, sent_count: int) -> tuple[int, int] | None:
        """Take the next frame that may leave.

        Args:
            sent_count: messages that have left.

        Returns: its type, and its token or region; None: none may leave now.
        """
        if self._answers:
            return self._answers.popleft()
        flushes = self._flushes
        if flushes and not self._flush_out and flushes[0][1] <= sent_count:
            # One question for all whose messages have left: its token is that of the last.
            while flushes and flushes[0][1] <= sent_count:
                self._flush_out = flushes.popleft()[0]
            return FLUSH, self._flush_out
        revocations = self._revocations
        if revocations and self._revoke_out is None and revocations[0][1] <= sent_count:
            self._revoke_out = revocations.popleft()[0]
            return REVOKE, self._revoke_out
        self.active = bool(flushes or revocations)
        return None

    def receive(self, kind: int, number: int, events: list[Event]) -> None:
        """Take a question or an answer of the peer.

        Args:
            kind: one of `QUESTIONS`.
            number: its token or region.
            events: what becomes known is appended.

        Raises: RemoteProtocolError: it breaks C2, or answers what was not asked.
        """
        if kind == FLUSH:
            if self._answers_with(FLUSHED) or number <= self._peer_flush:
                refuse(f"flush {number} after flush {self._peer_flush}, too early or again")
            self._peer_flush = number
            self._answers.append((FLUSHED, number))
            self.active = True
        elif kind == FLUSHED:
            if not number or number != self._flush_out:
                refuse(f"an answer to flush {number}, where {self._flush_out or 'none'} is out")
            self._flush_out = 0
            events += map(FlushAcknowledged, range(self._flush_done + 1, number + 1))
            self._flush_done = number
        elif kind == REVOKE:
            if self._peer_revoke is not None or self._answers_with(REVOKED):
                refuse(f"a revocation of region {number} before the one before it was answered")
            self._peer_revoke = number
            events.append(RegionRevoked(number))
        else:
            if self._revoke_out is None or number != self._revoke_out:
                out = "none" if self._revoke_out is None else self._revoke_out
                refuse(f"an answer to a revocation of region {number}, where {out} is out")
            self._revoke_out = None
            events.append(RevokeAcknowledged(number))

    def _answers_with(self, kind: int) -> bool:
        """Whether an answer of this type has not left yet."""
        return any(answer == kind for answer, _ in self._answers)
