"""Waiting for what no event tells of."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_BACKSTOP_S = 15.0


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until the condition holds.

    Raises: TimeoutError: it does not come true.
    """
    async with asyncio.timeout(_BACKSTOP_S):
        while not condition():  # noqa: ASYNC110  (what is waited for sets no event)
            await asyncio.sleep(0)
