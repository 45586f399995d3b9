"""Random transfers of every kind against a model of both memories: see waves.py."""

from __future__ import annotations

from typing import Any

import pytest

from fabricio import Fabric
from tests.model.waves import run_waves

# How many waves, and with which options.
VARIANTS: dict[str, tuple[int, dict[str, Any]]] = {
    "default": (20, {}),
    "short operations": (8, {"max_operation_bytes": 1000}),
    "one operation at a time": (5, {"inflight_count": 1}),
    "little in flight": (8, {"inflight_bytes": 5000, "max_operation_bytes": 3000, "quantum": 3}),
    "nothing merged": (8, {"merge": False}),
    "one segment": (8, {"segments": 1}),
    "two segments": (8, {"segments": 2}),
    "three segments": (8, {"segments": 3}),
    "four segments": (8, {"segments": 4}),
    "busy polling": (5, {"polling": "busy"}),
}


@pytest.fixture(autouse=True)
async def clean(loop_errors_refused: None) -> None:
    """Every test here must leave nothing behind."""


@pytest.mark.parametrize("variant", VARIANTS)
async def test_every_byte(options: dict[str, Any], variant: str) -> None:
    waves, overrides = VARIANTS[variant]
    async with Fabric(**options, **overrides) as near, Fabric(**options, **overrides) as far:
        deepest = await run_waves(near, far, variant, waves)
        # Several pages may share an operation, and half of the operations are the other side's.
        attributes = near.attributes
        assert deepest > 2 * attributes.segments * attributes.inflight_count
