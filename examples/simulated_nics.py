"""A write over NICs that do not exist, one of whose operations fails because it was told to."""

import asyncio
import errno

from fabricio import CompletionError, Fabric, RemoteRegion
from fabricio.testing import SimulatedNics


async def main(nics: SimulatedNics) -> None:
    """Write twice: the first fails as scripted, the second succeeds."""
    async with (
        Fabric(provider="sim", nics=[nics.domains[0]]) as near,
        Fabric(provider="sim", nics=[nics.domains[1]]) as far,
    ):
        async with far.listen() as listener:
            to_far = await near.connect(far.address)
            to_near = await listener.accept()
        await to_near.send((await far.register(bytearray(1 << 20))).share("w"))
        remote = await to_far.recv()
        assert isinstance(remote, RemoteRegion)
        local = await near.register(bytearray(1 << 20))

        nics.fail(0, code=errno.EIO, provider_code=4711)
        try:
            await to_far.write(local, remote)
        except CompletionError as error:
            print(error)
        print(await to_far.write(local, remote), "bytes written")
        print(nics.statistics(0))


if __name__ == "__main__":
    with SimulatedNics(order="random", seed=7) as simulated:
        asyncio.run(main(simulated))
