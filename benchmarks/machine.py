"""What the figures were measured on: `python -m benchmarks.machine` prints one line of Markdown."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

from fabricio._ffi.loader import load

_CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")


def describe() -> dict[str, str]:
    """Return the facts that figures depend on, as text by name.

    Raises:
        NoLibfabricError: there is no libfabric to measure with.
    """
    library = load()
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "kernel": platform.release(),
        "TCP congestion control": _CONGESTION_CONTROL.read_text().strip(),
        "libfabric": "{}.{}".format(*library.version) + f" ({library.origin})",
        "Python": platform.python_version(),
        "uvloop": importlib.metadata.version("uvloop"),
    }


def _processor() -> str:
    """Return the processor's name for itself, or the architecture where it has none."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


if __name__ == "__main__":
    print("Machine: " + "; ".join(f"{name} {value}" for name, value in describe().items()))
