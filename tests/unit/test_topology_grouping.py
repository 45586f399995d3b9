"""Machines made by hand into groups: the odd ones, and what holds for all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from fabricio.grouping import find_gpus, group_devices, locate
from fabricio.hardware import Core, Machine, Nic, NumaNode, PciAddress, PciObject
from fabricio.placement import choose_cpus
from fabricio.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from fabricio.hardware import Group

GPU, VGA, NETWORK = 0x0302, 0x0300, 0x0200


class Builder:
    """A machine in the making: each call adds what it names."""

    def __init__(self, nodes: int = 2, cores: int = 8, memoryless: Iterable[int] = ()) -> None:
        self.nodes = [
            NumaNode(n, 0 if n in memoryless else 1 << 30, 2 * cores) for n in range(nodes)
        ]
        self.cores = [Core(n * cores + c, n) for n in range(nodes) for c in range(cores)]
        self.pcis: list[PciObject] = []
        self.nics: list[Nic] = []
        self.bus = 0

    def host(self) -> int:
        return self._add(PciObject("host", None, None, None))

    def switch(self, parent: int | None = None) -> int:
        host = self.host() if parent is None else parent
        return self._add(PciObject("bridge", self._address(), None, host))

    def gpu(self, parent: int, node: int | None, *, vendor: int = 0x10DE, kind: int = GPU) -> None:
        self._add(PciObject("device", self._address(), node, parent, kind, vendor))

    def nic(self, parent: int, node: int | None, *, up: bool = True) -> None:
        address = self._address()
        self._add(PciObject("device", address, node, parent, NETWORK, 0x1D0F))
        self.nics.append(Nic(f"nic{len(self.nics)}", "efa", address, up=up))

    def topology(self) -> Topology:
        machine = Machine(tuple(self.nodes), tuple(self.cores), tuple(self.pcis))
        return Topology.from_records(machine, self.nics)

    def _address(self) -> PciAddress:
        self.bus += 1
        return PciAddress(0, self.bus, 0, 0)

    def _add(self, pci: PciObject) -> int:
        self.pcis.append(pci)
        return len(self.pcis) - 1


def shape(groups: Iterable[Group]) -> list[tuple[list[int], list[str], int | None]]:
    """GPUs, NICs and node of each group."""
    return [([g.index for g in x.gpus], [n.domain for n in x.nics], x.numa_node) for x in groups]


def test_what_is_under_one_switch_is_one_group() -> None:
    build = Builder()
    for node in (0, 0, 1):
        switch = build.switch()
        build.nic(switch, node)
        build.gpu(switch, node)
        build.nic(switch, node)
    assert shape(build.topology().groups) == [
        ([0], ["nic0", "nic1"], 0),
        ([1], ["nic2", "nic3"], 0),
        ([2], ["nic4", "nic5"], 1),
    ]


def test_cores_of_a_node_are_shared_out_among_its_groups() -> None:
    build = Builder(cores=4)
    for node in (0, 0, 1):
        switch = build.switch()
        build.gpu(switch, node)
        build.nic(switch, node)
    groups = build.topology().groups
    assert [group.cpus for group in groups] == [(0, 1), (2, 3), (4, 5, 6, 7)]
    assert choose_cpus(groups, build.cores) == (1, 3, 7)


def test_the_node_comes_before_pci_distance() -> None:
    build = Builder()
    switch = build.switch()
    build.gpu(switch, 0)
    build.nic(switch, 1)
    build.nic(build.switch(), 0)
    assert shape(build.topology().groups) == [([0], ["nic1"], 0), ([], ["nic0"], 1)]


def test_the_deeper_switch_wins_on_one_node() -> None:
    build = Builder(nodes=1)
    outer = build.switch()
    near, far = build.switch(outer), build.switch(outer)
    build.gpu(near, 0)
    build.gpu(far, 0)
    build.nic(far, 0)
    build.nic(near, 0)
    assert shape(build.topology().groups) == [([0], ["nic1"], 0), ([1], ["nic0"], 0)]


def test_gpus_under_one_switch_deal_its_nics_evenly() -> None:
    build = Builder(nodes=1)
    switch = build.switch()
    for _ in range(2):
        build.gpu(switch, 0)
    for _ in range(4):
        build.nic(switch, 0)
    assert shape(build.topology().groups) == [
        ([0], ["nic0", "nic2"], 0),
        ([1], ["nic1", "nic3"], 0),
    ]


def test_gpus_share_the_only_nic_of_their_switch() -> None:
    build = Builder(nodes=1)
    switch = build.switch()
    build.gpu(switch, 0)
    build.gpu(switch, 0)
    build.nic(switch, 0)
    assert shape(build.topology().groups) == [([0, 1], ["nic0"], 0)]


def test_hosts_without_gpus_group_by_node() -> None:
    build = Builder()
    for node in (1, 0, 1):
        build.nic(build.switch(), node)
    assert shape(build.topology().groups) == [([], ["nic1"], 0), ([], ["nic0", "nic2"], 1)]


def test_a_node_without_memory_keeps_its_nics_and_cpus() -> None:
    build = Builder(memoryless=[1], cores=2)
    build.nic(build.switch(), 0)
    build.nic(build.switch(), 1)
    groups = build.topology().groups
    assert shape(groups) == [([], ["nic0"], 0), ([], ["nic1"], 1)]
    assert groups[1].cpus == (2, 3)


def test_a_nic_with_no_gpu_near_is_a_group_of_its_own() -> None:
    build = Builder()
    switch = build.switch()
    build.gpu(switch, 0)
    build.nic(switch, 0)
    build.nic(build.switch(), 0)
    build.nic(build.switch(), 1)
    assert shape(build.topology().groups) == [
        ([0], ["nic0"], 0),
        ([], ["nic1"], 0),
        ([], ["nic2"], 1),
    ]


def test_nics_near_no_gpu_go_to_gpus_of_their_node_that_have_none() -> None:
    build = Builder(nodes=1)
    for _ in range(2):
        build.gpu(build.switch(), 0)
    for _ in range(4):
        build.nic(build.switch(), 0)
    assert shape(build.topology().groups) == [
        ([0], ["nic0", "nic2"], 0),
        ([1], ["nic1", "nic3"], 0),
    ]


def test_they_prefer_the_gpu_at_the_same_host_bridge() -> None:
    build = Builder(nodes=1)
    hosts = [build.host(), build.host()]
    build.gpu(build.switch(hosts[0]), 0)
    build.gpu(build.switch(hosts[1]), 0)
    build.nic(build.switch(hosts[1]), 0)
    build.nic(build.switch(hosts[0]), 0)
    assert shape(build.topology().groups) == [([0], ["nic1"], 0), ([1], ["nic0"], 0)]


def test_a_gpu_with_no_nic_near_joins_a_group_of_its_node() -> None:
    build = Builder()
    for node in (0, 1):
        switch = build.switch()
        build.gpu(switch, node)
        build.nic(switch, node)
    build.gpu(build.switch(), 1)
    assert shape(build.topology().groups) == [([0], ["nic0"], 0), ([1, 2], ["nic1"], 1)]


def test_a_gpu_on_a_node_without_nics_joins_another_node() -> None:
    build = Builder()
    build.nic(build.switch(), 0)
    build.gpu(build.switch(), 1)
    topology = build.topology()
    assert shape(topology.groups) == [([0], ["nic0"], 0)]
    assert topology.gpus[0].numa_node == 1


def test_an_unknown_node_is_that_of_the_neighbours() -> None:
    build = Builder()
    switch = build.switch()
    build.gpu(switch, 1)
    build.nic(switch, None)
    assert shape(build.topology().groups) == [([0], ["nic0"], 1)]


def test_an_unknown_node_is_the_only_one_there_is() -> None:
    build = Builder(nodes=1)
    build.nic(build.host(), None)
    assert shape(build.topology().groups) == [([], ["nic0"], 0)]


def test_unknown_nodes_without_neighbours_group_by_switch_with_all_cpus() -> None:
    build = Builder(cores=1)
    for _ in range(2):
        switch = build.switch()
        build.gpu(switch, None)
        build.nic(switch, None)
    groups = build.topology().groups
    assert shape(groups) == [([0], ["nic0"], None), ([1], ["nic1"], None)]
    assert [group.cpus for group in groups] == [(0, 1), (0, 1)]
    assert sorted(cpu for cpu in choose_cpus(groups, build.cores) if cpu is not None) == [0, 1]


def test_neighbours_of_two_nodes_say_nothing() -> None:
    build = Builder()
    switch = build.switch()
    build.gpu(switch, 0)
    build.gpu(switch, 1)
    build.nic(switch, None)
    assert build.topology().nics[0].numa_node is None


def test_a_nic_that_is_down_is_in_no_group() -> None:
    build = Builder(nodes=1)
    switch = build.switch()
    build.gpu(switch, 0)
    build.nic(switch, 0, up=False)
    build.nic(build.switch(), 0)
    topology = build.topology()
    assert shape(topology.groups) == [([0], ["nic1"], 0)]
    assert [nic.up for nic in topology.nics] == [False, True]


def test_all_nics_down_leave_one_group_without_any() -> None:
    build = Builder()
    build.nic(build.switch(), 0, up=False)
    assert shape(build.topology().groups) == [([], [], None)]


def test_nics_without_a_place_are_one_group() -> None:
    build = Builder()
    build.gpu(build.switch(), 0)
    build.gpu(build.switch(), 1)
    build.nics = [Nic("eth0", "tcp"), Nic("lo", "tcp")]
    assert shape(build.topology().groups) == [([0, 1], ["eth0", "lo"], None)]


def test_a_nic_that_hwloc_does_not_see_is_kept() -> None:
    build = Builder()
    build.nics = [Nic("efa0", "efa", PciAddress(0, 0x99, 0, 0))]
    assert shape(build.topology().groups) == [([], ["efa0"], None)]


def test_the_console_is_no_gpu() -> None:
    build = Builder(nodes=1)
    switch = build.switch()
    build.gpu(switch, 0, vendor=0x1A03, kind=VGA)
    build.gpu(switch, 0, vendor=0x1D0F, kind=VGA)
    build.gpu(switch, 0, kind=VGA)
    build.gpu(switch, 0, vendor=0x1002, kind=0x1200)
    assert [gpu.vendor_id for gpu in build.topology().gpus] == [0x10DE, 0x1002]


def test_a_node_whose_cpus_may_not_be_used_has_none() -> None:
    build = Builder(cores=2)
    build.cores = [core for core in build.cores if core.node == 0]
    build.nic(build.switch(), 0)
    build.nic(build.switch(), 1)
    groups = build.topology().groups
    assert [group.cpus for group in groups] == [(0, 1), ()]
    assert choose_cpus(groups, build.cores) == (1, 0)


def test_fewer_cores_than_groups_pin_nobody() -> None:
    build = Builder(nodes=1, cores=2)
    for _ in range(3):
        switch = build.switch()
        build.gpu(switch, 0)
        build.nic(switch, 0)
    groups = build.topology().groups
    assert [group.cpus for group in groups] == [(0, 1)] * 3
    assert choose_cpus(groups, build.cores) == (None,) * 3


@st.composite
def builders(draw: st.DrawFn) -> Builder:
    nodes = draw(st.integers(1, 3))
    build = Builder(nodes=nodes, cores=draw(st.integers(1, 4)))
    bridges = [build.host()]
    where = st.one_of(st.none(), st.integers(0, nodes - 1))
    for kind in draw(st.lists(st.sampled_from("hsgnnd"), max_size=24)):
        parent = bridges[draw(st.integers(0, len(bridges) - 1))]
        if kind == "h":
            bridges.append(build.host())
        elif kind == "s":
            bridges.append(build.switch(parent))
        elif kind == "g":
            build.gpu(parent, draw(where))
        else:
            build.nic(parent, draw(where), up=kind == "n")
    return build


@given(builders())
def test_every_device_is_in_one_group(build: Builder) -> None:
    topology = build.topology()
    groups = topology.groups
    gpus = sorted(gpu.index for group in groups for gpu in group.gpus)
    nics = sorted(nic.domain for group in groups for nic in group.nics)
    assert gpus == [gpu.index for gpu in topology.gpus]
    assert nics == sorted(nic.domain for nic in topology.nics if nic.up)
    assert [group.index for group in groups] == list(range(len(groups)))
    for group in groups:
        assert all(nic.numa_node == group.numa_node for nic in group.nics)
        assert group.nics or len(groups) == 1


@given(builders())
def test_every_worker_has_a_cpu_of_its_own(build: Builder) -> None:
    groups = build.topology().groups
    chosen = choose_cpus(groups, build.cores)
    if len(build.cores) < len(groups):
        assert set(chosen) == {None}
        return
    assert len(set(chosen)) == len(groups)
    assert set(chosen) <= {core.cpu for core in build.cores}
    nodes = {core.cpu: core.node for core in build.cores}
    for group, cpu in zip(groups, chosen, strict=True):
        same = sum(other.numa_node == group.numa_node for other in groups)
        if cpu is not None and group.numa_node is not None and len(group.cpus) >= same:
            assert nodes[cpu] == group.numa_node


@given(builders(), st.randoms(use_true_random=False))
def test_the_order_of_nics_does_not_matter(build: Builder, random: Random) -> None:
    machine = Machine(tuple(build.nodes), tuple(build.cores), tuple(build.pcis))
    gpus = find_gpus(machine)
    shuffled = list(build.nics)
    random.shuffle(shuffled)
    assert group_devices(machine, gpus, locate(machine, shuffled)) == group_devices(
        machine, gpus, locate(machine, build.nics)
    )
