"""`DnsDiscovery`: peers from DNS, such as a headless service of Kubernetes."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import dns.asyncresolver
import dns.exception
import dns.inet
import dns.name
import dns.nameserver
import dns.rdatatype
import dns.resolver

from fabricio.address import split_host_port
from fabricio.discovery.backoff import Backoff
from fabricio.discovery.membership import Peer
from fabricio.discovery.source import Discovery, check_family, check_port, check_seconds
from fabricio.errors import DiscoveryError, OptionsError
from fabricio.opening import off_loop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dns.rdtypes.IN.SRV import SRV

    from fabricio.discovery.membership import Family

# Targets of SRV records whose addresses are asked for at once.
_QUERIES = 16

# What fits into one datagram nearly everywhere; longer answers come over TCP.
_UDP_BYTES = 1232

_TYPES: dict[Family | None, tuple[str, ...]] = {"v4": ("A",), "v6": ("AAAA",), None: ("A", "AAAA")}

_Addresses = tuple[list[str], float]  # and for how many seconds they hold

# Who is there, for how many seconds that holds, and why some of it is an earlier answer.
_Answer = tuple[list[Peer], float, dns.exception.DNSException | None]


class DnsDiscovery(Discovery):
    """Peers from DNS: the A or AAAA records of a name, or the SRV records of a named port.

    The name is asked for again when its records' time to live is over. An answer with other records
    changes the members; so does an answer that the name exists and has no such records: nobody is
    there. A timeout, SERVFAIL, REFUSED or garbage changes nothing, and neither does NXDOMAIN: a
    name server that has just started says so of names that it has not loaded yet, and peers that
    are really gone are noticed by their endpoints.

    Of a name with addresses of both families the IPv4 ones count, so that a pod is one peer.
    """

    def __init__(
        self,
        service: str,
        *,
        port: int | str,
        family: Family | None = None,
        nameservers: Sequence[str] = (),
        min_poll_s: float = 1.0,
        max_poll_s: float = 30.0,
        timeout_s: float = 5.0,
    ) -> None:
        """Prepare; entering begins to ask.

        Args:
            service: DNS name, such as "workers.default.svc.cluster.local"; the search domains of
                resolv.conf are tried for a short one.
            port: number: where every address of the name listens. Name: of the port of the service;
                `_name._tcp.service` is asked for SRV records, which have addresses and ports.
            family: "v4" or "v6": those addresses only; None: IPv4, and IPv6 where there is none.
            nameservers: numeric addresses to ask, "host" or "host:port"; empty: those of
                resolv.conf.
            min_poll_s: shortest pause in seconds between two questions, whatever the time to live.
            max_poll_s: longest such pause, also between attempts while there is no answer.
            timeout_s: seconds after which a question counts as not answered.

        Raises: OptionsError: a value that is not possible.
        """
        super().__init__()
        check_port(port)
        check_seconds(min_poll_s=min_poll_s, max_poll_s=max_poll_s, timeout_s=timeout_s)
        if min_poll_s > max_poll_s:
            raise OptionsError(f"min_poll_s={min_poll_s:g} is above max_poll_s={max_poll_s:g}")
        check_family(family)
        self._service = service
        self._port = port
        self._types = _TYPES[family]
        self._question = service if isinstance(port, int) else f"_{port}._tcp.{service}"
        try:
            dns.name.from_text(self._question)
            self._nameservers = [_nameserver(text) for text in nameservers]
        except (dns.exception.DNSException, UnicodeError, ValueError) as error:
            raise OptionsError(
                f"{self._question!r} cannot be asked for, or the nameservers {list(nameservers)} "
                f"not be asked: {error}. Give a DNS name, and numeric addresses of name servers"
            ) from error
        self._min_poll_s = min_poll_s
        self._max_poll_s = max_poll_s
        self._timeout_s = timeout_s
        self._resolver: dns.asyncresolver.Resolver | None = None
        self._targets: dict[str, list[str]] = {}  # addresses that SRV targets had last

    def __repr__(self) -> str:
        """Show what is asked for."""
        return f"<DnsDiscovery {self._question}>"

    async def _run(self) -> None:
        backoff = Backoff(self._min_poll_s, self._max_poll_s)
        while True:
            try:
                if self._resolver is None:
                    self._resolver = await self._open()
                peers, valid_s, incomplete = await self._ask(self._resolver)
            except dns.exception.DNSException as error:
                self._unknown(self._why(error))
                pause_s = backoff.next_s()
            else:
                self._known(peers, self._why(incomplete) if incomplete is not None else None)
                backoff.reset()
                # A little later than due, so that peers that began together drift apart.
                pause_s = min(max(valid_s, self._min_poll_s), self._max_poll_s)
                pause_s *= random.uniform(1.0, 1.1)
            await asyncio.sleep(pause_s)

    async def _open(self) -> dns.asyncresolver.Resolver:
        """Read resolv.conf, unless name servers were given."""
        given = bool(self._nameservers)
        resolver = await off_loop(
            asyncio.get_running_loop(), lambda: dns.asyncresolver.Resolver(configure=not given)
        )
        if given:
            resolver.nameservers = list(self._nameservers)
        resolver.use_edns(0, 0, _UDP_BYTES)
        resolver.lifetime = self._timeout_s
        return resolver

    async def _ask(self, resolver: dns.asyncresolver.Resolver) -> _Answer:
        if isinstance(self._port, str):
            return await self._ask_services(resolver)
        addresses, valid_s = await self._ask_addresses(resolver, self._service, search=True)
        peers = [Peer(address, self._port, address) for address in sorted(addresses)]
        return peers, valid_s, None

    async def _ask_addresses(
        self, resolver: dns.asyncresolver.Resolver, name: str, *, search: bool
    ) -> _Addresses:
        for kind in self._types:
            try:
                answer = await resolver.resolve(name, kind, search=search)
            except dns.resolver.NoAnswer:
                continue
            return [record.address for record in answer], answer.chaining_result.minimum_ttl
        return [], 0.0

    async def _ask_services(self, resolver: dns.asyncresolver.Resolver) -> _Answer:
        try:
            answer = await resolver.resolve(self._question, "SRV", search=True)
        except dns.resolver.NoAnswer:
            self._targets = {}
            return [], 0.0, None
        valid_s: float = answer.chaining_result.minimum_ttl
        records: list[SRV] = [record for record in answer if record.target != dns.name.root]
        enclosed = self._enclosed(answer)
        slots = asyncio.Semaphore(_QUERIES)
        incomplete: dns.exception.DNSException | None = None

        async def addresses_of(target: dns.name.Name) -> _Addresses:
            nonlocal incomplete
            if target in enclosed:
                return enclosed[target]
            try:
                async with slots:
                    return await self._ask_addresses(resolver, target.to_text(), search=False)
            except dns.exception.DNSException as error:
                incomplete = error
                return self._targets.get(target.to_text(), []), 0.0

        targets = {record.target: None for record in records}
        found = await asyncio.gather(*map(addresses_of, targets))
        by_target = {target.to_text(): each[0] for target, each in zip(targets, found, strict=True)}
        self._targets = by_target
        peers = [
            Peer(address, record.port, record.target.to_text(omit_final_dot=True))
            for record in records
            for address in by_target[record.target.to_text()]
            if record.port
        ]
        return sorted(peers), min([valid_s, *(each[1] for each in found)]), incomplete

    def _enclosed(self, answer: dns.resolver.Answer) -> dict[dns.name.Name, _Addresses]:
        """Return the addresses that the server has sent along, by target.

        Only those of the family that is preferred: the other may be there and not be sent.
        """
        preferred = dns.rdatatype.from_text(self._types[0])
        return {
            rrset.name: ([record.address for record in rrset], rrset.ttl)
            for rrset in answer.response.additional
            if rrset.rdtype == preferred
        }

    def _why(self, error: dns.exception.DNSException) -> DiscoveryError:
        """Say what happened, in one line, the same for the same cause."""
        if isinstance(error, dns.resolver.NXDOMAIN):
            what = (
                "the name does not exist, as the name server says. Is the service there, and "
                "headless (clusterIP: None), and is the port named so in it?"
            )
        elif isinstance(error, dns.resolver.LifetimeTimeout):
            what = f"no answer within timeout_s={self._timeout_s:g}"
        elif isinstance(error, dns.resolver.NoResolverConfiguration):
            what = "no name server is configured: give nameservers, or mend /etc/resolv.conf"
        elif isinstance(error, dns.resolver.NoNameservers):
            errors = {str(each[3]) for each in error.kwargs.get("errors", ())}
            what = f"no name server gives an answer: {', '.join(sorted(errors)) or error}"
        else:
            what = f"{type(error).__name__}: {error}"
        failure = DiscoveryError(f"DNS does not say who is behind {self._question}: {what}")
        failure.__cause__ = error
        return failure


def _nameserver(text: str) -> dns.nameserver.Do53Nameserver:
    """Return the name server meant by "host", "host:port" or "[v6]:port"."""
    if text.startswith("[") or text.count(":") == 1:
        host, port = split_host_port(text)
    else:
        host, port = text, 53
    if not dns.inet.is_address(host):
        raise ValueError(f"{text!r} is not numeric")
    return dns.nameserver.Do53Nameserver(host, port)
