"""The model's waves on simulated NICs: `python simulated.py SETTING`, a process of its own.

libfabric looks for providers once in a process. Ends without a word and with status 0 if every byte
was right.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import sys
from pathlib import Path
from typing import Any

import uvloop

from fabricio import Fabric
from fabricio.testing import SimulatedNics

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.model.waves import run_waves

# Setting -> NICs and workers of either side, what the NICs are like, what befalls them, waves.
SETTINGS: dict[str, tuple[tuple[int, int], tuple[int, int], dict[str, Any], str, int]] = {
    "one": ((1, 1), (1, 1), {}, "", 60),
    "immediates take receives": ((1, 1), (1, 1), {"immediates_take_receives": True}, "", 40),
    "short queues": ((2, 2), (1, 1), {"tx_size": 8, "rx_size": 16}, "", 40),
    "lanes": ((4, 4), (1, 1), {}, "", 60),
    "workers": ((4, 4), (4, 2), {}, "", 60),
    "unequal": ((3, 5), (3, 2), {}, "", 60),
    "storm": ((2, 2), (2, 1), {}, "storm", 40),
    "operations fail": ((4, 4), (2, 1), {}, "operations fail", 60),
    "lanes fail": ((4, 4), (1, 1), {}, "lanes fail", 60),
    "workers whose lanes fail": ((8, 8), (2, 2), {}, "lanes fail", 60),
    "workers fail": ((4, 4), (4, 4), {}, "lanes fail", 60),
    "unequal workers fail": ((8, 8), (8, 2), {}, "lanes fail", 60),
}


def befall(nics: SimulatedNics, what: str, near: int, far: int) -> None:
    """Arrange what happens to the NICs during the waves."""
    if what == "storm":
        for nic in range(near + far):
            nics.storm(nic, 0.5, seed=nic + 1)
    elif what == "operations fail":
        for number in range(60):
            kind: Any = ("write", "read")[number % 2]
            nics.fail(number % (near + far), 60 * number, kind=kind, code=errno.EIO)
    elif what == "lanes fail":
        # All but one of each worker, each at another moment, on one side or the other.
        for nic in range(near):
            if nic % 4:
                side = nic if nic % 2 else near + nic
                kind = ("write", "send", "read")[nic % 3]
                nics.fail(side, 40 * nic, kind=kind, code=errno.EHOSTUNREACH)


async def run(nics: SimulatedNics, setting: str) -> None:
    (near, far), (near_workers, far_workers), _, what, waves = SETTINGS[setting]
    options: dict[str, Any] = {"provider": "sim", "pin": False, "stripe_bytes": 4096}
    async with (
        Fabric(nics=nics.domains[:near], workers=near_workers, **options) as a,
        Fabric(nics=nics.domains[near:], workers=far_workers, **options) as b,
    ):
        befall(nics, what, near, far)
        await run_waves(a, b, setting, waves, may_fail=what == "operations fail")
        counts = a.statistics(), b.statistics()
        failed = sum(count.lanes_failed for count in counts)
        assert (failed > 0) == (what == "lanes fail"), failed
        failed = sum(count.operations_failed for count in counts)
        assert what != "operations fail" or failed > 40, failed


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a loop that does not complain about a busy machine."""
    loop = uvloop.new_event_loop()
    loop.slow_callback_duration = 3600.0
    return loop


def main(setting: str) -> None:
    logging.getLogger("fabricio").addHandler(logging.NullHandler())
    logging.getLogger("fabricio").propagate = False
    (near, far), _, hardware, _, _ = SETTINGS[setting]
    with (
        SimulatedNics(near + far, order="random", seed=len(setting), **hardware) as nics,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        runner.run(run(nics, setting))


if __name__ == "__main__":
    main(sys.argv[1])
