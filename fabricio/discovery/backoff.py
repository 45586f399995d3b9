"""`Backoff`: pauses between attempts, twice as long each time, so that many peers spread out."""

from __future__ import annotations

import random


class Backoff:
    """Pauses from `first_s` to `longest_s` seconds, each up to a quarter shorter, at random."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        """Begin with the shortest."""
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    def next_s(self) -> float:
        """Return how many seconds to pause now; the next pause is longer."""
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, self._longest_s)
        return pause_s * random.uniform(0.75, 1.0)

    def reset(self) -> None:
        """Begin again with the shortest."""
        self._next_s = self._first_s
