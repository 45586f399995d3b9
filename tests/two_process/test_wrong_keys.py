"""A key that the peer never gave out: the sender does not see success, and others go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from fabricio import BrokenResourceError, CompletionError

if TYPE_CHECKING:
    from tests.two_process.conftest import OpenLink

SIZE = 100_000


@pytest.mark.parametrize("op", ["write", "read"])
async def test_never_success(open_link: OpenLink, shared_peer: str, op: str) -> None:
    async with open_link(peer_timeout_s=1.0) as (link, peer):
        data = np.random.default_rng(1).integers(256, size=SIZE, dtype=np.uint8)
        region = await link.fabric.register(data)
        wrong = await link.remote(SIZE, seed=2)
        wrong.keys = tuple(key ^ 1 << 40 for key in wrong.keys)
        move = link.endpoint.write if op == "write" else link.endpoint.read
        with pytest.raises((CompletionError, BrokenResourceError)):
            await move(region, wrong)
        await link.meets(shared_peer)
        await link.meets(peer.address)
