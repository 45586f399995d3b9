"""What the benchmarks must know of a provider to run it on one host."""

from __future__ import annotations

# Named, so that both processes meet on the loopback interface and no other.
_LOOPBACK_SOURCES = {"tcp": "127.0.0.1", "tcp;ofi_rxm": "127.0.0.1"}


def source_of(provider: str) -> str | None:
    """Return the source address to open a provider with; None: it has no need of one."""
    return _LOOPBACK_SOURCES.get(provider)
