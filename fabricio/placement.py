"""Which workers a `Fabric` starts: their NICs, GPUs and CPUs. Pure functions of a topology."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from fabricio.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fabricio.hardware import Core, Gpu, Group, Nic
    from fabricio.topology import Topology

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """One worker.

    Attributes:
        nics: libfabric's domain names, one a lane; None: the one with the source address.
        sources: for each NIC the IP address to open it with; None where it has none.
        gpus: the GPUs whose memory it serves.
        numa_node: where NICs and GPUs are; None: unknown.
        cpu: the CPU to pin its thread to; None: do not pin.
    """

    nics: tuple[str | None, ...]
    sources: tuple[str | None, ...]
    gpus: tuple[Gpu, ...]
    numa_node: int | None
    cpu: int | None


def plan_workers(
    topology: Topology,
    *,
    nics: Sequence[str] | None = None,
    gpus: Sequence[int | str] | None = None,
    nics_per_gpu: int | None = None,
    workers: int | None = None,
    source: str | None = None,
    pin: bool | Sequence[int] = True,
) -> tuple[WorkerPlan, ...]:
    """Choose workers: one for each group, with its NICs.

    Where NICs are not on PCI (tcp, shm) there is one worker with one NIC unless `nics` names
    more: the first that other hosts can reach, else the first.

    Args:
        topology: what there is.
        nics: only these, by `Nic.domain`; groups without any of them have no worker.
        gpus: only groups with these, by `Gpu.index` or by PCI address.
        nics_per_gpu: at most as many NICs of each group; at least 1.
        workers: deal the NICs over so many instead; with more workers than NICs several open the
            same one.
        source: IP address to open every NIC with; None: one of its own.
        pin: True: each worker to a CPU of its own, near its NICs; where there are fewer cores than
            workers none is pinned, since the system shares them better. False: none. CPUs: to
            these, those on the worker's node first; at least one a worker.

    Returns: at least one worker, in the order of the groups.
    Raises: OptionsError: a NIC, GPU or CPU that is not there (the text lists what is), a NIC that
        is down or far from the GPUs named, options that contradict one another.
    """
    if nics is not None and nics_per_gpu is not None:
        raise OptionsError("nics= and nics_per_gpu= contradict one another: give one of them")
    groups = list(topology.groups)
    if gpus is not None:
        groups = _with_gpus(topology, gpus)
    if nics is not None:
        groups = _with_nics(topology, groups, nics)
    else:
        groups = [_reduced(group, nics_per_gpu) for group in groups if group.nics]
    if not groups:
        raise OptionsError(
            f"no NIC is up: there are {_names(topology.nics)}; bring one up, or use another "
            "provider"
        )
    if workers is not None:
        groups = _dealt(groups, workers)
    cpus: Sequence[int | None]
    if pin is False:
        cpus = [None] * len(groups)
    elif pin is True:
        cpus = choose_cpus(groups, topology.cores)
    else:
        cpus = choose_cpus(groups, _pool(topology, pin, len(groups)))
    return tuple(
        WorkerPlan(
            nics=tuple(nic.domain for nic in group.nics),
            sources=tuple(source or nic.source for nic in group.nics),
            gpus=group.gpus,
            numa_node=group.numa_node,
            cpu=cpu,
        )
        for group, cpu in zip(groups, cpus, strict=True)
    )


def choose_cpus(groups: Sequence[Group], cores: Sequence[Core]) -> tuple[int | None, ...]:
    """Give each group a CPU of its own.

    Of its share a group gets the last: the first CPUs of a node are where interrupts, event loops
    and programs that pin themselves go. Next come other cores of its node, then any.

    Args:
        groups: each gets one.
        cores: what may be given, one CPU a core.

    Returns: a CPU for each group, all different; all None with fewer cores than groups.
    """
    if len(cores) < len(groups):
        return (None,) * len(groups)
    free = {core.cpu: core.node for core in cores}
    chosen: list[int | None] = [None] * len(groups)
    # Groups with a node choose first; and what is near is given before what is far.
    order = sorted(range(len(groups)), key=lambda place: groups[place].numa_node is None)
    for step in (_own, _of_node, _any):
        for place in order:
            if chosen[place] is None:
                cpu = step(groups[place], free)
                if cpu is not None:
                    del free[cpu]
                    chosen[place] = cpu
    return tuple(chosen)


def workers_for_node(plans: Sequence[WorkerPlan], node: int | None) -> tuple[int, ...]:
    """Tell which workers serve host memory that lives on a NUMA node.

    Memory of one node cannot feed the NICs of all: what crosses to another node's NICs shares the
    link between them, and slows down the traffic that belongs there.

    Args:
        plans: those of the Fabric.
        node: where the memory is; None: unknown.

    Returns: places in `plans`: the node's own workers. Where it has none, those of no known node,
        else those of the first node that has any. All for memory that is anywhere.
    """
    places = range(len(plans))
    if node is None:
        return tuple(places)
    known = sorted({plan.numa_node for plan in plans if plan.numa_node is not None})
    for wanted in (node, None, *known[:1]):
        found = tuple(place for place in places if plans[place].numa_node == wanted)
        if found:
            return found
    return ()


def _own(group: Group, free: dict[int, int | None]) -> int | None:
    return next((cpu for cpu in reversed(group.cpus) if cpu in free), None)


def _of_node(group: Group, free: dict[int, int | None]) -> int | None:
    return next((cpu for cpu, node in free.items() if node == group.numa_node), None)


def _any(_group: Group, free: dict[int, int | None]) -> int | None:
    return next(iter(free), None)


def _with_gpus(topology: Topology, gpus: Sequence[int | str]) -> list[Group]:
    """Groups with these GPUs, reduced to them."""
    wanted = {_find_gpu(topology, gpu).index for gpu in _listed("gpus", gpus)}
    return [
        replace(group, gpus=tuple(gpu for gpu in group.gpus if gpu.index in wanted))
        for group in topology.groups
        if any(gpu.index in wanted for gpu in group.gpus)
    ]


def _find_gpu(topology: Topology, wanted: int | str) -> Gpu:
    for gpu in topology.gpus:
        if isinstance(wanted, str):
            if str(gpu.pci) == wanted.lower():
                return gpu
        elif not isinstance(wanted, bool) and gpu.index == wanted:
            return gpu
    there = ", ".join(f"{gpu.index} ({gpu.pci})" for gpu in topology.gpus) or "none"
    raise OptionsError(f"gpus: there is no GPU {wanted!r}; there are: {there}")


def _with_nics(topology: Topology, groups: Iterable[Group], nics: Sequence[str]) -> list[Group]:
    """Groups with these NICs, reduced to them, in the order named."""
    names = _listed("nics", nics)
    by_name = {nic.domain: nic for nic in topology.nics}
    for name in names:
        nic = by_name.get(name)
        if nic is None:
            raise OptionsError(
                f"nics: there is no NIC {name!r}; there are: {_names(topology.nics)}"
            )
        if not nic.up:
            up = _names(nic for nic in topology.nics if nic.up)
            raise OptionsError(
                f"nics: the link of {name} is down: bring it up, or name others; up are: {up}"
            )
    kept = [
        replace(group, nics=tuple(sorted(found, key=lambda nic: names.index(nic.domain))))
        for group in groups
        if (found := [nic for nic in group.nics if nic.domain in names])
    ]
    near = {nic.domain for group in kept for nic in group.nics}
    for name in names:
        if name not in near:
            raise OptionsError(
                f"nics and gpus: {name} is not near any of the GPUs named; near are: "
                f"{_names(nic for group in groups for nic in group.nics)}"
            )
    return kept


def _reduced(group: Group, nics_per_gpu: int | None) -> Group:
    """A group with the NICs that it opens where none is named."""
    if nics_per_gpu is not None:
        if isinstance(nics_per_gpu, bool) or nics_per_gpu < 1:
            raise OptionsError(f"nics_per_gpu={nics_per_gpu!r} is not possible: use 1 or more")
        if group.gpus and nics_per_gpu > len(group.nics):
            raise OptionsError(
                f"nics_per_gpu={nics_per_gpu} is more than {group.name} has: "
                f"{_names(group.nics)}; use at most {len(group.nics)}"
            )
    if not any(nic.pci for nic in group.nics):
        first = next((nic for nic in group.nics if nic.reaches_others), group.nics[0])
        return replace(group, nics=(first,))
    return replace(group, nics=group.nics[:nics_per_gpu])


def _dealt(groups: Sequence[Group], workers: int) -> list[Group]:
    """Deal the groups' NICs, in order and evenly, over so many groups."""
    pairs = [(group, nic) for group in groups for nic in group.nics]
    while len(pairs) < workers:
        pairs += pairs
    if len(pairs) > workers > sum(len(group.nics) for group in groups):
        pairs = pairs[:workers]
    bounds = [len(pairs) * place // workers for place in range(workers + 1)]
    dealt = []
    for index in range(workers):
        part = pairs[bounds[index] : bounds[index + 1]]
        homes = list(dict.fromkeys(group.index for group, _ in part))
        nodes = {group.numa_node for group, _ in part}
        first = part[0][0]
        dealt.append(
            replace(
                first,
                index=index,
                gpus=tuple(dict.fromkeys(g for group, _ in part for g in group.gpus)),
                nics=tuple(nic for _, nic in part),
                numa_node=first.numa_node if len(nodes) == 1 else None,
                cpus=first.cpus if len(homes) == 1 else (),
            )
        )
    return dealt


def _pool(topology: Topology, cpus: Sequence[int], need: int) -> list[Core]:
    """The CPUs named, as cores."""
    named = _listed("pin", cpus)
    allowed = {core.cpu: core for core in topology.cores}
    for cpu in named:
        if isinstance(cpu, bool) or cpu not in allowed:
            raise OptionsError(
                f"pin: CPU {cpu!r} is none that this process may use, or the second of a core; "
                f"usable are: {', '.join(map(str, allowed))}"
            )
    if len(named) < need:
        raise OptionsError(f"pin: {len(named)} CPUs for {need} workers; name at least {need}")
    return [allowed[cpu] for cpu in named]


def _listed(option: str, values: Sequence[_T]) -> list[_T]:
    """Check that a list names something, and nothing twice."""
    listed = list(values)
    if isinstance(values, str) or not listed:
        raise OptionsError(f"{option}={values!r} is not possible: give a list, or None for all")
    for value in listed:
        if listed.count(value) > 1:
            raise OptionsError(f"{option} names {value!r} twice: name it once")
    return listed


def _names(nics: Iterable[Nic]) -> str:
    return ", ".join(nic.domain for nic in nics) or "none"
