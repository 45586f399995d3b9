"""GPUs, NICs, NUMA nodes and CPUs into groups: a pure function of the records.

1. The NUMA node comes before PCI distance: a GPU and a NIC on different nodes are not near,
   though one bridge be above both.
2. On a node a NIC goes to the GPU with which it shares most bridges, at least one switch or port;
   where several are as near, each gets the same number.
3. NICs near no GPU go to the node's GPUs that have none yet. Where there are none, they form a
   group of their own: that is also how a host without GPUs is grouped.
4. A GPU that has none now joins the nearest group: on its node, else of no known node, else any.

NICs that are down take no part. Without any NIC on PCI there is one group.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fabricio.hardware import Gpu, Group, Machine, Nic

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fabricio.hardware import PciAddress, PciObject

_NVIDIA = 0x10DE
_VGA, _3D, _OTHER_DISPLAY, _ACCELERATOR = 0x0300, 0x0302, 0x0380, 0x1200


@dataclass(slots=True)
class _Seat:
    """A group while it is being made."""

    node: int | None
    gpus: list[Gpu]
    nics: list[Nic] = field(default_factory=list)

    @property
    def rank(self) -> tuple[bool, PciAddress | tuple[()], bool, int, PciAddress | tuple[()]]:
        """Groups with a GPU first, in PCI order; then the others, by node."""
        first_gpu = self.gpus[0].pci if self.gpus else ()
        return not self.gpus, first_gpu, self.node is None, self.node or 0, self.nics[0].pci or ()


def find_gpus(machine: Machine) -> tuple[Gpu, ...]:
    """Find what computes: no adapters that only show a console.

    Args:
        machine: all its PCI objects.

    Returns: in PCI order.
    """
    found = sorted(
        (pci.address, place)
        for place, pci in enumerate(machine.pcis)
        if pci.address is not None and _is_gpu(pci)
    )
    places = _Places(machine)
    return tuple(
        Gpu(
            index=index,
            pci=address,
            numa_node=places.node(address),
            vendor_id=machine.pcis[place].vendor_id,
            device_id=machine.pcis[place].device_id,
            link_bytes_per_s=machine.pcis[place].link_bytes_per_s,
        )
        for index, (address, place) in enumerate(found)
    )


def locate(machine: Machine, nics: Iterable[Nic]) -> tuple[Nic, ...]:
    """Match NICs with the machine's PCI objects, and so with its NUMA nodes.

    Args:
        machine: all its PCI objects.
        nics: as libfabric lists them.

    Returns: the same NICs in the same order, with what is known of their nodes.
    """
    places = _Places(machine)
    return tuple(
        nic if nic.pci is None else replace(nic, numa_node=places.node(nic.pci)) for nic in nics
    )


def group_devices(machine: Machine, gpus: Sequence[Gpu], nics: Sequence[Nic]) -> tuple[Group, ...]:
    """Group what belongs together; see the top of this module.

    Args:
        machine: PCI objects and usable cores.
        gpus: from `find_gpus`.
        nics: from `locate`.

    Returns: at least one group; each GPU, and each NIC that is not down, is in exactly one.
    """
    usable = [nic for nic in nics if nic.up]
    if not any(nic.pci for nic in usable):
        node = machine.nodes[0].index if len(machine.nodes) == 1 else None
        cpus = tuple(core.cpu for core in machine.cores)
        return (Group(0, tuple(gpus), tuple(usable), node, cpus),)
    places = _Places(machine)
    seats: list[_Seat] = []
    homeless: list[Gpu] = []
    nodes = {gpu.numa_node for gpu in gpus} | {nic.numa_node for nic in usable}
    for node in sorted(nodes, key=lambda node: (node is None, node or 0)):
        on_node = [nic for nic in usable if nic.numa_node == node]
        made = _seat_node(places, node, [g for g in gpus if g.numa_node == node], on_node)
        homeless += [seat.gpus[0] for seat in made if not seat.nics]
        seats += [seat for seat in made if seat.nics]
    for gpu in homeless:
        _nearest(places, gpu, seats).gpus.append(gpu)
    for seat in seats:
        seat.gpus.sort(key=lambda gpu: gpu.pci)
        seat.nics.sort(key=lambda nic: (nic.pci is None, nic.pci or (), nic.domain))
    seats.sort(key=lambda seat: seat.rank)
    shares = _share_cpus(machine, seats)
    return tuple(
        Group(index, tuple(seat.gpus), tuple(seat.nics), seat.node, share)
        for index, (seat, share) in enumerate(zip(seats, shares, strict=True))
    )


class _Places:
    """Where PCI addresses are: bridges above them, and NUMA nodes."""

    def __init__(self, machine: Machine) -> None:
        self._pcis = machine.pcis
        self._only = machine.nodes[0].index if len(machine.nodes) == 1 else None
        self._at = {
            pci.address: place
            for place, pci in enumerate(machine.pcis)
            if pci.kind == "device" and pci.address is not None
        }
        self._chains = {address: self._chain(place) for address, place in self._at.items()}

    def _chain(self, place: int) -> tuple[int, ...]:
        """Bridges above a device, from the host's down."""
        chain: list[int] = []
        above = self._pcis[place].parent
        while above is not None and above not in chain:
            chain.append(above)
            above = self._pcis[above].parent
        return tuple(reversed(chain))

    def shared(self, one: PciAddress | None, other: PciAddress | None) -> tuple[int, int]:
        """How many (switches and ports, host bridges) are above both."""
        if one is None or other is None:
            return 0, 0
        common = [
            a
            for a, b in zip(self._chains.get(one, ()), self._chains.get(other, ()), strict=False)
            if a == b
        ]
        hosts = sum(self._pcis[place].kind == "host" for place in common)
        return len(common) - hosts, hosts

    def node(self, address: PciAddress) -> int | None:
        """The device's node; where the system does not say, that of its nearest neighbours."""
        place = self._at.get(address)
        if place is not None and self._pcis[place].node is not None:
            return self._pcis[place].node
        if self._only is not None:
            return self._only
        for bridge in reversed(self._chains.get(address, ())):
            below = {
                self._pcis[other].node
                for near, other in self._at.items()
                if bridge in self._chains[near]
            } - {None}
            if below:
                return below.pop() if len(below) == 1 else None
        return None


