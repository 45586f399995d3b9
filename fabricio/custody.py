"""Memory that a peer which fell silent may still write into, kept until it cannot.

A peer that is stopped may have a write half done. What ends that for good depends on the provider
(`FabricAttributes.writes_last`): where NICs check keys, closing the region; on tcp, after that, the
end of the connection; on shm, the end of the peer's process, which copies into our memory by itself
(process_vm_writev(2)).
"""

from __future__ import annotations

import os
import select
import time
from functools import partial
from typing import TYPE_CHECKING

from fabricio.shm import process_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from fabricio.address import Address
    from fabricio.completion import Completion
    from fabricio.engine import Engine
    from fabricio.errors import PeerLostError

# Objects that outlive their Fabric, since a process lives on that may write into their memory.
_kept: set[Custody] = set()


class SilentWriters:
    """Peers that fell silent, and may still write into the memory of one registration.

    Thread: event loop only.
    """

    def __init__(self, engine: Engine, workers: int, on_change: Callable[[], object]) -> None:
        """Begin with none.

        Args:
            engine: the engine.
            workers: bit mask of the workers that have the registration.
            on_change: called when some of them cannot write any more.
        """
        self._engine = engine
        self._workers = [place for place in range(len(engine.plans)) if workers >> place & 1]
        self._on_change = on_change
        self._losses: dict[Address, PeerLostError] = {}
        self._lost_ns = 0  # the last of them, as the engine tells the time
        self._region_closed = False

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._losses)

    def first(self) -> tuple[Address, PeerLostError]:
        """Return one of them, and how it was lost."""
        return next(iter(self._losses.items()))

    def add(self, loss: PeerLostError, address: Address, kept: object) -> None:
        """Take the news that one has fallen silent.

        Args:
            loss: says so.
            address: its address.
            kept: what owns the memory; it may outlive the Fabric.
        """
        engine = self._engine
        last = engine.attributes.writes_last
        process = process_of(address)
        if last == "region" or address in self._losses:
            return
        if last == "process" and process is None:
            return  # a Fabric of this process: it has stopped as this one would
        self._losses[address] = loss
        self._lost_ns = time.monotonic_ns()
        if process is not None:
            Custody(engine.loop, process, kept, partial(self._remove, [address]))
        elif self._region_closed:
            self._await_connections()

    def region_closed(self) -> None:
        """Take the news that the registration is closed: what connects later cannot write."""
        self._region_closed = True
        if self._losses and self._engine.attributes.writes_last == "connection":
            self._await_connections()

    def engine_closed(self) -> None:
        """Take the news that all our connections have ended."""
        if self._engine.attributes.writes_last == "connection":
            self._losses.clear()

    def _await_connections(self) -> None:
        """Have each worker say when the connections that there are now have ended."""
        engine = self._engine
        if not engine.is_open:
            return  # the engine's end is near
        addresses = list(self._losses)
        lanes = [lane for address in addresses for lane in address.lanes]
        left = set(self._workers)

        def on_completion(completion: Completion) -> None:
            if completion.kind == engine.lib.FAB_CONNECTIONS_ENDED:
                left.discard(completion.worker)
                if not left:
                    self._remove(addresses)

        for worker in self._workers:
            token = engine.reader.expect(on_completion)
            rc = engine.lib.fab_connections_await(
                engine.handle,
                worker,
                token,
                self._lost_ns,
                b"".join(lanes),
                len(lanes[0]),
                len(lanes),
            )
            if rc < 0:  # out of memory: then the engine's end has to do
                engine.reader.forget(token)

    def _remove(self, addresses: list[Address]) -> None:
        for address in addresses:
            self._losses.pop(address, None)
        self._on_change()


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
