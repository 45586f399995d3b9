"""`Discovery`: what every source of peers has in common."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self, get_args

from fabricio.discovery.membership import MAX_PORT, Family, Membership
from fabricio.discovery.tasks import end
from fabricio.errors import ClosedResourceError, DiscoveryError, OptionsError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from fabricio.discovery.membership import Peer, PeerEvent

_LOG = logging.getLogger("fabricio")


def check_seconds(**values: float) -> None:
    """Refuse times that are none.

    Raises: OptionsError: names the option, its value and the cure.
    """
    for name, value in values.items():
        if not 0 < value < float("inf"):
            raise OptionsError(f"{name}={value!r} is not possible: give seconds above 0")


def check_family(family: str | None) -> None:
    """Refuse what is no family of addresses.

    Raises: OptionsError: names the value and the cure.
    """
    if family is not None and family not in get_args(Family):
        raise OptionsError(f'family={family!r} is not possible: give "v4", "v6" or None')


def check_port(port: int | str) -> None:
    """Refuse what is neither a port's number nor its name.

    Raises: OptionsError: names the value and the cure.
    """
    number = isinstance(port, int) and not isinstance(port, bool) and 1 <= port <= MAX_PORT
    name = isinstance(port, str) and port and port.isascii() and not port.isdigit()
    if not (number or name):
        raise OptionsError(
            f"port={port!r} is not possible: give a number of 1 to {MAX_PORT}, or the name that "
            'the port has in the Service, such as "fabricio"'
        )


class Discovery(ABC):
    """An async iterator of peers that joined and left: `async with ... as discovery`.

    It asks in a task of its own while it is entered, whether or not anybody iterates. Who iterates
    slowly is told the difference between then and now, never a long history. There is one
    iteration: of several tasks that iterate, each event goes to one.

    **What cannot be found out changes nothing.** While the source does not answer, or answers with
    an error, the members stay as they were, `unknown_since` and `last_error` say so, and it goes on
    asking. A peer that died meanwhile is noticed by its endpoint.

    Thread: event loop only.
    """

    def __init__(self) -> None:
        """Prepare; entering begins to ask."""
        self._membership = Membership()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._answered = False
        self._last_error: DiscoveryError | None = None
        self._unknown_since: float | None = None

    @property
    def peers(self) -> tuple[Peer, ...]:
        """Who is there, as far as is known, whether or not the iteration has told it."""
        return self._membership.peers

    @property
    def answered(self) -> bool:
        """Whether the source has ever said who is there."""
        return self._answered

    @property
    def last_error(self) -> DiscoveryError | None:
        """Why it is not known at the moment who is there; None while it is."""
        return self._last_error

    @property
    def unknown_since(self) -> float | None:
        """Since when, in seconds of the loop's clock; None while all is well."""
        return self._unknown_since

    async def __aenter__(self) -> Self:
        """Begin to ask.

        Raises: ClosedResourceError: entered before.
        """
        if self._closed or self._task is not None:
            raise ClosedResourceError("a discovery is entered once: make another")
        self._unknown_since = asyncio.get_running_loop().time()
        self._task = asyncio.create_task(self._run(), name=f"{self!r}")
        self._task.add_done_callback(lambda _: self._news.set())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        await self.aclose()

    def __aiter__(self) -> Self:
        """Iterate over changes, beginning with all who are there."""
        return self

    async def __anext__(self) -> PeerEvent:
        """Wait for the next change.

        Raises: DiscoveryError: it can never be found out, as the text says; StopAsyncIteration: it
            is closed; ClosedResourceError: it was not entered.
        Cancellation: no change is lost.
        """
        if self._task is None:
            raise ClosedResourceError("this discovery is not open: use `async with` on it")
        while True:
            event = self._membership.take()
            if event is not None:
                return event
            if self._closed:
                raise StopAsyncIteration
            if self._task.done():
                failure = self._task.exception()
                assert failure is not None
                raise failure.with_traceback(None)
            self._news.clear()
            await self._news.wait()

    async def aclose(self) -> None:
        """Ask no more and close what was open; whoever iterates is done. Idempotent.

        Cancellation: everything is closed all the same.
        """
        self._closed = True
        self._news.set()
        if self._task is not None:
            await end([self._task])

    @abstractmethod
    async def _run(self) -> None:
        """Ask, forever; call `_known` and `_unknown` for what comes back.

        Raises: DiscoveryError: it makes no sense to go on.
        """

    def _known(self, peers: Iterable[Peer], incomplete: DiscoveryError | None = None) -> None:
        """Take the source's word for who is there.

        Args:
            peers: all of them.
            incomplete: why some of it is what the source said earlier.
        """
        self._answered = True
        if incomplete is not None:
            self._unknown(incomplete)
        else:
            self._current()
        if self._membership.replace(peers):
            self._news.set()

    def _current(self) -> None:
        """Note that the source answers."""
        if self._last_error is not None:
            _LOG.info("%r: the source answers again", self)
        self._last_error = None
        self._unknown_since = None

    def _unknown(self, error: DiscoveryError) -> None:
        """Note that the source does not say who is there; the members stay."""
        if self._last_error is None or str(self._last_error) != str(error):
            _LOG.warning("%r: %s; %d known peers stay", self, error, len(self.peers))
        self._last_error = error
        if self._unknown_since is None:
            self._unknown_since = asyncio.get_running_loop().time()
