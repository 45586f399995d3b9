"""What the fields of `FabricStatistics` count, as far as two endpoints can show it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fabricio import Fabric
    from tests.loopback.conftest import OpenPair

PAGE = 8192


def grown(fabric: Fabric, before: dict[str, int], *names: str) -> dict[str, int]:
    after = asdict(fabric.statistics())
    return {name: after[name] - before[name] for name in names}


async def test_operations_are_not_frames(open_pair: OpenPair) -> None:
    async with open_pair(segments=1, merge=False) as pair:
        near, far = await pair.register(4 * PAGE), await pair.register_far(4 * PAGE)
        await pair.a.flush()
        before, far_before = asdict(pair.near.statistics()), asdict(pair.far.statistics())
        # Without confirmation neither side sends a frame.
        for move in (pair.a.write_pages, pair.a.read_pages):
            pages = range(3)
            await move(near.region, pages, far.remote, pages, page_bytes=PAGE, confirm=False)
        counts = grown(
            pair.near,
            before,
            *("operations_posted", "operations_completed", "operations_failed", "pages"),
            *("bytes_written", "bytes_read"),
        )
        assert counts == {
            "operations_posted": 6,
            "operations_completed": 6,
            "operations_failed": 0,
            "pages": 6,
            "bytes_written": 3 * PAGE,
            "bytes_read": 3 * PAGE,
        }
        assert not any(grown(pair.far, far_before, "operations_posted", "pages").values())
        before = asdict(pair.near.statistics())
        for number in range(5):
            await pair.a.send(number)
        await pair.a.flush()
        assert grown(pair.near, before, "operations_posted") == {"operations_posted": 0}
        assert grown(pair.near, before, "frames_sent")["frames_sent"] >= 6
