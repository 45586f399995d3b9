"""The topology of this machine, or of one in an XML file, through hwloc and libfabric.

hwloc knows NUMA nodes, cores and the PCI tree; libfabric knows which NICs its providers offer, and
where on PCI they are. `fabricio.grouping` makes groups of both, `fabricio.placement` workers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from fabricio._ffi import native
from fabricio._ffi.check import check, error_from
from fabricio._ffi.listing import read_rows
from fabricio.errors import OptionsError
from fabricio.grouping import find_gpus, group_devices, locate
from fabricio.hardware import Core, Machine, NumaNode, PciAddress, PciObject
from fabricio.hwloc_xml import MAX_BYTES, sanitize
from fabricio.nics import list_nics, nic_from_note, nic_to_note, of_provider

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fabricio._ffi._native import FFI, FabError, FabPci, Lib
    from fabricio._ffi._native import Topology as Handle
    from fabricio.hardware import Gpu, Group, Nic

_KINDS: tuple[Literal["host", "bridge", "device"], ...] = ("host", "bridge", "device")


@dataclass(frozen=True, slots=True)
class Topology:
    """GPUs, NICs, NUMA nodes and CPUs of a machine, in groups.

    Attributes:
        machine: what hwloc says.
        nics: what libfabric offers of one provider, NICs that are down included.
        gpus: all GPUs, in PCI order.
        groups: what belongs together, one worker each.
        xml: all of it as hwloc XML.
    """

    machine: Machine
    nics: tuple[Nic, ...]
    gpus: tuple[Gpu, ...]
    groups: tuple[Group, ...]
    xml: str = field(repr=False, default="")

    @classmethod
    def discover(cls, provider: str | None = None, xml: str | Path | None = None) -> Self:
        """Look at this machine, or at one in a file.

        Args:
            provider: whose NICs, by its exact name. None: environment variable
                `FABRICIO_PROVIDER`, else the first of efa, verbs and tcp that offers any.
            xml: a file of hwloc 2.x, from `to_xml` or from lstopo. The NICs are those in the file
                if `to_xml` wrote it, else those of this machine, matched with the file.

        Returns: the topology; CPUs are those that cgroups and the calling thread's affinity
            allow, or those allowed in the file.
        Raises: OptionsError: the file cannot be read or holds no topology that fabricio can use;
            NoProviderError: no NIC of the provider; NoLibfabricError; FabricError: fi_getinfo or
            hwloc failed.
        Thread: any, but not the event loop: reads files, and providers probe their hardware.
        Source: hwloc(7), fi_getinfo(3), fi_nic(3).
        """
        ffi, lib = native()
        with _Handle(ffi, lib, None if xml is None else Path(xml)) as handle:
            machine = handle.machine()
            noted = [nic_from_note(note) for note in handle.notes()]
            if noted:
                nics = of_provider(noted, provider)
            else:
                nics = list_nics(provider)
                for nic in nics:
                    handle.note(nic_to_note(nic))
            return cls.from_records(machine, nics, xml=handle.xml())

    @classmethod
    def from_records(cls, machine: Machine, nics: Sequence[Nic], *, xml: str = "") -> Self:
        """Group records, wherever they come from.

        Args:
            machine: as hwloc would describe it.
            nics: as libfabric would list them.
            xml: what `to_xml` is to write.

        Returns: the topology.
        """
        located = locate(machine, nics)
        gpus = find_gpus(machine)
        return cls(machine, located, gpus, group_devices(machine, gpus, located), xml)

    @property
    def cores(self) -> tuple[Core, ...]:
        """The cores that may be used."""
        return self.machine.cores

    def to_xml(self, path: str | Path) -> None:
        """Write an hwloc XML file that `discover` and lstopo read, with the NICs as notes in it.

        It names this host (hwloc's HostName) and its addresses.

        Args:
            path: overwritten if it is there.

        Raises: OSError: it cannot be written; OptionsError: the topology was made from records.
        Thread: any, but not the event loop.
        """
        if not self.xml:
            raise OptionsError("this topology was made from records: only one discovered has XML")
        Path(path).write_text(self.xml, encoding="utf-8")


class _Handle:
    """An open `struct fab_topology`."""

    def __init__(self, ffi: FFI, lib: Lib, path: Path | None) -> None:
        self._ffi = ffi
        self._lib = lib
        self._path = path

    def __enter__(self) -> Self:
        out = self._ffi.new("struct fab_topology **")
        error = self._ffi.new("struct fab_error *")
        xml = None if self._path is None else _safe_xml(self._path)
        rc = self._lib.fab_topology_open(
            self._ffi.NULL if xml is None else xml, len(xml or b""), out, error
        )
        if rc and self._path is not None:
            raise OptionsError(
                f"hwloc cannot read {self._path}: {self._failure(error)}; export it again with "
                "`fabricio topo --xml` or lstopo"
            )
        if rc:
            raise self._failure(error)
        self._handle: Handle = out[0]
        return self

    def __exit__(self, *_: object) -> None:
        self._lib.fab_topology_close(self._handle)

    def _failure(self, error: FabError) -> Exception:
        call, text = (self._ffi.string(text).decode() for text in (error.call, error.text))
        return error_from((error.code, 0, call, text), operation=None, provider="")

    def machine(self) -> Machine:
        """Read all records."""
        ffi, lib, handle = self._ffi, self._lib, self._handle
        nodes = read_rows(
            ffi,
            lambda capacity: ffi.new("struct fab_numa_node[]", capacity),
            lambda *to: lib.fab_topology_nodes(handle, *to),
            lambda row: NumaNode(row.node, row.memory_bytes, row.cpu_count),
            "hwloc_bitmap_alloc",
        )
        cores = read_rows(
            ffi,
            lambda capacity: ffi.new("struct fab_core[]", capacity),
            lambda *to: lib.fab_topology_cores(handle, *to),
            lambda row: Core(row.cpu, _known(row.node)),
            "hwloc_bitmap_alloc",
        )
        pcis = read_rows(
            ffi,
            lambda capacity: ffi.new("struct fab_pci[]", capacity),
            lambda *to: lib.fab_topology_pcis(handle, *to),
            _pci,
            "hwloc_get_obj_by_depth",
        )
        is_local = bool(lib.fab_topology_is_local(handle))
        nodes.sort(key=lambda node: node.index)
        return Machine(tuple(nodes), tuple(cores), tuple(pcis), is_local)

    def notes(self) -> list[str]:
        """Read the notes in the XML file."""
        notes: list[str] = []
        while note := self._lib.fab_topology_note(self._handle, len(notes)):
            notes.append(self._ffi.string(note).decode())
        return notes

    def note(self, text: str) -> None:
        """Add a note."""
        check(self._lib.fab_topology_note_add(self._handle, text.encode()), "hwloc_obj_add_info")

    def xml(self) -> str:
        """Export."""
        out = self._ffi.new("const char **")
        count = self._ffi.new("uint64_t *")
        error = self._ffi.new("struct fab_error *")
        if self._lib.fab_topology_xml(self._handle, out, count, error):
            raise self._failure(error)
        return self._ffi.string(out[0]).decode("utf-8", "replace")


def _safe_xml(path: Path) -> bytes:
    """Read a file and make it safe for hwloc."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise OptionsError(f"the topology in {path} cannot be read: {error}") from error
    try:
        return sanitize(data)
    except OptionsError as error:
        raise OptionsError(
            f"{path} is no topology of hwloc 2.x: {error}. Export one with `fabricio topo --xml` "
            "or lstopo"
        ) from error


def _pci(row: FabPci) -> PciObject:
    kind = _KINDS[row.kind]
    address = PciAddress(row.domain, row.bus, row.device, row.function)
    return PciObject(
        kind=kind,
        address=None if kind == "host" else address,
        node=_known(row.node),
        parent=_known(row.parent),
        class_id=row.class_id,
        vendor_id=row.vendor_id,
        device_id=row.device_id,
        link_bytes_per_s=row.link_bytes_per_s,
    )


def _known(number: int) -> int | None:
    return None if number < 0 else number
