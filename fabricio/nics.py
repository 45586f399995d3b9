"""The NICs that libfabric's providers offer, and the notes by which an XML file keeps them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabricio._ffi import native
from fabricio._ffi.listing import read_rows
from fabricio.errors import FabricError, NoProviderError, OptionsError
from fabricio.hardware import Nic, PciAddress, is_host_only
from fabricio.shm import shortage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fabricio._ffi._native import FFI, Array, FabNic

PROVIDER_VARIABLE = "FABRICIO_PROVIDER"
# As `Fabric` tries them where nobody names one, and the layer that old libfabrics need.
_AUTOMATIC = ("efa", "verbs", "tcp")
_LAYERED = ("verbs", "tcp")
_LAYER = ";ofi_rxm"


def list_nics(provider: str | None = None) -> tuple[Nic, ...]:
    """Ask libfabric for the NICs of one provider that fabricio can open.

    Args:
        provider: its exact name; None: as `fabricio.topology.Topology.discover`.

    Returns: at least one, in libfabric's order, the best first; before all, the network interface
        that leads to other networks, since a bridge of containers may be as fast.
    Raises: NoProviderError: there is none; FabricError: fi_getinfo(3) failed; NoLibfabricError.
    Thread: any, but not the event loop.
    Source: fi_getinfo(3), fi_nic(3).
    """
    asked = provider or os.environ.get(PROVIDER_VARIABLE) or None
    for name in provider_names(asked):
        try:
            found = _merge(_rows_of(name))
        except FabricError:
            if asked is not None:
                raise
            continue
        if found:
            ways_out = default_routes()
            return tuple(sorted(found, key=lambda nic: nic.domain not in ways_out))
    missing = shortage() if asked == "shm" else ""
    what = f"provider {asked!r} offers no" if asked else f"none of {', '.join(_AUTOMATIC)} offers a"
    raise NoProviderError(
        f"{what} NIC here that fabricio can open{missing}; run `fabricio info` to see "
        f"what libfabric offers, and choose with provider= or {PROVIDER_VARIABLE}"
    )


def default_routes(table: Path = Path("/proc/net/route")) -> set[str]:
    """Name the interfaces that IPv4's default routes lead over; none where that is unknown."""
    try:
        rows = [line.split() for line in table.read_text("ascii").splitlines()[1:]]
    except (OSError, ValueError):
        return set()
    return {row[0] for row in rows if len(row) > 7 and row[1] == row[7] == "00000000"}


def provider_names(asked: str | None) -> list[str]:
    """Say which providers to try, in order.

    Args:
        asked: an exact name; None: those of hardware, then tcp. Not shm: it reaches this host only.
    """
    names = (asked,) if asked is not None else _AUTOMATIC
    return [full for n in names for full in ((n, n + _LAYER) if n in _LAYERED else (n,))]


def _rows_of(provider: str) -> list[Nic]:
    """One NIC for each row that is usable."""
    ffi, lib = native()
    name = provider.encode()

    def new(capacity: int) -> Array[FabNic]:
        return ffi.new("struct fab_nic[]", capacity)

    return [
        nic
        for nic in read_rows(
            ffi,
            new,
            lambda *to: lib.fab_nic_list(name, *to),
            lambda row: _nic(ffi, row) if row.usable else None,
            "fi_getinfo",
        )
        if nic is not None
    ]


def _nic(ffi: FFI, row: FabNic) -> Nic:
    pci = PciAddress(row.pci_domain, row.pci_bus, row.pci_device, row.pci_function)
    source = ffi.string(row.source).decode()
    return Nic(
        domain=ffi.string(row.domain).decode(),
        provider=ffi.string(row.provider).decode(),
        pci=pci if row.is_pci else None,
        bits_per_s=row.bits_per_s,
        up=not row.is_down,
        addresses=(source,) if source else (),
    )


def _merge(rows: Sequence[Nic]) -> tuple[Nic, ...]:
    """Make one NIC of all rows with the same domain."""
    merged: dict[str, Nic] = {}
    for row in rows:
        first = merged.get(row.domain, row)
        merged[row.domain] = Nic(
            domain=first.domain,
            provider=first.provider,
            pci=first.pci or row.pci,
            bits_per_s=max(first.bits_per_s, row.bits_per_s),
            up=first.up and row.up,
            addresses=tuple(dict.fromkeys((*first.addresses, *row.addresses))),
        )
    return tuple(merged.values())


def nic_to_note(nic: Nic) -> str:
    """Write a NIC into a line that XML can carry.

    Args:
        nic: what `nic_from_note` is to give back, but for its NUMA node, which hwloc tells.

    Returns: JSON.
    """
    return json.dumps(
        {
            "domain": nic.domain,
            "provider": nic.provider,
            "pci": None if nic.pci is None else str(nic.pci),
            "bits_per_s": nic.bits_per_s,
            "up": nic.up,
            "addresses": nic.addresses,
        }
    )


def nic_from_note(note: str) -> Nic:
    """Read what `nic_to_note` wrote.

    Args:
        note: from a file, so anything.

    Returns: the NIC.
    Raises: OptionsError: it is something else.
    """
    try:
        fields: Any = json.loads(note)
        pci = fields["pci"]
        nic = Nic(
            domain=fields["domain"],
            provider=fields["provider"],
            pci=None if pci is None else PciAddress.parse(pci),
            bits_per_s=fields["bits_per_s"],
            up=fields["up"],
            addresses=tuple(fields["addresses"]),
        )
        texts = (nic.domain, nic.provider, *nic.addresses)
        sane = all(isinstance(text, str) and text.isprintable() and text for text in texts)
        sane = sane and type(nic.up) is bool and type(nic.bits_per_s) is int
        sane = sane and 0 <= nic.bits_per_s < 1 << 64
        if not sane:
            raise ValueError("a value of another kind")
        for address in nic.addresses:
            is_host_only(address)  # refuses what is no address
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise OptionsError(
            f"the XML file has a note on a NIC that cannot be read ({error!r}): {note[:80]!r}; "
            "export it again with `fabricio topo --xml`"
        ) from error
    return nic


def of_provider(nics: Sequence[Nic], provider: str | None) -> tuple[Nic, ...]:
    """Choose the NICs in a file that belong to one provider.

    Args:
        nics: all that the file has.
        provider: its exact name; None: all.

    Returns: at least one.
    Raises: NoProviderError: the file has none of it.
    """
    if provider is None:
        return tuple(nics)
    names = provider_names(provider)
    found = tuple(nic for nic in nics if nic.provider in names)
    if not found:
        there = ", ".join(dict.fromkeys(nic.provider for nic in nics))
        raise NoProviderError(f"the XML file has no NIC of provider {provider!r}, only of {there}")
    return found
