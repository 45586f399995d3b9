"""Who is told what, when members come and go, and pauses that grow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fabricio.discovery.backoff import Backoff
from fabricio.discovery.membership import Membership, Peer, PeerJoined, PeerLeft


def peer(number: int, name: str = "a") -> Peer:
    return Peer(f"10.0.0.{number}", 7000, name)


def told(membership: Membership) -> list[object]:
    return list(iter(membership.take, None))


def test_host_port_is_what_connect_takes() -> None:
    assert Peer("10.0.0.1", 7000, "a").host_port == "10.0.0.1:7000"
    assert Peer("fd00::1", 7000, "a").host_port == "[fd00::1]:7000"


def test_those_who_left_are_told_before_those_who_joined() -> None:
    membership = Membership()
    assert membership.replace([peer(1), peer(2)])
    assert told(membership) == [PeerJoined(peer(1)), PeerJoined(peer(2))]
    assert membership.replace([peer(2), peer(3)])
    assert told(membership) == [PeerLeft(peer(1)), PeerJoined(peer(3))]


def test_the_same_again_is_nothing_to_tell() -> None:
    membership = Membership()
    membership.replace([peer(1), peer(2)])
    told(membership)
    assert not membership.replace([peer(2), peer(1)])
    assert told(membership) == []


def test_another_peer_at_the_same_place_is_another_peer() -> None:
    membership = Membership()
    membership.replace([peer(1, "old")])
    told(membership)
    membership.replace([peer(1, "new")])
    assert told(membership) == [PeerLeft(peer(1, "old")), PeerJoined(peer(1, "new"))]


def test_two_at_one_place_are_one() -> None:
    membership = Membership()
    membership.replace([peer(1, "first"), peer(1, "second")])
    assert membership.peers == (peer(1, "first"),)


def test_who_came_and_went_unseen_is_not_mentioned() -> None:
    membership = Membership()
    membership.replace([peer(1)])
    membership.replace([])
    assert told(membership) == []
    membership.replace([peer(1)])
    told(membership)
    membership.replace([])
    membership.replace([peer(1)])
    assert told(membership) == []


@given(
    st.lists(st.tuples(st.dictionaries(st.integers(1, 4), st.sampled_from("ab")), st.booleans()))
)
def test_what_is_told_adds_up_to_the_members(steps: list[tuple[dict[int, str], bool]]) -> None:
    membership = Membership()
    reader: set[Peer] = set()
    for members, reads_all in [*steps, ({}, True), ({1: "a"}, True)]:
        peers = [peer(number, name) for number, name in members.items()]
        membership.replace(peers)
        assert set(membership.peers) == set(peers)
        for event in told(membership) if reads_all else filter(None, [membership.take()]):
            if isinstance(event, PeerJoined):
                assert event.peer not in reader
                reader.add(event.peer)
            else:
                assert isinstance(event, PeerLeft)
                reader.remove(event.peer)
            assert len({(each.host, each.port) for each in reader}) == len(reader)
        if reads_all:
            assert reader == set(peers)


def test_pauses_grow_to_the_longest_and_begin_anew() -> None:
    backoff = Backoff(1.0, 5.0)
    for longest in (1.0, 2.0, 4.0, 5.0, 5.0):
        assert 0.75 * longest <= backoff.next_s() <= longest
    backoff.reset()
    assert backoff.next_s() <= 1.0
