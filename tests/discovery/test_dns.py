"""Peers from DNS: dnsmasq for what a good server says, a scripted one for all else."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import dns.asyncresolver
import dns.flags
import dns.message
import dns.rcode
import dns.resolver
import dns.rrset
import pytest

from fabricio import ClosedResourceError, DiscoveryError, OptionsError
from fabricio.discovery import DnsDiscovery, Peer, PeerJoined, PeerLeft
from fabricio.discovery import dns as dns_module
from tests.discovery.dnsmasq import DOMAIN
from tests.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from fabricio.discovery import PeerEvent
    from tests.discovery.dnsmasq import Dnsmasq

NAME = "workers.cluster.test"
SERVICE = f"_fabricio._tcp.{NAME}"
PODS = [f"pod-{number}.{NAME}" for number in range(4)]


def peer(address: str, name: str | None = None, port: int = 7000) -> Peer:
    return Peer(address, port, name or address)


def discover(nameserver: str, port: int | str = 7000, **options: Any) -> DnsDiscovery:  # noqa: ANN401  (those of DnsDiscovery)
    defaults = {"min_poll_s": 0.01, "max_poll_s": 0.05, "timeout_s": 5.0}
    return DnsDiscovery(NAME, port=port, nameservers=[nameserver], **{**defaults, **options})


async def take(discovery: DnsDiscovery, count: int) -> list[PeerEvent]:
    return [await anext(discovery) for _ in range(count)]


async def unknown(discovery: DnsDiscovery, text: str) -> None:
    """Wait until it says that it does not know, with these words."""
    await until(lambda: text in str(discovery.last_error))
    assert isinstance(discovery.last_error, DiscoveryError)
    assert discovery.unknown_since is not None


async def test_addresses_come_and_go(dnsmasq: Dnsmasq) -> None:
    await dnsmasq.serve({NAME: ["127.0.0.1", "127.0.0.2"]})
    async with discover(dnsmasq.nameserver) as discovery:
        assert await take(discovery, 2) == [
            PeerJoined(peer("127.0.0.1")),
            PeerJoined(peer("127.0.0.2")),
        ]
        assert (discovery.answered, discovery.unknown_since) == (True, None)
        await dnsmasq.serve({NAME: ["127.0.0.3", "127.0.0.2"]})
        assert await take(discovery, 2) == [
            PeerLeft(peer("127.0.0.1")),
            PeerJoined(peer("127.0.0.3")),
        ]
        assert discovery.peers == (peer("127.0.0.2"), peer("127.0.0.3"))


async def test_a_name_that_does_not_exist_is_not_known_to_be_empty(dnsmasq: Dnsmasq) -> None:
    async with discover(dnsmasq.nameserver) as discovery:
        await unknown(discovery, "the name does not exist")
        assert not discovery.answered
        await dnsmasq.serve({NAME: ["127.0.0.1"]})
        assert await take(discovery, 1) == [PeerJoined(peer("127.0.0.1"))]
        assert discovery.last_error is None
        await dnsmasq.serve({})
        await unknown(discovery, "the name does not exist")
        assert discovery.peers == (peer("127.0.0.1"),)
        await dnsmasq.serve({NAME: ["127.0.0.2"]})
        assert await take(discovery, 2) == [
            PeerLeft(peer("127.0.0.1")),
            PeerJoined(peer("127.0.0.2")),
        ]


async def test_a_name_without_addresses_is_empty(dnsmasq: Dnsmasq) -> None:
    await dnsmasq.restart(f"txt-record={NAME},here")  # so that it exists in any case
    await dnsmasq.serve({NAME: ["127.0.0.1"]})
    async with discover(dnsmasq.nameserver) as discovery:
        await take(discovery, 1)
        await dnsmasq.serve({})
        assert await take(discovery, 1) == [PeerLeft(peer("127.0.0.1"))]
        assert discovery.last_error is None


async def test_a_server_that_is_away_changes_nothing(dnsmasq: Dnsmasq) -> None:
    await dnsmasq.serve({NAME: ["127.0.0.1", "127.0.0.2"]})
    async with discover(dnsmasq.nameserver, timeout_s=0.1) as discovery:
        await take(discovery, 2)
        await dnsmasq.stop()
        await unknown(discovery, "no answer within timeout_s=0.1")
        assert len(discovery.peers) == 2
        await dnsmasq.restart()
        await dnsmasq.serve({NAME: ["127.0.0.2"]})
        assert await take(discovery, 1) == [PeerLeft(peer("127.0.0.1"))]


async def test_another_domain_is_refused_and_that_is_said(dnsmasq: Dnsmasq) -> None:
    elsewhere = DnsDiscovery("x.example", port=1, nameservers=[dnsmasq.nameserver], min_poll_s=0.01)
    async with elsewhere as discovery:
        await unknown(discovery, "REFUSED")


@pytest.mark.parametrize(
    ("family", "host"), [(None, "127.0.0.1"), ("v4", "127.0.0.1"), ("v6", "::1")]
)
async def test_one_family_is_taken(dnsmasq: Dnsmasq, family: str | None, host: str) -> None:
    await dnsmasq.serve({NAME: ["127.0.0.1", "::1"]})
    async with discover(dnsmasq.nameserver, family=family) as discovery:
        assert await take(discovery, 1) == [PeerJoined(peer(host))]
        assert discovery.peers == (peer(host),)


async def test_the_other_family_is_taken_if_it_is_all_there_is(dnsmasq: Dnsmasq) -> None:
    await dnsmasq.serve({NAME: ["::1"]})
    async with discover(dnsmasq.nameserver) as discovery:
        assert await take(discovery, 1) == [PeerJoined(peer("::1"))]


async def test_more_addresses_than_a_datagram_holds(dnsmasq: Dnsmasq) -> None:
    addresses = [f"127.0.1.{number}" for number in range(200)]
    await dnsmasq.serve({NAME: addresses})
    async with discover(dnsmasq.nameserver) as discovery:
        await take(discovery, 200)
        assert {each.host for each in discovery.peers} == set(addresses)


async def test_named_ports(dnsmasq: Dnsmasq) -> None:
    await dnsmasq.restart(
        f"srv-host={SERVICE},{PODS[0]},7000",
        f"srv-host={SERVICE},{PODS[1]},7001",
        f"srv-host=_http._tcp.{NAME},{PODS[2]},80",
    )
    await dnsmasq.serve({PODS[0]: ["127.0.0.1"], PODS[1]: ["127.0.0.2"], PODS[2]: ["127.0.0.3"]})
    async with discover(dnsmasq.nameserver, "fabricio") as discovery:
        assert await take(discovery, 2) == [
            PeerJoined(peer("127.0.0.1", PODS[0])),
            PeerJoined(peer("127.0.0.2", PODS[1], 7001)),
        ]
        # A pod that is restarted has its name again, and another address.
        await dnsmasq.serve({PODS[0]: ["127.0.0.4"], PODS[1]: ["127.0.0.2"]})
        assert await take(discovery, 2) == [
            PeerLeft(peer("127.0.0.1", PODS[0])),
            PeerJoined(peer("127.0.0.4", PODS[0])),
        ]
        await dnsmasq.restart(f"srv-host={SERVICE},{PODS[1]},7001")
        assert await take(discovery, 1) == [PeerLeft(peer("127.0.0.4", PODS[0]))]


async def test_a_target_without_an_answer_keeps_its_address(dnsmasq: Dnsmasq) -> None:
    await dnsmasq.restart(*(f"srv-host={SERVICE},{pod},7000" for pod in PODS[:2]))
    await dnsmasq.serve({PODS[0]: ["127.0.0.1"]})
    async with discover(dnsmasq.nameserver, "fabricio") as discovery:
        await take(discovery, 1)
        await unknown(discovery, "does not exist")
        await dnsmasq.serve({PODS[1]: ["127.0.0.2"]})
        assert await take(discovery, 1) == [PeerJoined(peer("127.0.0.2", PODS[1]))]
        assert discovery.peers == (peer("127.0.0.1", PODS[0]), peer("127.0.0.2", PODS[1]))


async def test_targets_of_the_other_family_are_asked_for(dnsmasq: Dnsmasq) -> None:
    await dnsmasq.restart(f"srv-host={SERVICE},{PODS[0]},7000")
    await dnsmasq.serve({PODS[0]: ["::1"]})
    async with discover(dnsmasq.nameserver, "fabricio") as discovery:
        assert await take(discovery, 1) == [PeerJoined(peer("::1", PODS[0]))]


async def test_a_service_without_a_target_is_empty(dnsmasq: Dnsmasq) -> None:
    await dnsmasq.restart(f"srv-host={SERVICE}")  # target ".": decidedly not available
    async with discover(dnsmasq.nameserver, "fabricio") as discovery:
        await until(lambda: discovery.answered)
        assert (discovery.peers, discovery.last_error) == ((), None)


async def test_the_search_domains_of_resolv_conf(
    dnsmasq: Dnsmasq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "resolv.conf"
    text = f"nameserver 127.0.0.1\nsearch nowhere.{DOMAIN} {DOMAIN}\noptions ndots:5\n"
    read = dns.resolver.BaseResolver.read_resolv_conf

    def read_ours(resolver: dns.resolver.BaseResolver, name: Any) -> None:  # noqa: ANN401  (theirs)
        conf.write_text(text, "utf-8")
        read(resolver, str(conf))
        resolver.port = dnsmasq.port

    monkeypatch.setattr(dns.resolver.BaseResolver, "read_resolv_conf", read_ours)
    await dnsmasq.serve({NAME: ["127.0.0.1"]})
    async with DnsDiscovery("workers", port=7000) as discovery:
        assert await take(discovery, 1) == [PeerJoined(peer("127.0.0.1"))]


async def test_no_name_server_at_all_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(**options: object) -> dns.asyncresolver.Resolver:
        raise dns.resolver.NoResolverConfiguration

    monkeypatch.setattr(dns.asyncresolver, "Resolver", none)
    async with DnsDiscovery("workers", port=7000) as discovery:
        await unknown(discovery, "give nameservers, or mend /etc/resolv.conf")


class Scripted(asyncio.DatagramProtocol):
    """Answers each question, over UDP, by what `answer` returns: bytes, or None for silence."""

    def __init__(self) -> None:
        self.answer: Callable[[dns.message.QueryMessage], bytes | None] = lambda query: None
        self.asked = asyncio.Event()
        self.transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        query = dns.message.from_wire(data)
        assert isinstance(query, dns.message.QueryMessage)
        reply = self.answer(query)
        self.asked.set()
        if reply is not None:
            assert self.transport is not None
            self.transport.sendto(reply, addr)


@asynccontextmanager
async def scripted() -> AsyncIterator[tuple[Scripted, str]]:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(Scripted, local_addr=("127.0.0.1", 0))
    try:
        yield server, f"127.0.0.1:{transport.get_extra_info('sockname')[1]}"
    finally:
        transport.close()


def good(*addresses: str, ttl_s: int = 0) -> Callable[[dns.message.QueryMessage], bytes]:
    def answer(query: dns.message.QueryMessage) -> bytes:
        response = dns.message.make_response(query)
        question = query.question[0]
        if question.rdtype == dns.rdatatype.A and addresses:
            response.answer.append(dns.rrset.from_text(question.name, ttl_s, "IN", "A", *addresses))
        return response.to_wire()

    return answer


def bad(code: dns.rcode.Rcode) -> Callable[[dns.message.QueryMessage], bytes]:
    def answer(query: dns.message.QueryMessage) -> bytes:
        response = dns.message.make_response(query)
        response.set_rcode(code)
        return response.to_wire()

    return answer


def short(query: dns.message.QueryMessage) -> bytes:
    """Cut, so that the question is asked again over TCP, where nobody listens."""
    response = dns.message.make_response(query)
    response.flags |= dns.flags.TC
    return response.to_wire()


def looping(query: dns.message.QueryMessage) -> bytes:
    response = dns.message.make_response(query)
    name = query.question[0].name
    response.answer.append(dns.rrset.from_text(name, 0, "IN", "CNAME", name.to_text()))
    return response.to_wire()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (bad(dns.rcode.SERVFAIL), "SERVFAIL"),
        (bad(dns.rcode.REFUSED), "REFUSED"),
        (bad(dns.rcode.YXDOMAIN), "YXDOMAIN"),
        (bad(dns.rcode.NXDOMAIN), "the name does not exist"),
        (lambda query: None, "no answer within"),
        (lambda query: b"", "no answer within"),
        (lambda query: query.to_wire()[:2] + b"\xff" * 30, "no answer within"),
        (lambda query: query.to_wire()[:7], "no answer within"),
        (short, "no name server gives an answer"),
        (looping, "no name server gives an answer"),
    ],
    ids=[
        *("servfail", "refused", "yxdomain", "nxdomain", "silence"),
        *("nothing", "garbage", "cut", "truncated", "looping"),
    ],
)
async def test_what_is_no_answer_changes_nothing(
    answer: Callable[[dns.message.QueryMessage], bytes | None], text: str
) -> None:
    async with scripted() as (server, nameserver):
        server.answer = good("127.0.0.1")
        async with discover(nameserver, timeout_s=0.2) as discovery:
            await take(discovery, 1)
            server.answer = answer
            await unknown(discovery, text)
            assert discovery.peers == (peer("127.0.0.1"),)
            server.answer = good("127.0.0.2")
            assert await take(discovery, 2) == [
                PeerLeft(peer("127.0.0.1")),
                PeerJoined(peer("127.0.0.2")),
            ]


class Sleeps:
    """Stands for asyncio in the module: sleeps last until the test has seen them."""

    def __init__(self) -> None:
        self.pauses: asyncio.Queue[float] = asyncio.Queue()
        self.over = asyncio.Semaphore(0)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever asyncio has)
        return getattr(asyncio, name)

    async def sleep(self, pause_s: float) -> None:
        self.pauses.put_nowait(pause_s)
        await self.over.acquire()


async def test_it_asks_again_when_the_time_to_live_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sleeps = Sleeps()
    monkeypatch.setattr(dns_module, "asyncio", sleeps)

    script = [
        (good("127.0.0.1", ttl_s=7), 7.0, 7.7),
        (good("127.0.0.1", ttl_s=0), 2.0, 2.2),
        (good("127.0.0.1", ttl_s=900), 20.0, 22.0),
        # Without an answer: again soon, then less and less often.
        (bad(dns.rcode.NXDOMAIN), 1.5, 2.0),
        (bad(dns.rcode.NXDOMAIN), 3.0, 4.0),
        (good("127.0.0.1", ttl_s=7), 7.0, 7.7),
        (bad(dns.rcode.NXDOMAIN), 1.5, 2.0),
    ]
    async with scripted() as (server, nameserver):
        server.answer = script[0][0]
        async with discover(nameserver, min_poll_s=2.0, max_poll_s=20.0):
            for position, (_, shortest_s, longest_s) in enumerate(script):
                assert shortest_s <= await sleeps.pauses.get() <= longest_s
                server.answer = script[min(position + 1, len(script) - 1)][0]
                sleeps.over.release()


async def test_closing_while_a_question_is_out() -> None:
    async with scripted() as (server, nameserver), discover(nameserver) as discovery:
        await server.asked.wait()
    assert [event async for event in discovery] == []
    await discovery.aclose()


async def test_whoever_iterates_is_done_when_it_closes() -> None:
    async with scripted() as (_, nameserver), discover(nameserver) as discovery:

        async def events() -> list[PeerEvent]:
            return [event async for event in discovery]

        task = asyncio.create_task(events())
        await asyncio.sleep(0)
        await discovery.aclose()
        assert await task == []


async def test_a_cancelled_reader_loses_nothing(dnsmasq: Dnsmasq) -> None:
    async with discover(dnsmasq.nameserver) as discovery:
        reader = asyncio.ensure_future(anext(discovery))
        await asyncio.sleep(0)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        await dnsmasq.serve({NAME: ["127.0.0.1"]})
        assert await take(discovery, 1) == [PeerJoined(peer("127.0.0.1"))]


async def test_cancelling_the_block_closes_it() -> None:
    async with scripted() as (server, nameserver):

        async def wait() -> None:
            async with discover(nameserver) as discovery:
                await anext(discovery)

        task = asyncio.create_task(wait())
        await server.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_it_is_entered_once_and_before_use() -> None:
    discovery = discover("127.0.0.1:1")
    with pytest.raises(ClosedResourceError, match="use `async with`"):
        await anext(discovery)
    async with discovery:
        with pytest.raises(ClosedResourceError, match="entered once"):
            await discovery.__aenter__()
    with pytest.raises(ClosedResourceError, match="entered once"):
        await discovery.__aenter__()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"port": 0}, "port=0"),
        ({"port": 65536}, "port=65536"),
        ({"port": True}, "port=True"),
        ({"port": ""}, "port=''"),
        ({"port": "7000"}, "port='7000'"),
        ({"service": "a..b"}, "cannot be asked for"),
        ({"service": "x" * 64}, "cannot be asked for"),
        ({"nameservers": ["dns.example"]}, "not numeric"),
        ({"nameservers": ["127.0.0.1:99999"]}, "host:port"),
        ({"family": "v5"}, "family='v5'"),
        ({"min_poll_s": 0.0}, "min_poll_s=0.0"),
        ({"timeout_s": float("inf")}, "timeout_s=inf"),
        ({"min_poll_s": 3.0, "max_poll_s": 2.0}, "min_poll_s=3 is above max_poll_s=2"),
    ],
)
async def test_what_is_not_possible_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionsError, match=text):
        DnsDiscovery(**{"service": NAME, "port": 7000, **options})


def test_name_servers_may_be_named_in_three_ways() -> None:
    DnsDiscovery(NAME, port=7000, nameservers=["10.0.0.10", "fd00::a", "[fd00::a]:5353"])
