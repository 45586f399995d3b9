"""Tasks that end with whoever owns them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until all of them have ended; their outcome is theirs to tell.

    Cancellation: they are cancelled once more, which hurries those that close something, and
        CancelledError is raised when all have ended.
    """
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    cancelled: asyncio.CancelledError | None = None
    while running := [task for task in running if not task.done()]:
        try:
            await asyncio.wait(running)
        except asyncio.CancelledError as error:
            cancelled = error
            for task in running:
                task.cancel()
    if cancelled is not None:
        raise cancelled
