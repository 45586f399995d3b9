"""`Refusals`: connections that were not taken: counted, told to the application, logged."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fabricio.errors import AuthenticationError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from fabricio.errors import FabricioError

_LOG = logging.getLogger("fabricio")

# Whoever can reach this Fabric can be refused; the log does not grow by it without bound.
_LOG_EVERY_S = 10.0


class Refusals:
    """What a listening side did not take.

    Attributes:
        count: frames of the handshake that were refused, dropped or not understood.
        authentication_count: peers that did not share the secret.

    Thread: event loop only.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin at 0."""
        self._loop = loop
        self.count = 0
        self.authentication_count = 0
        self._silent_count = 0
        self._silent_until = loop.time()

    def report(
        self, error: FabricioError, caller: str, tell: Callable[[FabricioError], object] | None
    ) -> None:
        """Count a peer that was refused, or that refuses this side.

        Args:
            error: why.
            caller: what the peer calls itself.
            tell: the listener's, who must hear of it; None: there is none.
        """
        self.count += 1
        self.authentication_count += isinstance(error, AuthenticationError)
        error.add_note(f"the peer calls itself {caller}")
        if tell is not None:
            tell(error)
        now = self._loop.time()
        if now < self._silent_until:
            self._silent_count += 1
            return
        more = f" ({self._silent_count} more since the last report)" if self._silent_count else ""
        _LOG.warning("no connection with %s: %s%s", caller, error, more)
        self._silent_count = 0
        self._silent_until = now + _LOG_EVERY_S
