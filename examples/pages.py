"""Scattered pages in one call: gathered out of a peer's records, and scattered back.

The peer holds records of a 64-byte header and a 4 KiB body. The bodies are the pages, so a page
begins every 4,160 bytes, the first after 64. Here they lie side by side.
"""

import argparse
import asyncio

import numpy as np

from fabricio import Fabric, RemoteRegion

RECORDS = 1000
HEADER_BYTES = 64
PAGE_BYTES = 4096


async def main(provider: str | None = None) -> None:
    """Read 100 bodies of 1,000, turn every bit of them and write them back elsewhere."""
    random = np.random.default_rng(7)
    async with Fabric(provider=provider) as alice, Fabric(provider=provider) as bob:
        async with bob.listen() as listener:
            to_bob = await alice.connect(bob.address)
            to_alice = await listener.accept()

        records = random.integers(256, size=(RECORDS, HEADER_BYTES + PAGE_BYTES), dtype=np.uint8)
        expected = records.copy()
        region = await bob.register(records)
        await to_alice.send(region.share("rw"))

        remote = await to_bob.recv()
        assert isinstance(remote, RemoteRegion)
        pages = np.empty((100, PAGE_BYTES), dtype=np.uint8)
        local = await alice.register(pages)
        picked = random.permutation(RECORDS)
        wanted, targets = picked[:100], picked[100:200]

        await to_bob.read_pages(
            local,
            range(100),
            remote,
            wanted,
            page_bytes=PAGE_BYTES,
            remote_offset_bytes=HEADER_BYTES,
            remote_stride_bytes=HEADER_BYTES + PAGE_BYTES,
        )
        assert (pages == expected[wanted, HEADER_BYTES:]).all()

        np.invert(pages, out=pages)
        moved = await to_bob.write_pages(
            local,
            range(100),
            remote,
            targets,
            page_bytes=PAGE_BYTES,
            remote_offset_bytes=HEADER_BYTES,
            remote_stride_bytes=HEADER_BYTES + PAGE_BYTES,
        )
        expected[targets, HEADER_BYTES:] = ~expected[wanted, HEADER_BYTES:]
        assert (records == expected).all()
        print(f"{moved:,} bytes in 100 pages were read and written back; all headers are untouched")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--provider", help="tcp, shm, efa, verbs; default: the best there is")
    asyncio.run(main(parser.parse_args().provider))
