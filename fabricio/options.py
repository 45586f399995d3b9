"""The options of a `Fabric`: one frozen dataclass, checked when it is made."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

from fabricio.errors import OptionsError
from fabricio.secret import Secret, check_secret

Polling = Literal["adaptive", "busy"]

# Below this a hello with 32 lanes would not fit into one frame.
MIN_FRAME_BYTES = 2048
MAX_FRAME_BYTES = 1 << 24
# msgpack's own lengths and the length in a frame's header are 32 bits wide.
MAX_MESSAGE_BYTES = (1 << 32) - 1
MAX_WINDOW_BYTES = 1 << 40
MIN_STRIPE_BYTES = 4096

# A peer takes so many arrivals whose notifications are still to come (channel.py).
MAX_QUEUED_MESSAGES = 65536

# What the engine can hold (fab_engine_limits).
MAX_ENDPOINTS = 65536
MAX_WORKER_COUNT = 64
MAX_WORKER_LANE_COUNT = 64

_MAX_U32 = (1 << 32) - 1
_MAX_U64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricOptions:
    """How a `Fabric` is opened; every field may also be given to `Fabric(...)` by keyword.

    Attributes:
        provider: libfabric provider such as "tcp", "shm", "efa", "verbs" or "tcp;ofi_rxm". None:
            environment variable `FABRICIO_PROVIDER`, else the first of efa, verbs and tcp that
            opens. shm is never chosen by itself, since it reaches this host only.
        source: numeric address to send from and listen on; None: the provider's choice.
        nics: NICs by libfabric's names for them, such as "rdmap79s0-rdm" or "eth0", as `fabricio
            topo` lists them. None: all that are on PCI and up; of others (tcp, shm) one.
        gpus: only the GPUs with these numbers or PCI addresses, and the NICs near them.
        nics_per_gpu: at most so many NICs of each group; None: all.
        workers: engine threads, over which the NICs are dealt. None: one for each group of
            `fabricio topo`.
        pin: whether each worker is pinned to a CPU near its NICs, or the CPUs to take. None: as
            True where NICs are on PCI, else as False.
        warmup: whether connecting sends a word over every pair of NICs, so that the provider has
            connected before pages come.
        stripe_bytes: longer pages are cut over NICs, and a transfer uses as many workers as it
            has pieces of this length; at least 4096.
        polling: "adaptive" spins for `spin_us` after work and then sleeps; "busy" never sleeps
            and costs one core.
        spin_us: microseconds that a worker spins without work before it sleeps; 0 or more.
        nap_us: longest sleep in microseconds where the completion queue cannot be slept on;
            above 0. It bounds how long a message may wait there.
        connect_timeout_s: seconds that `connect` waits for the peer; above 0.
        secret: what both sides of a connection must prove to know, at least 16 random bytes; a
            sequence with the current one first and up to three others, such as the previous one,
            that are good as well; or a function without arguments that returns either and is
            called for each connection, so that it can be changed while the Fabric is open. It
            must not block, and is shown by no repr and in no error. None: whoever reaches this
            Fabric may connect. See the threat model in the documentation.
        peer_timeout_s: seconds without a sign of life after which a peer is lost; above 0.
        heartbeat_s: seconds between two signs of life that the engine sends to each peer, or a
            quarter of the peer's peer_timeout_s if that is shorter; above 0.
        max_message_bytes: largest encoded message, both ways; at least 1.
        receive_window_bytes: encoded bytes of messages that a peer may have under way or
            unread here; at least max_message_bytes + frame_bytes.
        max_endpoints: endpoints of the Fabric at a time. Beyond, `connect` raises
            ResourceExhaustedError, and who connects to this Fabric is not answered, and tries
            again until its connect_timeout_s is over.
        max_regions: registered regions at a time; beyond, ResourceExhaustedError.
        max_transfers: running transfers of an endpoint; beyond, WouldBlock.
        max_queued_messages: messages of an endpoint that wait for the peer's window,
            notifications included; beyond, WouldBlock.
        max_queued_bytes: the same in encoded bytes.
        frame_bytes: largest frame, header included. A provider may allow only less.
        receive_count: receive buffers of `frame_bytes` that each lane keeps posted.
        max_operation_bytes: longest RMA operation in bytes; None: what was measured for the
            provider (1 MiB on tcp and shm), at most the provider's maximum.
        inflight_count: operations in flight per lane; None: what the provider's queue holds, less
            up to 32 for frames.
        inflight_bytes: bytes in flight per lane; None: 16 MiB on tcp and shm, 64 MiB elsewhere;
            and 2 or 4 MiB where several NICs or workers share the work, since what one of them
            has in flight no other can take.
        quantum: operations that one transfer posts before the next has its turn; None: 16. After
            1 MiB the turn ends as well.
        segments: pages that one operation may carry; None: what was measured for the provider.
        merge: pages that are adjacent on both sides become one.
    """

    provider: str | None = None
    source: str | None = None
    nics: tuple[str, ...] | None = None
    gpus: tuple[int | str, ...] | None = None
    nics_per_gpu: int | None = None
    workers: int | None = None
    pin: bool | tuple[int, ...] | None = None
    warmup: bool = True
    stripe_bytes: int = 1 << 20
    polling: Polling = "adaptive"
    spin_us: float = 200.0
    nap_us: float = 2000.0
    connect_timeout_s: float = 10.0
    secret: Secret | None = field(default=None, repr=False)
    peer_timeout_s: float = 10.0
    heartbeat_s: float = 1.0
    max_message_bytes: int = 16 << 20
    receive_window_bytes: int = 32 << 20
    max_endpoints: int = 4096
    max_regions: int = 65536
    max_transfers: int = 65536
    max_queued_messages: int = 65536
    max_queued_bytes: int = 1 << 30
    frame_bytes: int = 65536 + 64
    receive_count: int = 64
    max_operation_bytes: int | None = None
    inflight_count: int | None = None
    inflight_bytes: int | None = None
    quantum: int | None = None
    segments: int | None = None
    merge: bool = True

    def __post_init__(self) -> None:
        """Check every option alone, then those that depend on each other.

        Raises:
            OptionsError: names the option, its value and the cure.
        """
        for name in ("provider", "source"):
            self._check_text(name)
        self._check_list("nics", str)
        self._check_list("gpus", (int, str))
        self._check_pin()
        check_secret(self.secret)
        self._check_integer("nics_per_gpu", 1, MAX_WORKER_LANE_COUNT, optional=True)
        self._check_integer("workers", 1, MAX_WORKER_COUNT, optional=True)
        self._check_integer("stripe_bytes", MIN_STRIPE_BYTES, _MAX_U64)
        if self.polling not in get_args(Polling):
            raise _wrong("polling", self.polling, 'use "adaptive" or "busy"')
        self._check_number("spin_us", minimum=0.0, open_end=False)
        for name in ("nap_us", "connect_timeout_s", "peer_timeout_s", "heartbeat_s"):
            self._check_number(name, minimum=0.0, open_end=True)
        self._check_integer("max_message_bytes", 1, MAX_MESSAGE_BYTES)
        self._check_integer("frame_bytes", MIN_FRAME_BYTES, MAX_FRAME_BYTES)
        self._check_integer("receive_window_bytes", 1, MAX_WINDOW_BYTES)
        self._check_integer("receive_count", 1, 1 << 16)
        self._check_integer("max_endpoints", 1, MAX_ENDPOINTS)
        self._check_integer("max_regions", 1, _MAX_U32)
        self._check_integer("max_transfers", 1, _MAX_U32)
        self._check_integer("max_queued_messages", 1, MAX_QUEUED_MESSAGES)
        self._check_integer("max_queued_bytes", 1, _MAX_U64)
        for name in ("inflight_count", "quantum", "segments"):
            self._check_integer(name, 1, _MAX_U32, optional=True)
        for name in ("max_operation_bytes", "inflight_bytes"):
            self._check_integer(name, 1, _MAX_U64, optional=True)
        for name in ("merge", "warmup"):
            if not isinstance(getattr(self, name), bool):
                raise _wrong(name, getattr(self, name), "use True or False")
        need = self.max_message_bytes + self.frame_bytes
        if self.receive_window_bytes < need:
            raise OptionsError(
                f"receive_window_bytes={self.receive_window_bytes} is less than "
                f"max_message_bytes={self.max_message_bytes} + frame_bytes={self.frame_bytes}: "
                f"use receive_window_bytes of at least {need}, or a smaller max_message_bytes"
            )
        if (
            self.max_operation_bytes is not None
            and self.inflight_bytes is not None
            and self.inflight_bytes < self.max_operation_bytes
        ):
            raise OptionsError(
                f"inflight_bytes={self.inflight_bytes} is less than "
                f"max_operation_bytes={self.max_operation_bytes}, so that no full operation could "
                "ever be posted: raise the first or lower the second"
            )

    @classmethod
    def merged(cls, options: Self | None, overrides: dict[str, Any]) -> Self:
        """Make options from a base and keyword arguments.

        Args:
            options: the base; None: the defaults.
            overrides: field name to value; these win.

        Returns:
            The checked options; the base itself when nothing is overridden.

        Raises:
            OptionsError: an unknown name, or a value that does not pass.
        """
        known = cls.__dataclass_fields__
        for name in overrides:
            if name not in known:
                raise OptionsError(
                    f"there is no option {name!r}: the options are {', '.join(known)}"
                )
        base = options if options is not None else cls()
        if not isinstance(base, cls):
            raise OptionsError(
                f"options is a {type(base).__name__}: use FabricOptions(...) or keyword arguments"
            )
        if not overrides:
            return base
        return cls(**{name: getattr(base, name) for name in known} | overrides)

    def _check_text(self, name: str) -> None:
        value = getattr(self, name)
        if value is None:
            return
        if not isinstance(value, str) or not value or not value.isprintable() or len(value) > 63:
            raise _wrong(name, value, "use a printable name of 1 to 63 characters, or None")

    def _check_list(self, name: str, kinds: type | tuple[type, ...]) -> None:
        """Check a sequence of names or numbers, and keep it as a tuple."""
        value = getattr(self, name)
        if value is None:
            return
        if isinstance(value, str) or not isinstance(value, Sequence) or not value:
            raise _wrong(name, value, "use a list with one entry at least, or None")
        if not all(isinstance(one, kinds) and not isinstance(one, bool) for one in value):
            raise _wrong(name, value, "use what `fabricio topo` shows")
        object.__setattr__(self, name, tuple(value))

    def _check_pin(self) -> None:
        if self.pin is not None and not isinstance(self.pin, bool):
            self._check_list("pin", int)

    def _check_number(self, name: str, *, minimum: float, open_end: bool) -> None:
        value = getattr(self, name)
        above = "above" if open_end else "at least"
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _wrong(name, value, f"use a number {above} {minimum:g}")
        # 1e9 s or us fit into the engine's 64-bit nanoseconds.
        if not math.isfinite(value) or value > 1e9 or value < minimum:
            raise _wrong(name, value, f"use a number {above} {minimum:g} and at most 1e9")
        if open_end and value == minimum:
            raise _wrong(name, value, f"use a number {above} {minimum:g} and at most 1e9")

    def _check_integer(
        self, name: str, minimum: int, maximum: int, *, optional: bool = False
    ) -> None:
        value = getattr(self, name)
        if optional and value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            none = ", or None" if optional else ""
            raise _wrong(name, value, f"use an integer from {minimum} to {maximum}{none}")


def _wrong(name: str, value: object, cure: str) -> OptionsError:
    return OptionsError(f"{name}={value!r} is not possible: {cure}")
