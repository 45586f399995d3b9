"""`fabricio topo`: which GPUs, NICs and CPUs belong together."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path  # noqa: TC003  # typer asks for it
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from fabricio.errors import FabricioError
from fabricio.placement import choose_cpus
from fabricio.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fabricio.hardware import Gpu, Group, Nic, NumaNode

_PIPE_WIDTH = 200  # columns, where no terminal tells
_GIB = 1 << 30


def topo(
    xml: Annotated[
        Path | None, typer.Option(help="Write the topology to this file, as hwloc XML.")
    ] = None,
    from_xml: Annotated[
        Path | None, typer.Option(help="Read the topology from this file, not from the machine.")
    ] = None,
    provider: Annotated[
        str | None, typer.Option(help="Show the NICs of this provider, for example efa.")
    ] = None,
) -> None:
    """Show which GPUs, NICs and CPUs belong together, and which CPU each worker would have."""
    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
    try:
        topology = Topology.discover(provider, from_xml)
        if xml is not None:
            topology.to_xml(xml)
    except (FabricioError, OSError) as error:
        typer.echo(f"fabricio topo: {error}", err=True)
        raise typer.Exit(1) from error
    console.print(_tree(topology, from_xml), highlight=False)
    for line in _remarks(topology):
        console.print(escape(line), highlight=False, soft_wrap=True)


def _tree(topology: Topology, source: Path | None) -> Tree:
    """Lay out nodes, groups and what is in them."""
    machine = topology.machine
    what = "this machine" if source is None else str(source)
    tree = Tree(
        escape(
            f"{what}: {_count(len(machine.nodes), 'NUMA node')}, "
            f"{_count(len(machine.cores), 'usable core')}, {_count(len(topology.gpus), 'GPU')}, "
            f"{_count(len(topology.nics), 'NIC')} of {topology.nics[0].provider}"
        )
    )
    workers = choose_cpus(topology.groups, machine.cores)
    for group, worker in zip(topology.groups, workers, strict=True):
        branch = tree.add(f"[bold]group {group.index}[/bold]: {escape(_node(topology, group))}")
        for gpu in group.gpus:
            branch.add(escape(_gpu(gpu)))
        for nic in group.nics:
            branch.add(escape(_nic(nic)))
        branch.add(escape(_cpus(group, worker)))
    down = [nic for nic in topology.nics if not nic.up]
    if down:
        branch = tree.add("[bold]down[/bold]: in no group")
        for nic in down:
            branch.add(escape(_nic(nic)))
    return tree


def _remarks(topology: Topology) -> list[str]:
    """Say in words what a tree does not."""
    remarks = []
    on_pci = any(nic.pci for nic in topology.nics)
    if not topology.gpus and not on_pci and len(topology.machine.nodes) <= 1:
        remarks.append(
            "Nothing special here: no GPU, no NIC whose place is known, one NUMA node. "
            "One worker with one NIC is all that this machine needs."
        )
    elif not on_pci:
        remarks.append(
            "The provider does not say where its NICs are, so there is one group and one worker."
        )
    far = [
        group
        for group in topology.groups
        if on_pci and any(gpu.numa_node != group.numa_node for gpu in group.gpus)
    ]
    remarks += [
        f"Group {group.index} holds a GPU of another NUMA node, which has no NIC near."
        for group in far
    ]
    if len(topology.cores) < len(topology.groups):
        remarks.append(
            f"{_count(len(topology.cores), 'core')} for {_count(len(topology.groups), 'worker')}: "
            "workers would not be pinned."
        )
    return remarks


def _node(topology: Topology, group: Group) -> str:
    if group.numa_node is None:
        return "any NUMA node"
    return next(
        (_memory(node) for node in topology.machine.nodes if node.index == group.numa_node),
        f"NUMA node {group.numa_node}",
    )


def _memory(node: NumaNode) -> str:
    if not node.memory_bytes:
        return f"NUMA node {node.index}, without memory"
    return f"NUMA node {node.index}, {node.memory_bytes / _GIB:.1f} GiB"


def _gpu(gpu: Gpu) -> str:
    link = f", {gpu.link_bytes_per_s / 1e9:.0f} GB/s" if gpu.link_bytes_per_s else ""
    return f"GPU {gpu.index} at {gpu.pci} ({gpu.vendor_id:04x}:{gpu.device_id:04x}{link})"


def _nic(nic: Nic) -> str:
    parts = [f"NIC {nic.domain}"]
    if nic.pci is not None:
        parts.append(f"at {nic.pci}")
    if nic.bits_per_s:
        parts.append(f"{nic.bits_per_s / 1e9:g} Gbit/s")
    parts += nic.addresses
    if not nic.reaches_others:
        parts.append("(this host only)")
    return " ".join(parts)


def _cpus(group: Group, worker: int | None) -> str:
    if not group.cpus:
        text = "no CPU of this node may be used"
    else:
        text = f"CPUs {_ranges(group.cpus)}, one of each core"
    return f"{text}; worker on CPU {worker}" if worker is not None else text


def _ranges(cpus: Sequence[int]) -> str:
    """Write 0, 1, 2, 5 as "0-2,5"."""
    runs = [
        [cpu for _, cpu in run]
        for _, run in groupby(enumerate(sorted(cpus)), key=lambda pair: pair[1] - pair[0])
    ]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
