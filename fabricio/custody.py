"""`Custody`: memory that a peer which fell silent may still write into, kept until it cannot.

A peer that is stopped may have a write half done. What ends that for good depends on the provider
(`FabricAttributes.writes_last`): where NICs check keys, closing the region; on tcp, the end of the
connection, for which libfabric has no call but closing our endpoint; on shm, the end of the peer's
process, which copies into our memory by itself (process_vm_writev(2)).
"""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

# Objects that outlive their Fabric, since a process lives on that may write into their memory.
_kept: set[Custody] = set()


class Custody:
    """Holds on to an object until a process has ended. Nothing of it needs to be awaited.

    Thread: event loop only.   Source: pidfd_open(2).
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        process: int,
        kept: object,
        on_end: Callable[[], object],
    ) -> None:
        """Begin.

        Args:
            loop: watches the process for as long as it runs; after that the object stays for good.
            process: its id.
            kept: the object.
            on_end: called once, perhaps at once: the process has ended, and the object is let go.
        """
        self._loop = loop
        self._kept: object = kept
        self._on_end = on_end
        try:
            self._fd = os.pidfd_open(process)
        except ProcessLookupError:
            self._kept = None
            on_end()
            return
        except OSError:
            # The system has no pidfds or no descriptor is left: it is kept for good.
            _kept.add(self)
            return
        _kept.add(self)
        if _is_readable(self._fd):
            self._end()
        else:
            loop.add_reader(self._fd, self._end)

    def _end(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        _kept.discard(self)
        self._kept = None
        self._on_end()


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
