"""EndpointSlices: what the API server says of the pods behind a service, made one list. No I/O."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fabricio.discovery.membership import MAX_PORT, Peer

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from fabricio.discovery.membership import Family

# By the address type of a slice, those that are preferred first.
FAMILIES: dict[str, Family] = {"IPv4": "v4", "IPv6": "v6"}
_RANKS = {family: rank for rank, family in enumerate(FAMILIES.values())}


class MalformedError(ValueError):
    """It is not what the API promises."""


@dataclass(frozen=True, slots=True)
class SliceEndpoint:
    """One pod in one slice.

    Attributes:
        pod: the same for all entries of one pod.
        name: of the pod, else of the host, else the address.
        host: first of its addresses, which stands for all.
        ready: takes part, as the API says; always so with `publishNotReadyAddresses`.
        serving: answers, whether or not it is terminating.
        terminating: has been told to end.
    """

    pod: str
    name: str
    host: str
    ready: bool
    serving: bool
    terminating: bool


@dataclass(frozen=True, slots=True)
class Slice:
    """One EndpointSlice.

    Attributes:
        name: unique in its namespace.
        family: of its addresses; None: none that can be connected to.
        ports: by name; the only port of a service may have the name "".
        endpoints: in the order of the slice.
    """

    name: str
    family: Family | None
    ports: dict[str, int]
    endpoints: tuple[SliceEndpoint, ...]

    @classmethod
    def parse(cls, item: object) -> Slice:
        """Read what the API server sent.

        Raises: MalformedError: it is no EndpointSlice; the text says why.
        """
        table = _table(item, "EndpointSlice")
        name = _text(_table(table.get("metadata"), "metadata").get("name"), "metadata.name")
        family = FAMILIES.get(_text(table.get("addressType"), "addressType"))
        ports: dict[str, int] = {}
        for entry in _tables(table.get("ports"), "ports"):
            number = entry.get("port")
            if number is None:
                continue  # any port, which names none
            if type(number) is not int or not 1 <= number <= MAX_PORT:
                raise MalformedError(f"the port {number!r} in {name}")
            if entry.get("protocol") in (None, "TCP"):
                ports[_text(entry.get("name") or "", "ports.name")] = number
        if family is None:
            return cls(name, None, ports, ())
        entries = _tables(table.get("endpoints"), "endpoints")
        return cls(name, family, ports, tuple(_endpoint(entry, family) for entry in entries))


class Slices:
    """All slices of one service."""

    def __init__(self, port: int | str, family: Family | None) -> None:
        """Begin without any; see `EndpointSliceDiscovery` for the arguments."""
        self._port = port
        self._family = family
        self._slices: dict[str, Slice] = {}

    def __len__(self) -> int:
        """How many slices there are."""
        return len(self._slices)

    def replace(self, slices: Iterable[Slice]) -> None:
        """Take all that there are."""
        self._slices = {each.name: each for each in slices}

    def put(self, changed: Slice) -> None:
        """Take one that is new or has changed."""
        self._slices[changed.name] = changed

    def remove(self, gone: Slice) -> None:
        """Take the word that one is gone."""
        self._slices.pop(gone.name, None)

    def without_port(self) -> list[str]:
        """Return the names of slices that have pods and not the port that is asked for."""
        return [
            each.name for each in self._slices.values() if each.endpoints and not self._number(each)
        ]

    def peers(self, members: Container[tuple[str, int]], *, keep_terminating: bool) -> list[Peer]:
        """Return who is there; a pod that is in several slices is one peer.

        Args:
            members: host and port of those who are there already.
            keep_terminating: whether these stay while they terminate and still serve.
        """
        chosen: dict[str, tuple[tuple[int, str, int], Peer]] = {}
        for each in self._slices.values():
            number = self._number(each)
            if number is None or each.family is None or self._family not in (None, each.family):
                continue
            for endpoint in each.endpoints:
                if endpoint.terminating:
                    stays = endpoint.serving or endpoint.ready
                    there = keep_terminating and stays and (endpoint.host, number) in members
                else:
                    there = endpoint.ready
                if there:
                    rank = (_RANKS[each.family], endpoint.host, number)
                    peer = Peer(endpoint.host, number, endpoint.name)
                    best = chosen.get(endpoint.pod)
                    if best is None or rank < best[0]:
                        chosen[endpoint.pod] = rank, peer
        return sorted(peer for _, peer in chosen.values())

    def _number(self, of: Slice) -> int | None:
        return self._port if isinstance(self._port, int) else of.ports.get(self._port)


def _endpoint(entry: dict[str, Any], family: Family) -> SliceEndpoint:
    addresses = entry.get("addresses")
    if not isinstance(addresses, list) or not addresses:
        raise MalformedError("an endpoint without addresses")
    try:
        address = ipaddress.ip_address(_text(addresses[0], "addresses"))
    except ValueError as error:
        raise MalformedError(f"the address {addresses[0]!r:.100}") from error
    if f"v{address.version}" != family:
        raise MalformedError(f"the address {address} in a slice of IP{family}")
    conditions = _table(entry.get("conditions") or {}, "conditions")
    ready = conditions.get("ready") is not False  # not said: to be taken as ready
    serving = conditions.get("serving")
    target = _table(entry.get("targetRef") or {}, "targetRef")
    name = _text(target.get("name") or entry.get("hostname") or str(address), "targetRef.name")
    return SliceEndpoint(
        pod=_text(target.get("uid") or target.get("name") or str(address), "targetRef.uid"),
        name=name,
        host=str(address),
        ready=ready,
        serving=ready if serving is None else serving is True,
        terminating=conditions.get("terminating") is True,
    )


def _table(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedError(f"{what} is {type(value).__name__}, not an object")
    return value


def _tables(value: object, what: str) -> list[dict[str, Any]]:
    if value is None:
        return []  # as Go writes an empty list
    if not isinstance(value, list):
        raise MalformedError(f"{what} is {type(value).__name__}, not a list")
    return [_table(each, what) for each in value]


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise MalformedError(f"{what} is {type(value).__name__}, not text")
    return value
