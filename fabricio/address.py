"""The address of a Fabric as one printable word, and "host:port" for the rendezvous.

    fabricio:2:tcp:00112233445566778899aabbccddeeff:AgAfkH8AAAEAAAAAAAAAAA,AgAfkX8AAAEAAAAAAAAAAA

That is: the word, version, provider (percent-encoded), incarnation in hexadecimal, and each lane's
raw fabric address in base64url without padding; "," between the lanes of one worker, "+" between
workers. No character of it is special to a shell.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, unquote

from fabricio.errors import OptionsError
from fabricio.options import MAX_WORKER_COUNT, MAX_WORKER_LANE_COUNT

VERSION = 1
INCARNATION_BYTES = 16
MAX_LANE_COUNT = 1024
MAX_LANE_BYTES = 256
MAX_PROVIDER_CHARACTERS = 63

_PREFIX = "fabricio"
_TEXT = re.compile(
    r"fabricio:([0-9]{1,9}):((?:[A-Za-z0-9_.~-]|%[0-9A-F]{2})+):([0-9a-f]{32})"
    r":([A-Za-z0-9_-]+(?:[,+][A-Za-z0-9_-]+)*)"
)
_MAX_TEXT = 1 << 20
_CURE = "use the text that str() of the peer's Fabric.address gives"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a Fabric can be reached, and which incarnation of it.

    Attributes:
        provider: libfabric's name, such as "tcp" or "tcp;ofi_rxm".
        incarnation: 16 random bytes, new at each start.
        lanes: raw fabric address of each lane, worker by worker; at least one.
        lane_counts: how many lanes each worker has; (): one worker has all.
        version: of this format.
    """

    provider: str
    incarnation: bytes
    lanes: tuple[bytes, ...]
    lane_counts: tuple[int, ...] = ()
    version: int = VERSION

    def __post_init__(self) -> None:
        """Check all fields.

        Raises:
            OptionsError: names the field and what it must be.
        """
        if self.version != VERSION:
            raise OptionsError(
                f"the address has version {self.version!r} and this fabricio reads {VERSION}: "
                "use the same release on both sides"
            )
        if not is_provider(self.provider):
            raise OptionsError(f"an address with provider {self.provider!r:.100}: {_CURE}")
        if not is_incarnation(self.incarnation):
            raise OptionsError(
                f"an address whose incarnation is not {INCARNATION_BYTES} bytes: {_CURE}"
            )
        if not are_lanes(self.lanes):
            raise OptionsError(
                f"an address whose lanes are not 1 to {MAX_LANE_COUNT} addresses of 1 to "
                f"{MAX_LANE_BYTES} bytes: {_CURE}"
            )
        if not self.lane_counts:
            object.__setattr__(self, "lane_counts", (len(self.lanes),))
        if not are_lane_counts(self.lane_counts, len(self.lanes)):
            raise OptionsError(
                f"an address whose {len(self.lanes)} lanes do not belong to 1 to "
                f"{MAX_WORKER_COUNT} workers of 1 to {MAX_WORKER_LANE_COUNT} lanes: {_CURE}"
            )

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        words = [base64.urlsafe_b64encode(lane).rstrip(b"=").decode() for lane in self.lanes]
        first = 0
        workers = []
        for count in self.lane_counts:
            workers.append(",".join(words[first : first + count]))
            first += count
        lanes = "+".join(workers)
        provider = quote(self.provider, safe="")
        return f"{_PREFIX}:{self.version}:{provider}:{self.incarnation.hex()}:{lanes}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` of an address gave; white space around it does not matter.

        Args:
            text: for example from a peer's output.

        Returns:
            An equal address.

        Raises:
            OptionsError: this is no address; the text says what to use.
        """
        if not isinstance(text, str):
            raise OptionsError(f"an address is a str, not {type(text).__name__}: {_CURE}")
        word = text.strip() if len(text) <= _MAX_TEXT else ""
        match = _TEXT.fullmatch(word)
        if match is None:
            raise OptionsError(f"{text[:80]!r} is not an address: {_CURE}")
        version, provider, incarnation, lanes = match.groups()
        try:
            return cls(
                provider=unquote(provider, errors="strict"),
                incarnation=bytes.fromhex(incarnation),
                lanes=tuple(_decode_lane(lane) for lane in re.split("[,+]", lanes)),
                lane_counts=tuple(worker.count(",") + 1 for worker in lanes.split("+")),
                version=int(version),
            )
        except OptionsError:
            raise
        # UnicodeDecodeError and binascii.Error are both ValueErrors, like OptionsError.
        except ValueError as error:
            raise OptionsError(f"{text[:80]!r} is not an address ({error}): {_CURE}") from error


def is_provider(value: object) -> bool:
    """Whether it can be the name of a provider."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= MAX_PROVIDER_CHARACTERS
        and value.isascii()
        and value.isprintable()
    )


def is_incarnation(value: object) -> bool:
    """Whether it can be an incarnation."""
    return isinstance(value, bytes) and len(value) == INCARNATION_BYTES


def are_lanes(value: object) -> bool:
    """Whether it can be the raw addresses of all lanes."""
    return (
        isinstance(value, tuple)
        and 0 < len(value) <= MAX_LANE_COUNT
        and all(isinstance(lane, bytes) and 0 < len(lane) <= MAX_LANE_BYTES for lane in value)
    )


def are_lane_counts(value: object, total: int) -> bool:
    """Whether it can be the number of lanes of each worker, `total` in all."""
    return (
        isinstance(value, tuple)
        and 0 < len(value) <= MAX_WORKER_COUNT
        and all(type(count) is int and 0 < count <= MAX_WORKER_LANE_COUNT for count in value)
        and sum(value) == total
    )


def is_host_port(text: str) -> bool:
    """Whether it is "host:port" or "[v6]:port", rather than an address or garbage."""
    try:
        split_host_port(text)
    except OptionsError:
        return False
    return True


def split_host_port(text: str) -> tuple[str, int]:
    """Split "host:port" or "[v6]:port".

    Args:
        text: host name or numeric address, then a port from 0 to 65535.

    Returns:
        Host without brackets, and port.

    Raises:
        OptionsError: it is neither; the text says how to write it.
    """
    if isinstance(text, str):
        match = re.fullmatch(
            r"(?:\[([0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|([\w.-]+)):([0-9]{1,5})", text, re.ASCII
        )
        if match is not None and int(match[3]) <= 65535:
            return match[1] or match[2], int(match[3])
    raise OptionsError(
        f'{text!r:.100} is not "host:port": write a host name or address, a colon and a port of 0 '
        'to 65535, such as "10.0.0.1:7000" or "[::1]:7000"'
    )


def _decode_lane(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
