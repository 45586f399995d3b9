"""Peers that come, go, are killed and stopped while all of them transfer: see CONTRIBUTING.md.

python -m tests.soak --minutes 20 [--peers 50] [--provider tcp|shm] [--seed S]
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from rich.console import Console

from tests.soak.supervisor import Soak


def main(arguments: list[str] | None = None) -> int:
    """Run a soak; returns the exit status: 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="how long; ends within 2 more")
    parser.add_argument("--peers", type=int, default=50, help="Fabrics that exist at once")
    parser.add_argument("--provider", choices=["tcp", "shm"], default="tcp")
    parser.add_argument("--seed", type=int, default=1, help="of what is done, and of all bytes")
    chosen = parser.parse_args(arguments)
    if chosen.peers < 2 or chosen.minutes <= 0:
        parser.error("use at least 2 --peers and --minutes above 0")
    soak = Soak(chosen.minutes * 60, chosen.peers, chosen.provider, chosen.seed)
    asyncio.run(soak.run())
    soak.print(Console())
    return 1 if soak.failures else 0


if __name__ == "__main__":
    sys.exit(main())
