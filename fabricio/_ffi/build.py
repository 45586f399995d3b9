"""What cffi generates the extension from; run by the build only.

The declarations are files that the C sources include as well, so that the two cannot differ.
They are read in written order: a name must be declared before a later file uses it.
"""

from pathlib import Path

from cffi import FFI

CDEF_NAMES = ("error", "engine", "info", "topology", "region", "peer", "transfer", "completion")

ffibuilder = FFI()
for name in CDEF_NAMES:
    ffibuilder.cdef((Path(__file__).parent / "cdef" / f"{name}.h").read_text(encoding="utf-8"))
ffibuilder.set_source("fabricio._ffi._native", '#include "fabricio.h"\n')
