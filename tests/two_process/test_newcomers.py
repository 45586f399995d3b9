"""One Fabric that meets more others, one after the other, than its provider has places for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fabricio import Fabric

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SCRIPT = Path(__file__).with_name("newcomers.py")
COUNT = 300  # shm has 256 places


@pytest.mark.parametrize("who", ["peer", "newcomer"])
async def test_newcomers_find_a_place(options: dict[str, Any], provider: str, who: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), provider, str(COUNT), who, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with Fabric(**options) as fabric:
            for _ in range(COUNT):
                address = (await process.stdout.readline()).decode().strip()
                async with await fabric.connect(address) as endpoint:
                    await endpoint.send("hello")
                    if who == "newcomer":
                        assert [message async for message in endpoint] == []
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
