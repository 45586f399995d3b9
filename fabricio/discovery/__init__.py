"""Peers that come and go: found by DNS or in Kubernetes, and connected to.

`DnsDiscovery` needs `pip install 'fabricio-rdma[dns]'`, `EndpointSliceDiscovery` needs
`pip install 'fabricio-rdma[kubernetes]'`; each is loaded when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from fabricio.discovery.membership import Peer, PeerEvent, PeerJoined, PeerLeft
from fabricio.discovery.peers import ConnectionEvent, PeerConnected, PeerDisconnected, Peers
from fabricio.discovery.source import Discovery

if TYPE_CHECKING:
    from fabricio.discovery.dns import DnsDiscovery
    from fabricio.discovery.kubernetes import EndpointSliceDiscovery

__all__ = [
    "ConnectionEvent",
    "Discovery",
    "DnsDiscovery",
    "EndpointSliceDiscovery",
    "Peer",
    "PeerConnected",
    "PeerDisconnected",
    "PeerEvent",
    "PeerJoined",
    "PeerLeft",
    "Peers",
]

# Name -> its module, which is the extra's name too.
_EXTRAS = {"DnsDiscovery": "dns", "EndpointSliceDiscovery": "kubernetes"}


def __getattr__(name: str) -> object:
    """Load what needs an extra.

    Raises: ImportError: the extra is not installed; the text says how to install it.
    """
    extra = _EXTRAS.get(name)
    if extra is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{extra}"), name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{name} needs more packages ({error.name} is missing): "
            f"pip install 'fabricio-rdma[{extra}]'"
        ) from error
