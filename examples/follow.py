"""Peers that come and go: one Fabric has an endpoint to each of the others while they are there.

Who is there is said by a list here; `fabricio.discovery` has sources for DNS and Kubernetes.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator

from fabricio import Fabric
from fabricio.address import split_host_port
from fabricio.discovery import Peer, PeerConnected, PeerEvent, PeerJoined, PeerLeft, Peers


async def follow(provider: str | None = None) -> None:
    """Meet bob, and see him leave."""
    async with (
        Fabric(provider=provider) as alice,
        Fabric(provider=provider) as bob,
        bob.listen("127.0.0.1:0") as listener,
    ):
        assert listener.host_port is not None
        peer = Peer(*split_host_port(listener.host_port), name="bob")
        met = asyncio.Event()

        async def membership() -> AsyncIterator[PeerEvent]:
            yield PeerJoined(peer)
            await met.wait()
            yield PeerLeft(peer)

        async with Peers(alice, membership()) as peers:
            async for event in peers:
                if isinstance(event, PeerConnected):
                    await event.endpoint.send("hello")
                    to_alice = await listener.accept()
                    print(f"{event.peer.name} heard {await to_alice.recv()}")
                    met.set()
                else:
                    print(f"{event.peer.name} left")
                    break


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--provider", help="libfabric provider, such as tcp or shm")
    asyncio.run(follow(parser.parse_args().provider))
