"""`Membership`: who is there, and what of it was told already. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, KeysView

MAX_PORT = 65535

# Of the addresses that peers are reached by.
Family = Literal["v4", "v6"]


@dataclass(frozen=True, slots=True, order=True)
class Peer:
    """Where a peer's rendezvous listens.

    Attributes:
        host: numeric address.
        port: TCP port, 1 to 65535.
        name: what the source calls it: a pod, the target of an SRV record, or `host` again.
    """

    host: str
    port: int
    name: str

    @property
    def host_port(self) -> str:
        """What `Fabric.connect` takes."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PeerJoined:
    """A peer is there that was not there before."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class PeerLeft:
    """A peer that had joined is there no more."""

    peer: Peer


PeerEvent = PeerJoined | PeerLeft

_Place = tuple[str, int]


class Membership:
    """The members, and the difference to what its reader was told.

    Only the difference is kept, so that a reader who is slow never makes it grow: a peer that came
    and went in the meantime is not mentioned.
    """

    def __init__(self) -> None:
        """Begin with nobody."""
        self._known: dict[_Place, Peer] = {}
        self._told: dict[_Place, Peer] = {}
        self._different: dict[_Place, None] = {}  # in the order in which they are told

    @property
    def peers(self) -> tuple[Peer, ...]:
        """All members, told or not."""
        return tuple(self._known.values())

    @property
    def places(self) -> KeysView[tuple[str, int]]:
        """Host and port of all members."""
        return self._known.keys()

    def replace(self, peers: Iterable[Peer]) -> bool:
        """Take all that are members now; of two at the same host and port the first counts.

        Returns: whether there is anything to tell.
        """
        known: dict[_Place, Peer] = {}
        for peer in peers:
            known.setdefault((peer.host, peer.port), peer)
        self._known = known
        left = [place for place, peer in self._told.items() if known.get(place) != peer]
        joined = [place for place in known if place not in self._told]
        self._different = dict.fromkeys(left + joined)
        return bool(self._different)

    def take(self) -> PeerEvent | None:
        """Return what to tell next, those who left first; None: all is told."""
        place = next(iter(self._different), None)
        if place is None:
            return None
        del self._different[place]
        told, known = self._told.pop(place, None), self._known.get(place)
        if told is None:
            assert known is not None
            self._told[place] = known
            return PeerJoined(known)
        if known is not None:
            self._different[place] = None  # another peer at the same place
        return PeerLeft(told)
