"""Remote keys that are not what the peer shared: an access with them is never success."""

from __future__ import annotations

import asyncio
from copy import copy
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fabricio import CompletionError, RemoteRegion
from fabricio.testing import check_endpoint_pair

if TYPE_CHECKING:
    from tests.loopback.conftest import OpenPair

SIZE = 1 << 16
PEER_TIMEOUT_S = 0.3


def with_another_key(remote: RemoteRegion) -> RemoteRegion:
    other = copy(remote)
    other.keys = tuple(key ^ 1 for key in other.keys)
    return other


@pytest.mark.parametrize("read", [False, True], ids=["write", "read"])
async def test_a_wrong_key_is_never_success(open_pair: OpenPair, read: bool) -> None:
    async with open_pair(peer_timeout_s=PEER_TIMEOUT_S) as pair, open_pair() as bystander:
        near, far = await pair.register(SIZE), await pair.register_far(SIZE, seed=2)
        before = far.array.copy()
        move = pair.a.read if read else pair.a.write
        with pytest.raises(CompletionError):
            await move(near.region, with_another_key(far.remote))
        assert np.array_equal(far.array, before)
        await bystander.works()
        # New connections of the same Fabrics work, whatever became of this one.
        a, b = await pair.connect()
        await check_endpoint_pair(a, b, page_count=4)


async def test_a_wrong_keys_notification_is_an_error(open_pair: OpenPair) -> None:
    async with open_pair(peer_timeout_s=PEER_TIMEOUT_S) as pair:
        near, far = await pair.register(SIZE), await pair.register_far(SIZE)
        with pytest.raises(CompletionError):
            await pair.a.write(near.region, with_another_key(far.remote), notify="never")
        async with asyncio.timeout(10 * PEER_TIMEOUT_S):
            with pytest.raises(CompletionError):
                await pair.b.recv()
