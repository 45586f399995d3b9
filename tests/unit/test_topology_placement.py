"""Which workers are planned, and what is refused with which words."""

from __future__ import annotations

import pytest

from fabricio.errors import OptionsError
from fabricio.hardware import Core, Machine, Nic, NumaNode, PciAddress, is_host_only
from fabricio.placement import plan_workers, workers_for_node
from fabricio.topology import Topology


def tcp(*nics: Nic, cores: int = 2) -> Topology:
    machine = Machine((NumaNode(0, 1 << 30, cores),), tuple(Core(c, 0) for c in range(cores)))
    return Topology.from_records(machine, nics)


LO = Nic("lo", "tcp", addresses=("127.0.0.1", "::1"))
LINK_LOCAL = Nic("veth", "tcp", addresses=("169.254.0.1", "fe80::1"))
ETH0 = Nic("eth0", "tcp", addresses=("fe80::2", "10.0.0.7"))
ETH1 = Nic("eth1", "tcp", addresses=("10.0.1.7",))


def test_p5_is_eight_groups_of_a_gpu_and_four_nics(p5: Topology) -> None:
    first_nics = {0x53: 0x4F, 0x64: 0x60, 0x75: 0x71, 0x86: 0x82}
    first_nics |= {0x97: 0x93, 0xA8: 0xA4, 0xB9: 0xB5, 0xCA: 0xC6}
    found = [
        ([g.pci.bus for g in x.gpus], [n.pci and n.pci.bus for n in x.nics], x.numa_node)
        for x in p5.groups
    ]
    assert found == [
        ([gpu], list(range(nic, nic + 4)), int(gpu >= 0x97)) for gpu, nic in first_nics.items()
    ]
    assert p5.groups[0].name == "GPU 0000:53:00.0"
    assert p5.groups[0].nics[0].domain == "rdmap79s0-rdm"


def test_p5_has_a_worker_a_gpu_on_first_hyperthreads(p5: Topology) -> None:
    plans = plan_workers(p5)
    assert [plan.cpu for plan in plans] == [11, 23, 35, 47, 59, 71, 83, 95]
    assert [plan.numa_node for plan in plans] == [0] * 4 + [1] * 4
    assert all(len(plan.nics) == 4 and plan.sources == (None,) * 4 for plan in plans)


def test_gpus_by_index_and_by_address(p5: Topology) -> None:
    plans = plan_workers(p5, gpus=[7, "0000:53:00.0"], nics_per_gpu=2)
    assert [plan.gpus[0].index for plan in plans] == [0, 7]
    assert plans[0].nics == ("rdmap79s0-rdm", "rdmap80s0-rdm")


def test_nics_by_name_keep_their_order(p5: Topology) -> None:
    plans = plan_workers(p5, nics=["rdmap201s0-rdm", "rdmap80s0-rdm", "rdmap79s0-rdm"])
    assert [plan.nics for plan in plans] == [
        ("rdmap80s0-rdm", "rdmap79s0-rdm"),
        ("rdmap201s0-rdm",),
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nics": ["efa9"]}, "no NIC 'efa9'; there are: rdmap79s0-rdm, "),
        ({"gpus": [8]}, r"no GPU 8; there are: 0 \(0000:53:00.0\), "),
        ({"gpus": [True]}, "no GPU True"),
        ({"gpus": ["0000:54:00.0"]}, "no GPU '0000:54:00.0'"),
        ({"gpus": []}, "give a list"),
        ({"nics": "rdmap79s0-rdm"}, "give a list"),
        ({"gpus": [1, 1]}, "twice"),
        ({"gpus": [0], "nics": ["rdmap201s0-rdm"]}, "not near .* near are: rdmap79s0-rdm"),
        ({"nics_per_gpu": 5}, "more than GPU 0000:53:00.0 has"),
        ({"nics_per_gpu": 0}, "use 1 or more"),
        ({"nics_per_gpu": 1, "nics": ["rdmap79s0-rdm"]}, "contradict"),
        ({"pin": [500]}, "CPU 500 is none that this process may use"),
        ({"pin": [96]}, "or the second of a core"),
        ({"pin": [1, 2]}, "2 CPUs for 8 workers; name at least 8"),
    ],
)
def test_what_cannot_be_is_refused(p5: Topology, options: dict[str, object], words: str) -> None:
    with pytest.raises(OptionsError, match=words):
        plan_workers(p5, **options)  # type: ignore[arg-type]  # some are wrong on purpose


