"""Gathers the subcommands."""

from __future__ import annotations

import typer

from fabricio.cli.info import info
from fabricio.cli.topo import topo

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
app.command()(info)
app.command()(topo)


@app.callback()
def fabricio() -> None:
    """Pages of memory and messages between processes over libfabric."""
