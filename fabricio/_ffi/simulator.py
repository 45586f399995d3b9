"""The plugin with the simulated NICs: where it is, how libfabric finds it, its own functions.

libfabric reads `FI_PROVIDER_PATH` and `FI_PROVIDER` once in a process, at its first `fi_getinfo`.
"""

from __future__ import annotations

import ctypes
import os
from importlib import resources
from pathlib import Path

from fabricio.errors import NoProviderError

PROVIDER = "sim"
PATH_VARIABLE = "FI_PROVIDER_PATH"
FILTER_VARIABLE = "FI_PROVIDER"

_FOLDER, _FILE = "sim", "libfabsim-fi.so"
_ERROR_BYTES = 256

# Besides what ctypes takes for granted: arguments of int and char *, and a result of int.
_ARGUMENTS: dict[str, tuple[object, ...]] = {
    "fabsim_configure": (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t),
    "fabsim_fail": (
        ctypes.c_uint32,
        ctypes.c_char_p,
        ctypes.c_uint64,
        ctypes.c_int,
        ctypes.c_int,
    ),
    "fabsim_again": (ctypes.c_uint32, ctypes.c_uint64),
    "fabsim_storm": (ctypes.c_uint32, ctypes.c_double, ctypes.c_uint64),
    "fabsim_down": (ctypes.c_uint32, ctypes.c_uint64),
    "fabsim_up": (ctypes.c_uint32,),
    "fabsim_silence": (ctypes.c_uint32, ctypes.c_int),
    "fabsim_silence_endpoint": (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int),
    "fabsim_overrun": (ctypes.c_uint32,),
    "fabsim_heal": (),
    "fabsim_advance": (ctypes.c_uint64,),
    "fabsim_counter_name": (ctypes.c_uint32,),
    "fabsim_counter": (ctypes.c_uint32, ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint64)),
}


def plugin_path() -> Path:
    """Say where the plugin is: its folder belongs into `FI_PROVIDER_PATH`.

    Raises: NoProviderError: this installation has none.
    """
    path = resources.files(__package__) / _FOLDER / _FILE
    if not isinstance(path, Path) or not path.is_file():
        raise NoProviderError(
            f"this installation of fabricio has no {_FILE}: build it again from its sources"
        )
    return path


def provider_path(current: str | None, default: Path | None, folder: Path) -> str:
    """Add a folder to what `FI_PROVIDER_PATH` says, and take nothing away.

    Args:
        current: what it says now; None: nothing.
        default: where libfabric looks when it says no folder, if there is such a place.
        folder: what to add.
    """
    text = current or ""
    mark = "@" if text.startswith("@") else ""
    parts = [part for part in text.removeprefix("@").split(":") if part]
    # "+file" names a single plugin, and leaves the default in force.
    if default is not None and all(part.startswith("+") for part in parts):
        parts.append(str(default))
    if str(folder) not in parts:
        parts.append(str(folder))
    return mark + ":".join(parts)


def provider_filter(current: str | None) -> str | None:
    """Let `FI_PROVIDER` admit the simulated NICs, and refuse whatever else it refuses.

    Args:
        current: what it says now; None: nothing.
    """
    if not current:
        return current
    names = current.removeprefix("^").split(",")
    ours = [name for name in names if name.strip().lower() == PROVIDER]
    if current.startswith("^"):
        kept = [name for name in names if name not in ours]
        return "^" + ",".join(kept) if kept else None
    return current if ours else f"{current},{PROVIDER}"


def default_folder(library: Path) -> Path | None:
    """Say where a libfabric looks for plugins by itself.

    Args:
        library: the libfabric.
    """
    folder = library.parent / "libfabric"
    return folder if folder.is_dir() else None


class Plugin:
    """The functions that the plugin exports: sim/control.h."""

    def __init__(self) -> None:
        """Load it: the same copy that libfabric loads, or has loaded.

        Raises: NoProviderError: there is none, or it cannot be loaded.
        """
        path = plugin_path()
        try:
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise NoProviderError(f"{path} cannot be loaded: {error}") from error
        for name, arguments in _ARGUMENTS.items():
            getattr(self._library, name).argtypes = arguments
        self._library.fabsim_counter_name.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: object) -> int:
        """Call a function that returns 0 or a negative fi_errno.

        Args:
            name: of the function.
            arguments: its own.
        """
        result: int = getattr(self._library, name)(*arguments)
        return result

    def configure(self, settings: str) -> tuple[int, str]:
        """Replace the NICs.

        Args:
            settings: as in FABSIM_CONFIG.

        Returns: 0 or a negative fi_errno, and why.
        """
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        result = self.call("fabsim_configure", settings.encode(), error, _ERROR_BYTES)
        return result, error.value.decode("utf-8", "replace")

    def counters(self, nic: int) -> tuple[int, dict[str, int]]:
        """Read what a NIC counted.

        Args:
            nic: number of the NIC.

        Returns: 0 or a negative fi_errno, and each count by its name.
        """
        counts: dict[str, int] = {}
        value = ctypes.c_uint64()
        while name := self._library.fabsim_counter_name(len(counts)):
            result = self.call("fabsim_counter", nic, len(counts), ctypes.byref(value))
            if result:
                return result, {}
            counts[name.decode()] = value.value
        return 0, counts


def environment_variables() -> tuple[str | None, str | None]:
    """Return what `FI_PROVIDER_PATH` and `FI_PROVIDER` say."""
    return os.environ.get(PATH_VARIABLE), os.environ.get(FILTER_VARIABLE)


def set_environment_variables(path: str | None, filter_: str | None) -> None:
    """Set both; None removes one.

    Args:
        path: for `FI_PROVIDER_PATH`.
        filter_: for `FI_PROVIDER`.
    """
    for name, value in ((PATH_VARIABLE, path), (FILTER_VARIABLE, filter_)):
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