def test_pin(p5: Topology) -> None:
    assert {plan.cpu for plan in plan_workers(p5, pin=False)} == {None}
    plans = plan_workers(p5, gpus=[0, 7], pin=[50, 3])
    assert [plan.cpu for plan in plans] == [3, 50]
    assert [plan.cpu for plan in plan_workers(p5, gpus=[0, 1], pin=[50, 51])] == [50, 51]


def test_host_memory_uses_its_own_node(p5: Topology) -> None:
    plans = plan_workers(p5)
    assert workers_for_node(plans, 0) == (0, 1, 2, 3)
    assert workers_for_node(plans, 1) == (4, 5, 6, 7)
    assert workers_for_node(plans, None) == tuple(range(8))
    assert workers_for_node(plans, 7) == (0, 1, 2, 3)
    assert workers_for_node(plan_workers(tcp(ETH0), workers=2), 1) == (0, 1)


def test_no_group_has_nics() -> None:
    down = tcp(Nic("efa0", "efa", PciAddress(0, 1, 0, 0), up=False))
    with pytest.raises(OptionsError, match="no NIC is up: there are efa0"):
        plan_workers(down)
    with pytest.raises(OptionsError, match="link of efa0 is down"):
        plan_workers(down, nics=["efa0"])


def test_tcp_has_one_worker_with_one_nic_that_others_reach() -> None:
    (plan,) = plan_workers(tcp(LO, LINK_LOCAL, ETH0, ETH1))
    assert (plan.nics, plan.sources, plan.cpu) == (("eth0",), ("10.0.0.7",), 1)


def test_tcp_has_loopback_where_there_is_nothing_else() -> None:
    (plan,) = plan_workers(tcp(LO, LINK_LOCAL))
    assert (plan.nics, plan.sources) == (("lo",), ("127.0.0.1",))


def test_tcp_has_the_nics_that_are_named() -> None:
    (plan,) = plan_workers(tcp(LO, ETH0, ETH1), nics=["eth1", "lo"])
    assert (plan.nics, plan.sources) == (("eth1", "lo"), ("10.0.1.7", "127.0.0.1"))


def test_shm_has_one_worker() -> None:
    (plan,) = plan_workers(tcp(Nic("shm", "shm"), cores=1))
    assert (plan.nics, plan.sources, plan.cpu) == (("shm",), (None,), 0)


@pytest.mark.parametrize(
    ("address", "host_only"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("169.254.0.1", True),
        ("fe80::1", True),
        ("fe80::1%eth0", True),
        ("0.0.0.0", True),
        ("10.0.0.7", False),
        ("172.17.0.1", False),
        ("fd00::2", False),
        ("2001:db8::1", False),
    ],
)
def test_is_host_only(address: str, host_only: bool) -> None:
    assert is_host_only(address) is host_only


@pytest.mark.parametrize("text", ["", "53:00.0", "0000:53:00.8", "0000:53:00.0 "])
def test_no_pci_address(text: str) -> None:
    with pytest.raises(OptionsError, match=r"such as 0000:53:00\.0"):
        PciAddress.parse(text)


def test_pci_address_as_the_system_writes_it() -> None:
    assert str(PciAddress.parse("10000:CA:1f.7")) == "10000:ca:1f.7"


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8, 16, 32])
def test_nics_are_dealt_over_workers(p5: Topology, workers: int) -> None:
    plans = plan_workers(p5, workers=workers)
    names = [nic for plan in plans for nic in plan.nics]
    assert names == [nic.domain for group in p5.groups for nic in group.nics]
    sizes = [len(plan.nics) for plan in plans]
    assert len(plans) == workers
    assert max(sizes) - min(sizes) <= 1
    assert len({plan.cpu for plan in plans}) == workers
    for plan in plans:
        if workers in (8, 16, 32):
            assert plan.numa_node == int(names.index(plan.nics[0] or "") >= 16)


def test_workers_beyond_the_nics_share_them() -> None:
    plans = plan_workers(tcp(ETH0, ETH1), nics=["eth0", "eth1"], workers=3)
    assert [plan.nics for plan in plans] == [("eth0",), ("eth1",), ("eth0",)]
    assert [plan.sources for plan in plans] == [("10.0.0.7",), ("10.0.1.7",), ("10.0.0.7",)]


def test_the_source_named_goes_before_the_nics_own() -> None:
    (plan,) = plan_workers(tcp(ETH0), source="10.9.9.9")
    assert plan.sources == ("10.9.9.9",)
