"""The `fabricio` command; one file per subcommand."""

from __future__ import annotations

import importlib.util
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line.

    Raises: SystemExit: always, with the command's exit code.
    """
    if not (importlib.util.find_spec("typer") and importlib.util.find_spec("rich")):
        sys.exit("The fabricio command needs more packages: pip install 'fabricio-rdma[cli]'")
    from fabricio.cli.app import app

    app()
