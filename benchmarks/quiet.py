"""Whether the machine is left to the benchmark.

A program that spins loses far more to a foreign process on its core than one that sleeps, so a
ratio measured on a busy machine flatters whoever spins less.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

_STAT = Path("/proc/stat")
_SAMPLE_S = 0.25

# Cores' worth of foreign work up to which the machine counts as quiet.
QUIET_CORES = 0.1


class ForeignWork:
    """Measures the CPU time that others used, from its making to `cores`."""

    def __init__(self) -> None:
        """Begin."""
        self._busy_s = _busy_s()
        self._own_s = _own_s()
        self._start_s = time.monotonic()

    def cores(self) -> float:
        """Return how many cores others kept busy on average, stolen time included.

        Children of this process count as its own once they were waited for. The kernel counts in
        steps of 10 ms, so a short time gives a coarse answer.
        """
        foreign_s = _busy_s() - self._busy_s - (_own_s() - self._own_s)
        return max(0.0, foreign_s / (time.monotonic() - self._start_s))


def wait_until_quiet(patience_s: float) -> bool:
    """Wait until others use hardly any CPU, for `patience_s` at most; return whether it is so."""
    deadline_s = time.monotonic() + patience_s
    while True:
        work = ForeignWork()
        time.sleep(_SAMPLE_S)  # the length of the sample
        if work.cores() <= QUIET_CORES:
            return True
        if time.monotonic() >= deadline_s:
            return False


def _busy_s() -> float:
    """Return the seconds that all cores were not idle, since the system started."""
    fields = [int(field) for field in _STAT.read_text().split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]  # idle and waiting for I/O
    return (sum(fields) - idle) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    own = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        own += usage.ru_utime + usage.ru_stime
    return own
