"""The C engine, reached through cffi.

Nothing is loaded on import: `native` loads libfabric and then the extension at its first call.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from fabricio._ffi.loader import load

if TYPE_CHECKING:
    from fabricio._ffi._native import FFI, Lib

__all__ = ["native"]


@functools.cache
def native() -> tuple[FFI, Lib]:
    """Load libfabric and the engine.

    Returns: cffi's `ffi` and `lib`; the same pair at every call.
    Raises: NoLibfabricError: no usable libfabric; the text says what to install.
    Thread: any; the first call opens shared libraries, so not for the event loop.
    """
    load()
    from fabricio._ffi import _native

    return _native.ffi, _native.lib
