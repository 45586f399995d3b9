"""What the provider for shared memory keeps in /dev/shm: its room, and what killed processes left.

Each endpoint has a file there, named after its process: `PID:NUMBER:NUMBER`.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fabricio.address import Address

FOLDER = Path("/dev/shm")

# What one endpoint takes at most; libfabric 2.5 wants that once a core to be free.
FILE_BYTES = 13_438_368

_FILE = re.compile(r"(\d+):\d+:\d+")
_ADDRESS = re.compile(rb"fi_shm://(\d+)")


def process_of(address: Address) -> int | None:
    """Return the id of the process behind an address of shm, if it is another one of this host."""
    match = _ADDRESS.match(address.lanes[0]) if address.provider == "shm" else None
    process = int(match[1]) if match else None
    return None if process == os.getpid() else process


def remove_leftovers(folder: Path = FOLDER) -> int:
    """Remove the files of this user's processes that are gone; return how many.

    Source: the names that libfabric gives them.   Thread: any, but not the event loop.
    """
    removed = 0
    with suppress(OSError):
        for path in folder.iterdir():
            match = _FILE.fullmatch(path.name)
            if match is None or _is_alive(int(match[1])):
                continue
            with suppress(OSError):  # another process was faster, or it is another user's
                if path.lstat().st_uid == os.getuid():
                    path.unlink()
                    removed += 1
    return removed


def shortage() -> str:
    """Say what room is missing; "" if there is enough.

    Thread: any, but not the event loop.   Source: statvfs(3).
    """
    try:
        room = os.statvfs(FOLDER)
    except OSError as error:
        return f": {FOLDER} cannot be used ({error.strerror})"
    free = room.f_bavail * room.f_frsize
    need = FILE_BYTES * (os.cpu_count() or 1)
    if free >= need:
        return ""
    return (
        f": libfabric wants {need / 1e6:.1f} MB of {FOLDER} to be free on a machine with as many "
        f"cores, and {free / 1e6:.1f} MB are. Make it larger (docker run --shm-size, or an "
        "emptyDir of medium Memory), or remove what others have put there"
    )


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # another user's
    return True
