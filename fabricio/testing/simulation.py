"""Simulated NICs: a libfabric provider of fabricio's own, for tests and benchmarks.

Its NICs exist within one process. They have EFA's attributes, complete out of order on request,
keep the pace of a link or none, and fail when told to.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from fabricio._ffi import native
from fabricio._ffi.check import check
from fabricio._ffi.loader import load
from fabricio._ffi.simulator import (
    PATH_VARIABLE,
    PROVIDER,
    Plugin,
    default_folder,
    environment_variables,
    plugin_path,
    provider_filter,
    provider_path,
    set_environment_variables,
)
from fabricio.address import Address
from fabricio.errors import BusyResourceError, ClosedResourceError, NoProviderError, OptionsError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

Kind = Literal["write", "read", "send", "rma", "any"]


@dataclass(frozen=True, slots=True)
class NicStatistics:
    """What one simulated NIC counted since `SimulatedNics` was entered.

    Attributes:
        writes_posted: RMA writes that were accepted.
        reads_posted: RMA reads that were accepted.
        sends_posted: messages that were accepted.
        completions: completions that who posted has read.
        errors: those of them that failed.
        bytes: carried by writes and reads that completed.
        immediates: immediate data that the target has read.
        messages: messages that the receiver has read.
        again: posts that were refused with -FI_EAGAIN.
        not_ready: attempts that found no posted receive, or a full completion queue.
    """

    writes_posted: int
    reads_posted: int
    sends_posted: int
    completions: int
    errors: int
    bytes: int
    immediates: int
    messages: int
    again: int
    not_ready: int


class SimulatedNics:
    """NICs that exist in this process only: `with SimulatedNics(count=4) as nics`.

    Inside, `Fabric(provider="sim")` opens them, by name with `nics=[nics.domains[2]]`. For tests
    and benchmarks, never for work: all that moves is moved by memcpy.

    libfabric looks for providers once in a process, so the first one must be entered before the
    first `Fabric`, and before anything else in the process uses libfabric. After that, others may
    follow it, one at a time, each with NICs of its own.

    Thread: any; entering reads files and loads libfabric, so not on the event loop's thread while
    the loop runs, unless that does not matter.
    """

    _entered: ClassVar[bool] = False

    def __init__(
        self,
        count: int = 2,
        *,
        paced: bool = False,
        gbps: float = 100.0,
        latency_us: float = 10.0,
        order: Literal["posted", "random"] = "posted",
        seed: int = 1,
        copy: bool = True,
        tx_size: int = 4096,
        rx_size: int = 8192,
        max_operation_bytes: int = 1 << 30,
        immediates_take_receives: bool = False,
        locks_memory: bool = False,
        clock: Literal["monotonic", "virtual"] = "monotonic",
        pci: Literal["flat", "p5"] | Sequence[str] = "flat",
    ) -> None:
        """Describe the NICs; entering makes them.

        Args:
            count: number of NICs, 1 to 1024.
            paced: True: bytes take the time that links of `gbps` and `latency_us` need. False: an
                operation lands as soon as its sender polls.
            gbps: speed of each link; also what libfabric says of it.
            latency_us: one way, from NIC to NIC.
            order: "random": whatever is due lands and completes in an order that `seed` chooses.
            seed: of the order.
            copy: False: writes and reads complete without moving a byte, so that what is measured
                is the engine alone. Messages move all the same.
            tx_size: operations that an endpoint may have out; beyond, -FI_EAGAIN.
            rx_size: receives that it may have posted.
            max_operation_bytes: longest operation, 4096 to 1 GiB.
            immediates_take_receives: True: immediate data take a posted receive at the target, and
                wait for one, as on efa-direct.
            locks_memory: True: what is registered in all keeps to RLIMIT_MEMLOCK, as with real
                NICs; more is refused with -FI_ENOMEM. The limit is read each time.
            clock: "virtual": the time of the links passes by `advance` alone.
            pci: "flat": each NIC has a bus of its own in a PCI domain that does not exist; "p5":
                the places of the 32 NICs of an AWS p5 host; or each NIC's, such as "0000:4f:00.0".
        """
        layout = pci if isinstance(pci, str) else "+".join(pci)
        settings = {
            "nics": count,
            "mode": "paced" if paced else "instant",
            "gbps": gbps,
            "latency_us": latency_us,
            "order": order,
            "seed": seed,
            "copy": int(copy),
            "tx_size": tx_size,
            "rx_size": rx_size,
            "max_bytes": max_operation_bytes,
            "rx_cq_data": int(immediates_take_receives),
            "lock": int(locks_memory),
            "clock": clock,
            "pci": layout,
        }
        self._count = count
        self._settings = ",".join(f"{key}={value}" for key, value in settings.items())
        self._plugin: Plugin | None = None
        self._before: tuple[str | None, str | None] = (None, None)
        self._during: tuple[str | None, str | None] = (None, None)

    def __repr__(self) -> str:
        """Show the settings."""
        return f"<SimulatedNics {self._settings}>"

    def __enter__(self) -> Self:
        """Make the NICs and let libfabric find them.

        Until the block ends, `FI_PROVIDER_PATH` names the plugin's folder besides what it named
        before, and `FI_PROVIDER` admits the provider, if it is set.

        Raises: OptionsError: a setting that is not possible; NoProviderError: libfabric was used in
            this process before, so that it will not look for providers any more; NoLibfabricError:
            there is none; BusyResourceError: another is entered, or Fabrics of the last one are
            open.
        """
        if SimulatedNics._entered:
            raise BusyResourceError("other SimulatedNics are entered: one at a time in a process")
        library = load()
        plugin = Plugin()
        result, reason = plugin.configure(self._settings)
        if result == -errno.EINVAL:
            raise OptionsError(f"these NICs cannot be simulated: {reason}")
        if result == -errno.EBUSY:
            raise BusyResourceError(f"the NICs cannot be replaced: {reason}")
        check(result, "fabsim_configure", provider=PROVIDER)
        self._before = path, admitted = environment_variables()
        folder = plugin_path().parent
        self._during = (
            provider_path(path, default_folder(library.path), folder),
            provider_filter(admitted),
        )
        set_environment_variables(*self._during)
        try:
            self._find()
        except BaseException:
            set_environment_variables(*self._before)
            raise
        self._plugin = plugin
        SimulatedNics._entered = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Forget all faults and restore the environment. Fabrics should be closed by now."""
        if self._plugin is None:
            return
        self._plugin.call("fabsim_heal")
        self._plugin = None
        SimulatedNics._entered = False
        if environment_variables() == self._during:
            set_environment_variables(*self._before)

    @property
    def domains(self) -> tuple[str, ...]:
        """Name of each NIC, as libfabric has it, for `Fabric(nics=...)`."""
        return tuple(f"{PROVIDER}{nic}-rdm" for nic in range(self._count))

    def fail(
        self,
        nic: int,
        operation: int = 0,
        *,
        kind: Kind = "rma",
        code: int = errno.EIO,
        provider_code: int = 0,
    ) -> None:
        """Let one operation fail instead of being performed.

        Args:
            nic: NIC of who posts it.
            operation: which one, of those that are posted from now on; 0 is the next.
            kind: what is counted and fails. An endpoint's own messages are "send".
            code: positive errno or libfabric's own number.
            provider_code: the provider's own.

        Raises: ResourceExhaustedError: 64 failures wait on this NIC already.
        """
        self._call("fabsim_fail", nic, kind.encode(), operation, code, provider_code)

    def refuse(self, nic: int, posts: int) -> None:
        """Refuse the next posts with -FI_EAGAIN.

        Args:
            nic: NIC of who posts.
            posts: how many; 0 ends it.
        """
        self._call("fabsim_again", nic, posts)

    def storm(self, nic: int, probability: float, *, seed: int = 1) -> None:
        """Refuse posts at random with -FI_EAGAIN, until the probability is set to 0.

        Args:
            nic: NIC of who posts.
            probability: of each post to be refused, less than 1.
            seed: chooses which.
        """
        if not 0 <= probability < 1:
            raise OptionsError(f"probability={probability}: 0 or more and less than 1 is needed")
        self._call("fabsim_storm", nic, probability, seed)

    def down(self, nic: int, *, after_s: float = 0.0) -> None:
        """Take a NIC's link down: what it posts is unreachable, what is meant for it unanswered.

        Args:
            nic: NIC.
            after_s: seconds from now, on the clock of the NICs.
        """
        self._call("fabsim_down", nic, round(after_s * 1e9))

    def up(self, nic: int) -> None:
        """Bring a NIC's link up again.

        Args:
            nic: NIC.
        """
        self._call("fabsim_up", nic)

    def silence(self, target: int | Address, silent: bool = True) -> None:
        """Lose everything to and from a NIC or a Fabric: its operations never complete.

        Args:
            target: number of a NIC, or the address of a Fabric.
            silent: False ends it; what was lost stays lost.

        Raises: FabricError: no open Fabric has this address.
        """
        if isinstance(target, Address):
            for lane in target.lanes:
                self._call("fabsim_silence_endpoint", lane, len(lane), int(silent))
        else:
            self._call("fabsim_silence", target, int(silent))

    def overrun(self, nic: int) -> None:
        """Overrun the completion queues that are open on a NIC: they are dead.

        Args:
            nic: NIC.
        """
        self._call("fabsim_overrun", nic)

    def heal(self) -> None:
        """Forget all faults of all NICs, save queues that are overrun."""
        self._entered_plugin().call("fabsim_heal")

    def advance(self, seconds: float) -> None:
        """Let time pass on the virtual clock.

        Args:
            seconds: how much.
        """
        self._entered_plugin().call("fabsim_advance", round(seconds * 1e9))

    def statistics(self, nic: int) -> NicStatistics:
        """Return what a NIC counted since `SimulatedNics` was entered.

        Args:
            nic: NIC.
        """
        result, counts = self._entered_plugin().counters(self._checked(nic))
        check(result, "fabsim_counter", provider=PROVIDER)
        return NicStatistics(**counts)

    def _call(self, name: str, *arguments: float | bytes) -> None:
        if isinstance(arguments[0], int):
            self._checked(arguments[0])
        check(self._entered_plugin().call(name, *arguments), name, provider=PROVIDER)

    def _checked(self, nic: int) -> int:
        if not 0 <= nic < self._count:
            raise OptionsError(f"nic={nic}: there are {self._count} NICs, counted from 0")
        return nic

    def _entered_plugin(self) -> Plugin:
        if self._plugin is None:
            raise ClosedResourceError("these SimulatedNics are not entered: use `with`")
        return self._plugin

    def _find(self) -> None:
        """Ask libfabric, which looks for providers now if it never did before."""
        ffi, lib = native()
        count = ffi.new("uint32_t *")
        rows = ffi.new("struct fab_info[]", 1)
        result = lib.fab_info_list(PROVIDER.encode(), ffi.NULL, rows, 1, count)
        check(result, "fi_getinfo", provider=PROVIDER)
        if count[0] != self._count:
            raise NoProviderError(
                "libfabric does not find the simulated NICs: it was used in this process before, "
                f"and reads {PATH_VARIABLE} only once. Enter SimulatedNics before the first "
                "Fabric opens, in a process of its own if need be"
            )
