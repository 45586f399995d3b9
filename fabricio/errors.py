"""Every exception that fabricio raises.

Who is at fault shows in the class: `OptionsError`, `RegionError`, `LocalProtocolError`,
`ClosedResourceError` and `BusyResourceError` are yours; `RemoteProtocolError` and
`RemoteTransferError` are the peer's; `FabricError`, `CompletionError`, `DiscoveryError` and
`BrokenResourceError` are the world's. Cancellation is always `asyncio.CancelledError` and is no
part of this tree.

All keyword arguments have defaults, so that every exception can be pickled and copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from fabricio.address import Address


class FabricioError(Exception):
    """Root of everything fabricio raises on purpose."""


class OptionsError(FabricioError, ValueError):
    """An option or an address is wrong; the text names option, value and cure."""


class NoLibfabricError(FabricioError):
    """No usable libfabric was found; the text says where it was sought and what to install."""


class NoProviderError(FabricioError):
    """The provider asked for does not exist here; the text says which do."""


class DiscoveryError(FabricioError):
    """Who the peers are cannot be found out; the text says who was asked, and the cure."""


class AuthenticationError(FabricioError):
    """A connection was refused: one side has not proven that it shares the other's secret.

    Both sides get it where both are honest; nothing else was said. Give both the same `secret=`, or
    neither. Connecting again does not help before that.
    """


class RegionError(FabricioError):
    """A range, an access right, a page list or a region itself does not allow what was asked.

    Nothing has been posted when this is raised.

    Attributes:
        position: place in the page list, counted from 0; None where no list is concerned.
    """

    def __init__(self, message: str = "", *, position: int | None = None) -> None:
        """Keep the text and the position."""
        super().__init__(message)
        self.position = position


class FabricError(FabricioError):
    """A libfabric call failed.

    Attributes:
        code: positive errno, or libfabric's own number from 256 on; 0 where there is none.
        name: its name, for example "FI_ENOMEM"; "" where there is none.
        call: the libfabric call, for example "fi_mr_reg".
        provider: name of the provider.
        provider_code: the provider's own code, 0 if none.
        provider_text: the provider's own text, "" if none.
    """

    def __init__(
        self,
        message: str = "",
        *,
        code: int = 0,
        name: str = "",
        call: str = "",
        provider: str = "",
        provider_code: int = 0,
        provider_text: str = "",
    ) -> None:
        """Keep the text and the attributes."""
        super().__init__(message)
        self.code = code
        self.name = name
        self.call = call
        self.provider = provider
        self.provider_code = provider_code
        self.provider_text = provider_text


class ResourceExhaustedError(FabricError):
    """Memory, descriptors or the NIC's own resources ran out (ENOMEM, ENOSPC, ENOMR, EMFILE)."""


class UnsupportedError(FabricError):
    """The provider or the build cannot do it (ENOSYS, EOPNOTSUPP, ENOPROTOOPT, EBADFLAGS)."""


class PeerUnreachableError(FabricError, ConnectionError):
    """No way to the peer, or no answer from it within `connect_timeout_s`."""


class CompletionError(FabricioError):
    """An operation was posted and then failed.

    Attributes:
        operation: "write", "read" or "send"; "" where none is concerned.
        code: positive errno, or libfabric's own number from 256 on.
        name: its name, for example "FI_EIO".
        call: the libfabric call that reported it.
        provider: name of the provider.
        provider_code: the provider's own code, 0 if none.
        provider_text: the provider's own text, "" if none.
        pages_done: pages whose local completions were seen before the failure.
        bytes_done: the same in bytes.
        quiesced: False if the NIC might still have held the transfer's memory then; the region
            stays pinned until it does not, and `drained` waits for that.
    """

    _drain: Callable[[], Awaitable[None]] | None = None

    def __init__(
        self,
        message: str = "",
        *,
        operation: str = "",
        code: int = 0,
        name: str = "",
        call: str = "",
        provider: str = "",
        provider_code: int = 0,
        provider_text: str = "",
        pages_done: int = 0,
        bytes_done: int = 0,
        quiesced: bool = True,
    ) -> None:
        """Keep the text and the attributes."""
        super().__init__(message)
        self.operation = operation
        self.code = code
        self.name = name
        self.call = call
        self.provider = provider
        self.provider_code = provider_code
        self.provider_text = provider_text
        self.pages_done = pages_done
        self.bytes_done = bytes_done
        self.quiesced = quiesced

    async def drained(self) -> None:
        """Wait until the NIC holds none of the transfer's memory; at once if it is quiesced.

        A peer that is stopped or gone may keep it for as long as it is. The end of the Fabric ends
        that wait in any case.

        Cancellation: the memory stays pinned as before.
        """
        if self._drain is not None:
            await self._drain()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle and copy without what only this process can wait for."""
        state = {name: value for name, value in self.__dict__.items() if name != "_drain"}
        return type(self), self.args, state


class TruncatedError(CompletionError):
    """More arrived than the posted buffer holds (ETRUNC).

    Attributes:
        received_bytes: bytes that fitted.
        overflow_bytes: bytes that did not.
    """

    received_bytes: int = 0
    overflow_bytes: int = 0


class RemoteAccessError(CompletionError):
    """The peer's memory refused the access (EACCES, EKEYREJECTED, ENOKEY)."""


class PeerLostError(CompletionError, ConnectionError):
    """The peer died, left or was cut off (ECONNRESET, ECONNABORTED, ESHUTDOWN and the like).

    Attributes:
        peer: its `Address`, with its incarnation; None where it is not known yet.
        since: when it was last heard of, in UTC; None where that is not known.
    """

    peer: Address | None = None
    since: datetime | None = None

    def __str__(self) -> str:
        """Say which peer, and since when, after what showed it."""
        text = super().__str__()
        if self.peer is not None:
            text += f"; it is {self.peer.provider} {self.peer.incarnation.hex()[:8]}"
        if self.since is not None:
            text += f", last heard of at {self.since:%Y-%m-%d %H:%M:%S} UTC"
        return text


class RemoteTransferError(CompletionError):
    """A transfer towards us failed at the peer, so its notification is not delivered.

    The destination pages may hold some, all or none of the data. The endpoint lives on.

    Attributes:
        transfer: the peer's sequence number of the transfer.
    """

    transfer: int = 0


class ClosedResourceError(FabricioError):
    """You closed it."""


class BrokenResourceError(FabricioError):
    """The world broke it; the first cause is in `__cause__`."""


class BusyResourceError(FabricioError):
    """Two of your tasks use it at once in a way that only one may."""


class WouldBlock(FabricioError):
    """A call that may not wait would have had to; nothing was done. The text says for what."""


class ProtocolError(FabricioError):
    """The rules of the protocol between two peers were broken."""


class LocalProtocolError(ProtocolError):
    """By this side: a message that cannot be encoded or is too large. The endpoint lives on."""


class RemoteProtocolError(ProtocolError):
    """By the peer: the endpoint has failed; no other endpoint is concerned."""
