"""What an open Fabric does not do to its process: signals, forks, ends."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.two_process.conftest import Link, OpenLink, OpenPeer

INTERRUPTED = 7  # see peer.py


async def test_signal_dispositions_are_as_before(link: Link) -> None:
    answer = await link.ask(op="sigactions")
    assert len(answer["before"]) > 30
    assert answer["before"] == answer["after"]


async def test_sigterm_ends_the_process(open_peer: OpenPeer) -> None:
    async with open_peer() as peer:
        assert await peer.end(signal.SIGTERM) == -signal.SIGTERM


async def test_a_peer_interrupted_by_ctrl_c_says_goodbye(open_link: OpenLink) -> None:
    async with open_link() as (link, peer):
        await link.works()
        assert await peer.end(signal.SIGINT) == INTERRUPTED
        assert [message async for message in link.endpoint] == []


async def test_a_forked_child_is_refused_and_its_death_changes_nothing(link: Link) -> None:
    assert await link.ask(op="fork") == {"status": -signal.SIGTERM}
    await link.works()
    await link.meets(link.address)  # it is still found
