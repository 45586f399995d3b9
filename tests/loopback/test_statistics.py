"""What the fields of `FabricStatistics` count, as far as two endpoints can show it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fabricio import Fabric

if TYPE_CHECKING:
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


async def test_connecting_within_a_process_counts_nothing_as_broken(
    open_pair: OpenPair, options: dict[str, Any]
) -> None:
    async with open_pair() as pair, pair.far.listen() as listener:
        for _ in range(20):
            async with (
                Fabric(**options) as other,
                await other.connect(pair.far.address),
                await listener.accept(),
            ):
                pass
        for fabric in (pair.near, pair.far):
            statistics = fabric.statistics()
            assert statistics.malformed_frames == 0
            assert statistics.stray_completions == 0
