"""`fabricio info`: which libfabric this is, and what its providers can do."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fabricio._ffi import native
from fabricio._ffi.check import check
from fabricio._ffi.loader import load
from fabricio.errors import FabricioError

if TYPE_CHECKING:
    from fabricio._ffi._native import FabInfo

_FIRST_CAPACITY = 64
_PIPE_WIDTH = 200  # columns, where no terminal tells


@dataclass(frozen=True, slots=True)
class ProviderRow:
    """One row of fi_getinfo(3), as far as it is shown.

    Attributes:
        provider: its name, as `provider=` takes it.
        domain: the NIC or, for shm and tcp, the interface.
        source: numeric source address; "" if the provider has none to show.
        immediate_bytes: size of the immediate data of a write.
        inflight_count: operations its transmit queue holds.
        segment_count: remote pages that one operation can carry.
        refusal: why fabricio cannot open it; "" if it can.
    """

    provider: str
    domain: str
    source: str
    immediate_bytes: int
    inflight_count: int
    segment_count: int
    refusal: str


def list_providers(provider: str | None, source: str | None) -> list[ProviderRow]:
    """Ask libfabric for reliable datagram endpoints with RMA.

    Args:
        provider: only this one; None: all.
        source: only those that have this numeric source address; None: any.
    Returns: in libfabric's order, best first; rows that would look the same once.
    Raises: NoLibfabricError; FabricError: fi_getinfo(3) failed.
    Thread: any, but not the event loop: providers are loaded and probe their hardware.
    Source: fi_getinfo(3).
    """
    ffi, lib = native()
    c_provider = ffi.NULL if provider is None else provider.encode()
    c_source = ffi.NULL if source is None else source.encode()
    count = ffi.new("uint32_t *", _FIRST_CAPACITY)
    while True:
        capacity = count[0]
        rows = ffi.new("struct fab_info[]", capacity)
        check(lib.fab_info_list(c_provider, c_source, rows, capacity, count), "fi_getinfo")
        if count[0] <= capacity:
            break

    def row(info: FabInfo) -> ProviderRow:
        return ProviderRow(
            provider=ffi.string(info.provider).decode(),
            domain=ffi.string(info.domain).decode(),
            source=ffi.string(info.source).decode(),
            immediate_bytes=info.immediate_bytes,
            inflight_count=info.tx_size,
            segment_count=info.rma_iov_limit,
            refusal="" if info.usable else ffi.string(info.refusal).decode() or "not usable",
        )

    return list(dict.fromkeys(row(rows[i]) for i in range(count[0])))


def info(
    provider: Annotated[
        str | None, typer.Option(help="Show this provider only, for example tcp.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Show what has this numeric source address only.")
    ] = None,
) -> None:
    """Show which libfabric is used, why, and what its providers can do."""
    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
    try:
        library = load()
        rows = list_providers(provider, source)
    except FabricioError as error:
        typer.echo(f"fabricio info: {error}", err=True)
        raise typer.Exit(1) from error
    major, minor = library.version
    lines = [f"libfabric {major}.{minor}: {library.path}", f"chosen since {library.reason}"]
    lines += [f"passed over: {line}" for line in library.passed_over]
    console.print(escape("\n".join(lines)), highlight=False, soft_wrap=True)
    if not rows:
        console.print("No provider offers reliable datagram endpoints with RMA here.")
        raise typer.Exit(1)
    console.print(_table(rows))


def _table(rows: list[ProviderRow]) -> Table:
    """Lay out the rows; numbers to the right, reasons last."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("provider", "domain", "source"):
        table.add_column(name, overflow="fold")
    for name in ("immediate bytes", "in flight", "segments"):
        table.add_column(name, justify="right")
    table.add_column("usable")
    for row in rows:
        table.add_row(
            escape(row.provider),
            escape(row.domain),
            escape(row.source),
            str(row.immediate_bytes),
            str(row.inflight_count),
            str(row.segment_count),
            f"no: {escape(row.refusal)}" if row.refusal else "yes",
        )
    return table
