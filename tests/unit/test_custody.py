"""Custody: an object is kept until a process has ended, and no longer."""

import asyncio
import gc
import os
import subprocess
import sys
import weakref

from fabricio.custody import Custody


def start(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)


class Kept:
    """Something whose end can be seen."""


async def test_it_is_kept_until_the_process_ends() -> None:
    process = await asyncio.to_thread(start, "input()")
    ended = asyncio.Event()
    kept = Kept()
    seen = weakref.ref(kept)
    Custody(asyncio.get_running_loop(), process.pid, kept, ended.set)
    del kept
    gc.collect()
    assert seen() is not None
    assert not ended.is_set()
    assert process.stdin is not None
    process.stdin.close()
    await ended.wait()  # before anybody has waited for the process
    assert seen() is None
    process.wait()


async def test_a_process_that_has_ended_keeps_nothing() -> None:
    process = await asyncio.to_thread(start, "")
    assert process.stdin is not None
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222  (at once)
    ended: list[bool] = []
    for _ in range(2):  # a zombie, and nothing at all
        Custody(asyncio.get_running_loop(), process.pid, Kept(), lambda: ended.append(True))
        process.wait()
    assert ended == [True, True]
