"""Two processes that share a secret, and others that do not."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from fabricio import AuthenticationError, Fabric, PeerUnreachableError
from tests.two_process.conftest import connect_to

if TYPE_CHECKING:
    from tests.two_process.conftest import OpenPeer

SECRET = b"a secret of thirty-two bytes ..."
NEW = b"the secret that comes after it ."


async def test_only_who_knows_it_is_served(open_peer: OpenPeer, options: dict[str, Any]) -> None:
    async with (
        open_peer(SECRET) as peer,
        connect_to(peer.address, options | {"secret": lambda: [NEW, SECRET]}) as link,
    ):
        await link.works()
        for secret in (NEW, None):
            async with Fabric(**options, secret=secret) as stranger:
                with pytest.raises(AuthenticationError, match="secret="):
                    await stranger.connect(peer.address)
        await link.works()
        await link.meets(peer.address)


async def test_who_has_one_takes_nobody_who_has_none(
    open_peer: OpenPeer, options: dict[str, Any]
) -> None:
    async with open_peer() as peer, Fabric(**options, secret=SECRET) as fabric:
        with pytest.raises(AuthenticationError, match="secret="):
            await fabric.connect(peer.address)
        async with connect_to(peer.address, options) as link:
            await link.works()


async def test_a_peer_is_killed_and_another_comes(
    open_peer: OpenPeer, options: dict[str, Any]
) -> None:
    async with Fabric(
        **options, secret=SECRET, peer_timeout_s=1.0, connect_timeout_s=3.0
    ) as fabric:
        async with open_peer(SECRET) as peer:
            endpoint = await fabric.connect(peer.address)
            await peer.end(signal.SIGKILL)
            with pytest.raises(PeerUnreachableError):
                await fabric.connect(peer.address)
            await endpoint.aclose()
        async with (
            open_peer(SECRET) as peer,
            await fabric.connect(peer.address) as endpoint,
        ):
            await endpoint.send({"op": "echo", "value": 1})
            assert await endpoint.recv() == {"value": 1}
