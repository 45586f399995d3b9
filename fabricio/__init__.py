"""Pages of memory and messages between processes over libfabric, awaited from asyncio."""

from fabricio.address import Address
from fabricio.endpoint import Closure, Endpoint
from fabricio.errors import (
    AuthenticationError,
    BrokenResourceError,
    BusyResourceError,
    ClosedResourceError,
    CompletionError,
    DiscoveryError,
    FabricError,
    FabricioError,
    LocalProtocolError,
    NoLibfabricError,
    NoProviderError,
    OptionsError,
    PeerLostError,
    PeerUnreachableError,
    ProtocolError,
    RegionError,
    RemoteAccessError,
    RemoteProtocolError,
    RemoteTransferError,
    ResourceExhaustedError,
    TruncatedError,
    UnsupportedError,
    WouldBlock,
)
from fabricio.fabric import Fabric
from fabricio.listener import Listener
from fabricio.memory import MemoryRegion, RegionSlice, SharedRegion
from fabricio.options import FabricOptions
from fabricio.remote import RemoteRegion
from fabricio.statistics import FabricAttributes, FabricStatistics
from fabricio.transfer import Transfer

__all__ = [
    "Address",
    "AuthenticationError",
    "BrokenResourceError",
    "BusyResourceError",
    "ClosedResourceError",
    "Closure",
    "CompletionError",
    "DiscoveryError",
    "Endpoint",
    "Fabric",
    "FabricAttributes",
    "FabricError",
    "FabricOptions",
    "FabricStatistics",
    "FabricioError",
    "Listener",
    "LocalProtocolError",
    "MemoryRegion",
    "NoLibfabricError",
    "NoProviderError",
    "OptionsError",
    "PeerLostError",
    "PeerUnreachableError",
    "ProtocolError",
    "RegionError",
    "RegionSlice",
    "RemoteAccessError",
    "RemoteProtocolError",
    "RemoteRegion",
    "RemoteTransferError",
    "ResourceExhaustedError",
    "SharedRegion",
    "Transfer",
    "TruncatedError",
    "UnsupportedError",
    "WouldBlock",
]
