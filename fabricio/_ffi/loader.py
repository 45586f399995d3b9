"""Which libfabric, and why.

Two copies of libfabric in one process see different providers and NICs, so the extension does not
bring its own. One is loaded here with `RTLD_GLOBAL`, which satisfies the extension's need of
`libfabric.so.1` before the system's loader would go looking for it.

Order: the file that `FABRICIO_LIBFABRIC` names; one that the process has mapped already; the one
of an EFA installation; the one of the `mpich` wheel; whatever the system's loader finds.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fabricio.errors import NoLibfabricError

if TYPE_CHECKING:
    from collections.abc import Iterator

SONAME = "libfabric.so.1"
VARIABLE = "FABRICIO_LIBFABRIC"
MINIMUM_VERSION = (1, 17)

_MAPS = Path("/proc/self/maps")
_EFA_ROOT = Path("/opt/amazon/efa")
_WHEEL = "mpich"

_CURE = (
    f"Install one with pip install 'fabricio-rdma[libfabric]' or apt-get install libfabric1, "
    f"or set {VARIABLE} to the path of a {SONAME}."
)

Origin = Literal["environment", "mapped", "efa", "wheel", "system"]

_REASONS: dict[Origin, str] = {
    "environment": f"{VARIABLE} names it",
    "mapped": "this process had it mapped already",
    "efa": f"it belongs to the EFA installation under {_EFA_ROOT}",
    "wheel": f"the Python package {_WHEEL} carries it",
    "system": "the system's loader finds it",
}


@dataclass(frozen=True, slots=True)
class Library:
    """The libfabric that this process uses.

    Attributes:
        path: file it was loaded from.
        origin: which step of the search found it.
        version: (major, minor) as the library itself reports it.
        passed_over: one line for each file that came earlier and could not be loaded.
    """

    path: Path
    origin: Origin
    version: tuple[int, int]
    passed_over: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """Why this one, in words."""
        return _REASONS[self.origin]


def find_libfabric() -> Library:
    """Search in order and load the first libfabric that can be loaded.

    Returns: what was loaded; it stays loaded for the life of the process.
    Raises: NoLibfabricError: none was found, the one that `FABRICIO_LIBFABRIC` names cannot be
        used, or the first found is older than 1.17.
    Thread: any; reads files and runs the library's constructors, so not for the event loop.
    Source: dlopen(3), fabric(7).
    """
    passed_over: list[str] = []
    for origin, name in _candidates():
        try:
            handle = ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            if origin == "environment":
                raise NoLibfabricError(
                    f"{VARIABLE} names {name}, which cannot be loaded: {error}. Correct or unset."
                ) from error
            passed_over.append(f"{name} ({_REASONS[origin]}): {error}")
            continue
        path = Path(name) if "/" in name else _mapped() or Path(name)
        version = _version(handle)
        if version < MINIMUM_VERSION:
            raise NoLibfabricError(
                f"{path} is libfabric {_text(version)} and {_REASONS[origin]}; fabricio needs "
                f"{_text(MINIMUM_VERSION)} or later. {_CURE}"
            )
        if origin == "wheel":
            _offer_plugins(path)
        return Library(path, origin, version, tuple(passed_over))
    raise NoLibfabricError(
        f"No libfabric found. Sought: {VARIABLE} (not set), {_EFA_ROOT}/lib*/{SONAME}, the Python "
        f"package {_WHEEL}, the system's loader. {' '.join(f'Tried {e}.' for e in passed_over)} "
        f"{_CURE}"
    )


@functools.cache
def load() -> Library:
    """Do `find_libfabric` once for the process.

    Returns: the same value at every call.
    Raises: NoLibfabricError: as `find_libfabric`; the next call searches again.
    Thread: any; the first call is not for the event loop.
    """
    return find_libfabric()


def _candidates() -> Iterator[tuple[Origin, str]]:
    """Yield what to try, best first, as (origin, name for dlopen)."""
    mapped = _mapped()
    named = os.environ.get(VARIABLE)
    if named:
        if mapped and not _same_file(mapped, Path(named)):
            raise NoLibfabricError(
                f"{VARIABLE} names {named}, but this process has {mapped} mapped already, and two "
                f"copies in one process see different NICs. Unset {VARIABLE}, or use fabricio "
                f"before what loads the other."
            )
        yield "environment", named
    if mapped:
        yield "mapped", SONAME  # the loader answers with the mapped one, though its file be gone
    for path in sorted(_EFA_ROOT.glob(f"lib*/{SONAME}"), reverse=True):  # lib64 before lib
        yield "efa", str(path)
    wheel = _wheel()
    if wheel:
        yield "wheel", str(wheel)
    yield "system", SONAME


def _mapped() -> Path | None:
    """Return the libfabric that this process has mapped, None if none."""
    for line in _MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6:
            path = Path(fields[5].removesuffix(" (deleted)"))
            if path.name == SONAME or path.name.startswith(f"{SONAME}."):
                return path
    return None


def _wheel() -> Path | None:
    """Return the libfabric of the installed `mpich` distribution, None if there is none."""
    try:
        distribution = importlib.metadata.distribution(_WHEEL)
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in distribution.files or ():
        if file.name == SONAME:
            path = Path(str(distribution.locate_file(file))).resolve()
            return path if path.is_file() else None
    return None


def _same_file(left: Path, right: Path) -> bool:
    """Say whether two paths name one file; a path that does not exist names none."""
    try:
        return left.samefile(right)
    except OSError:
        return False


def _version(handle: ctypes.CDLL) -> tuple[int, int]:
    """Ask the library for its version."""
    function = handle.fi_version
    function.restype = ctypes.c_uint32
    number: int = function()
    return number >> 16, number & 0xFFFF


def _offer_plugins(path: Path) -> None:
    """Let the wheel's libfabric find its plugins (efa, verbs), unless you chose a place.

    The variable must be in the environment when libfabric opens its providers, and stays there,
    so child processes inherit it.
    """
    plugins = path.parent / "libfabric"
    if plugins.is_dir():
        os.environ.setdefault("FI_PROVIDER_PATH", str(plugins))


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
