"""Two endpoints in one program: a message, a one-sided write, and the news of it."""

import argparse
import asyncio
from typing import Any

from fabricio import Fabric


async def main(provider: str | None = None) -> None:
    """Write four bytes into the memory of a peer that only waits to hear of it."""
    async with Fabric(provider=provider) as alice, Fabric(provider=provider) as bob:
        async with bob.listen() as listener:
            to_bob = await alice.connect(bob.address)
            to_alice = await listener.accept()

        memory = bytearray(b"hello, ....")
        region = await bob.register(memory)
        await to_alice.send({"memory": region.share("w")})

        message: Any = await to_bob.recv()
        page = await alice.register(bytearray(b"page"))
        await to_bob.write(page, message["memory"][7:], notify="written")

        assert await to_alice.recv() == "written"
        assert memory == b"hello, page"
        print(memory.decode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--provider", help="tcp, shm, efa, verbs; default: the best there is")
    asyncio.run(main(parser.parse_args().provider))