def _is_gpu(pci: PciObject) -> bool:
    if pci.kind != "device":
        return False
    if pci.class_id == _VGA:  # mostly the console of a server
        return pci.vendor_id == _NVIDIA
    return pci.class_id in (_3D, _OTHER_DISPLAY, _ACCELERATOR)


def _seat_node(
    places: _Places, node: int | None, gpus: Sequence[Gpu], nics: Sequence[Nic]
) -> list[_Seat]:
    """Steps 2 and 3 for one node."""
    seats = [_Seat(node, [gpu]) for gpu in gpus]
    left: list[Nic] = []

    def affinity(nic: Nic, seat: _Seat) -> tuple[int, int]:
        return places.shared(nic.pci, seat.gpus[0].pci)

    for nic in sorted(nics, key=lambda nic: (nic.pci or (), nic.domain)):
        best = max((affinity(nic, seat) for seat in seats), default=(0, 0))
        if best[0] == 0:
            left.append(nic)
            continue
        nearest = [seat for seat in seats if affinity(nic, seat) == best]
        min(nearest, key=lambda seat: len(seat.nics)).nics.append(nic)
    poor = [seat for seat in seats if not seat.nics]
    if not poor:
        return [*seats, _Seat(node, [], left)] if left else seats
    # Those that share a host bridge choose first, so that nobody takes their place.
    left.sort(key=lambda nic: max(affinity(nic, seat) for seat in poor), reverse=True)
    for nic in left:
        fewest = min(len(seat.nics) for seat in poor)
        open_seats = [seat for seat in poor if len(seat.nics) == fewest]
        max(open_seats, key=lambda seat: affinity(nic, seat)).nics.append(nic)
    return seats


def _nearest(places: _Places, gpu: Gpu, seats: Sequence[_Seat]) -> _Seat:
    """Step 4: the group that a GPU without NICs joins."""

    def distance(seat: _Seat) -> tuple[int, int, int, int]:
        far = 0 if seat.node == gpu.numa_node else 1 if None in (seat.node, gpu.numa_node) else 2
        bridges, hosts = max(places.shared(nic.pci, gpu.pci) for nic in seat.nics)
        return far, -bridges, -hosts, len(seat.gpus)

    return min(seats, key=distance)


def _share_cpus(machine: Machine, seats: Sequence[_Seat]) -> list[tuple[int, ...]]:
    """Deal each node's cores to its groups; with fewer cores than groups all have all of them."""
    shares = []
    taken: dict[int | None, int] = {}
    for seat in seats:
        cores = [core.cpu for core in machine.cores if seat.node is None or core.node == seat.node]
        count = sum(other.node == seat.node for other in seats)
        turn = taken.get(seat.node, 0)
        taken[seat.node] = turn + 1
        if seat.node is not None and len(cores) >= count:
            cores = cores[turn * len(cores) // count : (turn + 1) * len(cores) // count]
        shares.append(tuple(cores))
    return shares
