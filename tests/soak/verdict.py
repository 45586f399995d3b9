"""What a soak may and may not show: errors that were provoked, and growth."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

PEER_TIMEOUT_S = 2.0
# A stop that is shorter must cost nobody anything.
HARMLESS_STOP_S = PEER_TIMEOUT_S / 4
# Until both sides have noticed a harm, and have given up what they began meanwhile.
GRACE_S = 15.0

PARTED = {"ClosedResourceError", "PeerUnreachableError", "RemoteTransferError"}
LOST = PARTED | {"PeerLostError", "CompletionError", "BrokenResourceError"}

MAX_GROWTH = 0.05
# A figure says nothing of growth where fewer of them were taken.
MIN_SAMPLES = 4


@dataclass
class Harm:
    """What was done to a process: stopped or killed.

    Attributes:
        began_s, ended_s: on the monotonic clock; it has not ended while that is None.
    """

    began_s: float
    ended_s: float | None = None

    def explains(self, at_s: float) -> bool:
        """Whether an error at that time may come from it."""
        if self.ended_s is None:
            return at_s >= self.began_s
        if self.ended_s - self.began_s < HARMLESS_STOP_S:
            return False
        return self.began_s <= at_s <= self.ended_s + GRACE_S


@dataclass
class Party:
    """A peer, as far as errors with it are concerned.

    Attributes:
        harms: of its process.
        left_s: when it was told to leave; None: it was not.
    """

    harms: list[Harm]
    left_s: float | None = None


def is_expected(kind: str, at_s: float, parties: list[Party]) -> bool:
    """Whether what was done to either of both peers explains an error of that kind then."""
    for party in parties:
        if kind in LOST and any(harm.explains(at_s) for harm in party.harms):
            return True
        if kind in PARTED and party.left_s is not None and at_s >= party.left_s:
            return True
    return False


@dataclass(frozen=True)
class Growth:
    """How a figure has changed.

    Attributes:
        first, last: medians of the first and of the last quarter of its samples.
        count: samples in all.
    """

    first: float
    last: float
    count: int

    @property
    def ratio(self) -> float:
        """Part of the first by which the last is more."""
        if not self.first:
            return 0.0 if not self.last else float("inf")
        return self.last / self.first - 1.0

    @property
    def is_known(self) -> bool:
        """Whether there are samples enough to tell."""
        return self.count >= MIN_SAMPLES

    @property
    def is_too_much(self) -> bool:
        """Whether it has grown by more than it may."""
        return self.is_known and self.ratio > MAX_GROWTH


@dataclass
class Samples:
    """Figures of one process over time, taken when all peers were there and nothing was amiss."""

    held: dict[str, list[float]] = field(default_factory=dict)

    def add(self, held: dict[str, int]) -> None:
        """Take one sample of each figure."""
        for name, value in held.items():
            self.held.setdefault(name, []).append(float(value))

    def growth(self) -> dict[str, Growth]:
        """Return how each figure has changed."""
        found = {}
        for name, values in self.held.items():
            quarter = max(1, len(values) // 4)
            found[name] = Growth(
                statistics.median(values[:quarter]),
                statistics.median(values[-quarter:]),
                len(values),
            )
        return found
