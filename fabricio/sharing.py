"""`Sharing`: the regions that the two sides of one channel have shared with each other."""

from __future__ import annotations

import weakref
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from fabricio.descriptor import Descriptor
from fabricio.errors import FabricioError, RemoteProtocolError
from fabricio.remote import Grant, RemoteRegion, pack_shared

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricio.address import Address
    from fabricio.engine import Engine
    from fabricio.errors import PeerLostError
    from fabricio.memory import MemoryRegion
    from fabricio.outbox import Outbox


class Sharing:
    """Puts regions into messages and takes them out, and takes them back; a `Holder`.

    Attributes:
        engine: the engine.
        lent: whether the peer may have a region of ours.
        revoking: whether a revocation of ours waits for its answer.

    Thread: event loop only.
    """

    def __init__(self, engine: Engine, outbox: Outbox, endpoint: object) -> None:
        """Begin with nothing shared.

        Args:
            engine: the engine.
            outbox: sends revocations and answers.
            endpoint: what the peer's regions are bound to.
        """
        self.engine = engine
        self.lent = False
        self._outbox = outbox
        self._endpoint = endpoint
        self._incarnation = b""
        self._lane_count = 0
        self._grants: weakref.WeakValueDictionary[int, Grant] = weakref.WeakValueDictionary()
        self._revocations: dict[int, Callable[[], object]] = {}  # of our regions, unanswered
        self._ended = False
        self._writable: weakref.WeakSet[MemoryRegion] = weakref.WeakSet()

    def open(self, incarnation: bytes, lane_count: int) -> None:
        """Take the peer's incarnation and number of lanes, which its regions must bear."""
        self._incarnation = incarnation
        self._lane_count = lane_count

    def let_write(self, region: MemoryRegion) -> None:
        """Remember that the peer gets a region to write into; see `Holder.let_write`."""
        self._writable.add(region)

    @property
    def revoking(self) -> bool:
        """See the class."""
        return bool(self._revocations)

    def pack(self, value: object) -> object:
        """Encode a region for a message; see `pack_shared`."""
        packed = pack_shared(value, self)
        self.lent = True
        return packed

    def unpack(self, code: int, data: bytes) -> RemoteRegion:
        """Decode a region of a message.

        Raises: RemoteProtocolError: not one of the peer's.
        """
        descriptor = Descriptor.decode(data)
        if descriptor.incarnation != self._incarnation:
            raise RemoteProtocolError(
                "the peer sent a region that is not its own, or not any more since its Fabric was "
                "opened anew: have it share what it has registered with the Fabric of this endpoint"
            )
        if len(descriptor.keys) not in (1, self._lane_count):
            raise RemoteProtocolError(
                f"the peer sent a region with {len(descriptor.keys)} keys, and has "
                f"{self._lane_count} lanes: install the same release of fabricio on both"
            )
        grant = self._grants.get(descriptor.region)
        if grant is None:
            grant = self._grants[descriptor.region] = Grant()
        return RemoteRegion.from_descriptor(self._endpoint, descriptor, grant)

    def revoke(self, region: int, on_let_go: Callable[[], object]) -> None:
        """Have the peer let go of a region of ours; see `Holder.revoke`. Each region once."""
        if self._ended:
            on_let_go()
            return
        self._revocations[region] = on_let_go
        if not self._outbox.silent:
            self._outbox.stream.revoke(region)
            self._pump()

    def acknowledged(self, region: int) -> None:
        """Take the peer's answer."""
        on_let_go = self._revocations.pop(region, None)
        if on_let_go is not None:
            on_let_go()

    def revoked(self, region: int) -> None:
        """Take a revocation of the peer's; answer it when no transfer can touch the region."""
        let_go = partial(self._let_go, region)
        grant = self._grants.get(region)
        if grant is None:
            let_go()
        else:
            grant.revoke(let_go)

    def silent(self, loss: PeerLostError, address: Address) -> None:
        """Take the news that the peer has fallen silent, and may yet go on with a write.

        Args:
            loss: what to tell whoever deregisters such a region.
            address: the peer's.
        """
        writable, self._writable = self._writable, weakref.WeakSet()
        for region in writable:
            region.lose_writer(loss, address, self)

    def end(self) -> None:
        """Ask the peer no more: it has ended its transfers, or cannot be asked. Idempotent."""
        self._ended = True
        self._writable.clear()
        while self._revocations:
            self._revocations.popitem()[1]()

    def _let_go(self, region: int) -> None:
        if not self._outbox.silent:
            self._outbox.stream.let_go(region)
            self._pump()

    def _pump(self) -> None:
        """Send what may leave, for a caller that is not to blame if the engine refuses."""
        with suppress(FabricioError):  # whom it concerns has been told
            self._outbox.pump()
