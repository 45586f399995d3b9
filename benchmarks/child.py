"""The second process of a Python contender: started, known to be ready, ended."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

READY = "ready "

_ROOT = Path(__file__).parent.parent
_START_TIMEOUT_S = 20.0
_END_TIMEOUT_S = 20.0


def announce(address: str) -> None:
    """Print the readiness line: called by the child when it can be reached at `address`."""
    print(f"{READY}{address}", flush=True)


@asynccontextmanager
async def open_child(module: str, *arguments: str) -> AsyncIterator[str]:
    """Start `python -m module arguments` and yield the address that it announces.

    On leaving, the child must end by itself, for the one who connected to it has gone; it is
    killed when it does not, and when the body failed.

    Raises:
        RuntimeError: it ended before it was ready, or with an exit status other than 0.
        TimeoutError: it was not ready, or did not end, in time.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, stdout=asyncio.subprocess.PIPE, cwd=_ROOT
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            line = (await process.stdout.readline()).decode()
        if not line.startswith(READY):
            raise RuntimeError(f"{module} ended before it was ready; its errors are above")
        yield line.removeprefix(READY).strip()
        async with asyncio.timeout(_END_TIMEOUT_S):
            status = await process.wait()
        if status != 0:
            raise RuntimeError(f"{module} ended with exit status {status}; its errors are above")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
