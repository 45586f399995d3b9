"""The rendezvous: a plain TCP port that says a Fabric's address, one line to whoever connects."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

from fabricio.address import Address
from fabricio.errors import OptionsError, PeerUnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable

# 1024 lanes of 256 bytes each, in base64.
MAX_LINE_BYTES = 1 << 19


class _Greeter(asyncio.Protocol):
    """Says the line and hangs up; whatever the client says is ignored."""

    def __init__(self, line: bytes) -> None:
        self._line = line

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it
        stream.write(self._line)
        stream.close()


async def serve_address(host: str, port: int, address: Address) -> asyncio.Server:
    """Listen on a TCP port and say `address` there.

    Args:
        host: name or numeric address to bind to.
        port: port; 0: any free one.
        address: what to say.

    Raises: OSError: the port cannot be had.
    Cancellation: the port is given back.
    """
    line = f"{address}\n".encode()
    loop = asyncio.get_running_loop()
    factory: Callable[[], _Greeter] = lambda: _Greeter(line)  # noqa: E731  (typed)
    # In two steps: in one, asyncio's loop would wait with the port bound and nobody to close it.
    server = await loop.create_server(factory, host, port, start_serving=False)
    try:
        await server.start_serving()
    except BaseException:
        server.close()
        raise
    return server


async def fetch_address(host: str, port: int) -> Address:
    """Ask a rendezvous for the address that it says.

    Raises: PeerUnreachableError: nobody there, or it hangs up without a word; OptionsError: what it
        says is no address.
    Cancellation: the connection is dropped.
    """
    try:
        reader, writer = await asyncio.open_connection(host, port, limit=MAX_LINE_BYTES)
        try:
            line = await reader.readline()
        finally:
            writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    except OSError as error:
        raise PeerUnreachableError(
            f"no rendezvous at {host}:{port}: {error}. Check that the peer listens there",
            code=error.errno or 0,
        ) from error
    except ValueError as error:
        raise OptionsError(
            f"{host}:{port} is no rendezvous of fabricio: its line is longer than "
            f"{MAX_LINE_BYTES} bytes"
        ) from error
    if not line.endswith(b"\n"):
        raise PeerUnreachableError(f"the rendezvous at {host}:{port} hung up without an address")
    return Address.parse(line.decode("ascii", "replace"))
