"""What a machine is made of, as far as placement asks: plain records, no I/O.

Numbers of CPUs and NUMA nodes are the system's. `None` stands for what nobody knows.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

from fabricio.errors import OptionsError

_PCI_TEXT = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")


class PciAddress(NamedTuple):
    """Where a device is on PCI; sorts as the system does."""

    domain: int
    bus: int
    device: int
    function: int

    def __str__(self) -> str:
        """Write it as the system does: "0000:53:00.0"."""
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function:x}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` writes.

        Raises: OptionsError: it is something else.
        """
        found = _PCI_TEXT.fullmatch(text)
        if found is None:
            raise OptionsError(f"{text!r} is no PCI address: use one such as 0000:53:00.0")
        return cls(*(int(part, 16) for part in found.groups()))


@dataclass(frozen=True, slots=True)
class NumaNode:
    """A NUMA node.

    Attributes:
        index: the system's number.
        memory_bytes: its memory; 0: it has none of its own.
        cpu_count: CPUs on it that this process may use, hyperthreads included.
    """

    index: int
    memory_bytes: int
    cpu_count: int


@dataclass(frozen=True, slots=True)
class Core:
    """A core that this process may use.

    Attributes:
        cpu: its first usable CPU; hyperthread siblings are left out.
        node: its NUMA node.
    """

    cpu: int
    node: int | None


@dataclass(frozen=True, slots=True)
class PciObject:
    """A PCI device, or a bridge above one.

    Attributes:
        kind: a host bridge has no address.
        address: where it is.
        node: its NUMA node; None: the system says -1, or several.
        parent: place of the bridge above it in `Machine.pcis`.
        class_id: PCI base class and subclass, for example 0x0302.
        vendor_id: PCI vendor.
        device_id: PCI device.
        link_bytes_per_s: speed of the link above it; 0: unknown.
    """

    kind: Literal["host", "bridge", "device"]
    address: PciAddress | None
    node: int | None
    parent: int | None
    class_id: int = 0
    vendor_id: int = 0
    device_id: int = 0
    link_bytes_per_s: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """What hwloc says of a machine.

    Attributes:
        nodes: its NUMA nodes.
        cores: those that this process may use; of another machine, all that are allowed there.
        pcis: bridges and devices; `PciObject.parent` counts from 0 in here.
        is_local: False: read from an XML file.
    """

    nodes: tuple[NumaNode, ...]
    cores: tuple[Core, ...]
    pcis: tuple[PciObject, ...] = ()
    is_local: bool = True


@dataclass(frozen=True, slots=True)
class Nic:
    """A NIC as libfabric offers it.

    Attributes:
        domain: libfabric's name for it, as `nics=` takes it, such as "rdmap79s0-rdm" or "eth0".
        provider: name of the provider that offers it.
        pci: where it is; None: the provider does not say, as tcp and shm.
        numa_node: the node that it is attached to.
        bits_per_s: speed of its link; 0: unknown.
        up: False: the provider says that its link is down.
        addresses: its IP addresses in libfabric's order; empty where it has no such.
    """

    domain: str
    provider: str
    pci: PciAddress | None = None
    numa_node: int | None = None
    bits_per_s: int = 0
    up: bool = True
    addresses: tuple[str, ...] = ()

    @property
    def source(self) -> str | None:
        """The address to open it with: the first that other hosts can reach, else the first."""
        reachable = (a for a in self.addresses if not is_host_only(a))
        return next(reachable, self.addresses[0] if self.addresses else None)

    @property
    def reaches_others(self) -> bool:
        """False: all that it has are loopback and link-local addresses."""
        return not self.addresses or any(not is_host_only(a) for a in self.addresses)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU.

    Attributes:
        index: its place in the order of PCI addresses, from 0, as `gpus=` takes it; CUDA counts
            alike with CUDA_DEVICE_ORDER=PCI_BUS_ID and all GPUs visible.
        pci: where it is.
        numa_node: the node that it is attached to.
        vendor_id: PCI vendor, for example 0x10de.
        device_id: PCI device.
        link_bytes_per_s: speed of its PCI link; 0: unknown.
    """

    index: int
    pci: PciAddress
    numa_node: int | None = None
    vendor_id: int = 0
    device_id: int = 0
    link_bytes_per_s: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """What belongs together, and one worker serves.

    Attributes:
        index: its place among the groups, from 0.
        gpus: mostly one; none on hosts without; several where they must share NICs.
        nics: NICs near the GPU, or of the NUMA node; in PCI order, or in libfabric's.
        numa_node: where all of this is; None: unknown, or all over the host.
        cpus: usable CPUs on the node, one of each core, shared out among the node's groups; empty
            where none may be used.
    """

    index: int
    gpus: tuple[Gpu, ...]
    nics: tuple[Nic, ...]
    numa_node: int | None
    cpus: tuple[int, ...]

    @property
    def name(self) -> str:
        """For people: "GPU 0000:53:00.0", "NUMA node 1" or "host"."""
        if len(self.gpus) == 1 and any(nic.pci for nic in self.nics):
            return f"GPU {self.gpus[0].pci}"
        if self.gpus and any(nic.pci for nic in self.nics):
            return f"GPUs {', '.join(str(gpu.pci) for gpu in self.gpus)}"
        return "host" if self.numa_node is None else f"NUMA node {self.numa_node}"


def is_host_only(address: str) -> bool:
    """Say whether an IP address must not be given to a peer on another host.

    Args:
        address: numeric IPv4 or IPv6 address, with or without a scope ("%eth0").

    Returns: True for loopback and link-local addresses and for the unspecified one.
    Raises: ValueError: it is no IP address.
    Source: RFC 3927, RFC 4291.
    """
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return ip.is_loopback or ip.is_link_local or ip.is_unspecified
