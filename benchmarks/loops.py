"""The event loops to measure on, and the CPU time of this process."""

from __future__ import annotations

import asyncio
import resource
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

import uvloop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_FACTORIES: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
}


def run_on(loop: str, function: Callable[[*Ts], Coroutine[Any, Any, T]], *arguments: *Ts) -> T:
    """Call a coroutine function on a new loop, "uvloop" or "asyncio", and return its result."""
    with asyncio.Runner(loop_factory=_FACTORIES[loop]) as runner:
        return runner.run(function(*arguments))


def cpu_s() -> float:
    """Return the CPU seconds of all threads of this process so far, user and system."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
