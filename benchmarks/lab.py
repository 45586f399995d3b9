"""Two hosts with up to 32 shaped links between them, made of network namespaces. Root only."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MTU = 9000
MBIT = 1_000_000
MAX_LINKS = 250  # each has a subnet of its own

_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Lab:
    """Where the two hosts are.

    Attributes:
        hosts: names of both namespaces.
        links: number of links.
        bits_per_s: what each link carries each way, headers included.
    """

    hosts: tuple[str, str]
    links: int
    bits_per_s: int

    def nics(self, host: int) -> list[str]:
        """Name the interfaces of one host, in the order of the links."""
        return [f"{'ab'[host]}{link}" for link in range(self.links)]

    def address(self, host: int, link: int) -> str:
        """Return the address of one end of a link."""
        return f"10.77.{link}.{host + 1}"

    def command(self, host: int, *words: str) -> tuple[str, ...]:
        """Return what runs a command on one host."""
        return ("ip", "netns", "exec", self.hosts[host], *words)

    def sent_here(self, host: int) -> int:
        """Return what all interfaces have sent so far, headers included; called on that host."""
        counters = [Path(f"/sys/class/net/{nic}/statistics/tx_bytes") for nic in self.nics(host)]
        return sum(int(counter.read_text()) for counter in counters)


@contextmanager
def open_lab(links: int, mbit_per_s: int = 100) -> Iterator[Lab]:
    """Make both hosts and their links; they are gone when the block ends.

    Each link is a veth pair with a subnet of its own and frames of 9,000 bytes, shaped by htb at
    both ends. TCP is reno, since bbr paces by itself.

    Args:
        links: 1 to 250.
        mbit_per_s: speed of each.

    Raises:
        PermissionError: not root.
        RuntimeError: `ip` or `tc` failed; the text says what it said.
    """
    if os.geteuid() != 0:
        raise PermissionError("network namespaces need root: run this with sudo")
    if not 1 <= links <= MAX_LINKS:
        raise ValueError(f"links={links}: 1 to {MAX_LINKS}")
    tag = f"fab{os.getpid()}"
    lab = Lab((f"{tag}a", f"{tag}b"), links, mbit_per_s * MBIT)
    made = []
    try:
        for name in lab.hosts:
            _output("ip", "netns", "add", name)
            made.append(name)
        _wire(lab)
        for host in (0, 1):
            _shape(lab, host)
            _wait_for_links(lab, host)
        yield lab
    finally:
        for name in made:  # the links go with them
            _output("ip", "netns", "delete", name)


def _wire(lab: Lab) -> None:
    a, b = lab.hosts
    pairs = zip(lab.nics(0), lab.nics(1), strict=True)
    _batch(
        ("ip",),
        [f"link add {x} netns {a} type veth peer name {y} netns {b}" for x, y in pairs],
    )
    for host in (0, 1):
        lines = ["link set lo up"]
        for link, nic in enumerate(lab.nics(host)):
            lines.append(f"address add {lab.address(host, link)}/24 dev {nic}")
            lines.append(f"link set {nic} mtu {MTU} up")
        _batch(("ip", "-n", lab.hosts[host]), lines)
        path = "/proc/sys/net/ipv4/tcp_congestion_control"
        _output(*lab.command(host, "sh", "-c", f"echo reno > {path}"))


def _wait_for_links(lab: Lab, host: int) -> None:
    """Wait until each interface is up: that follows a moment after the command."""
    files = [f"/sys/class/net/{nic}/operstate" for nic in lab.nics(host)]
    end = time.monotonic() + _LIMIT_S
    while set(_output(*lab.command(host, "cat", *files)).split()) != {"up"}:
        if time.monotonic() > end:
            raise RuntimeError(f"the links of {lab.hosts[host]} did not come up")
        time.sleep(0.02)


def _shape(lab: Lab, host: int) -> None:
    lines = []
    for nic in lab.nics(host):
        lines.append(f"qdisc add dev {nic} root handle 1: htb default 1")
        lines.append(
            f"class add dev {nic} parent 1: classid 1:1 htb rate {lab.bits_per_s} "
            f"burst 64kb cburst 64kb quantum {MTU * 2}"
        )
        lines.append(f"qdisc add dev {nic} parent 1:1 bfifo limit 1mb")
    _batch(("tc", "-n", lab.hosts[host]), lines)


def _batch(tool: tuple[str, ...], lines: list[str]) -> None:
    _output(*tool, "-batch", "-", text="\n".join(lines) + "\n")


def _output(*words: str, text: str | None = None) -> str:
    done = subprocess.run(
        words, input=text, capture_output=True, text=True, check=False, timeout=_LIMIT_S
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words[:6])} failed: {done.stderr.strip()}")
    return done.stdout
