"""Peers from EndpointSlices: lists and watches over real HTTP, whole, broken and wrong."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes_asyncio.client import ApiClient, Configuration

from fabricio import DiscoveryError, OptionsError
from fabricio.discovery import EndpointSliceDiscovery, Peer, PeerJoined, PeerLeft
from fabricio.discovery import kubernetes as kubernetes_module
from fabricio.opening import off_loop
from tests.discovery.api_server import NAMESPACE, SERVICE, ApiServer
from tests.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fabricio.discovery import PeerEvent

DATA = Path(__file__).parents[1] / "data"
LIST = json.loads((DATA / "endpointslices.json").read_text("utf-8"))
WATCH = [
    json.loads(line)
    for line in (DATA / "endpointslices_watch.jsonl").read_text("utf-8").splitlines()
]
KUBECONFIG = "kubernetes_asyncio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION"
ZERO, ONE, NEW = (
    Peer("10.1.0.10", 7000, "workers-0"),
    Peer("10.1.0.11", 7000, "workers-1"),
    Peer("10.1.0.12", 7000, "workers-0"),
)


@asynccontextmanager
async def discover(server: ApiServer, **options: Any) -> AsyncIterator[EndpointSliceDiscovery]:  # noqa: ANN401  (those of EndpointSliceDiscovery)
    defaults = {"port": "fabricio", "namespace": NAMESPACE, "min_retry_s": 0.01}
    async with (
        ApiClient(Configuration(host=server.url)) as api,
        EndpointSliceDiscovery(SERVICE, api=api, **{**defaults, **options}) as discovery,
    ):
        yield discovery


async def take(discovery: EndpointSliceDiscovery, count: int) -> list[PeerEvent]:
    return [await anext(discovery) for _ in range(count)]


async def unknown(discovery: EndpointSliceDiscovery, text: str) -> None:
    await until(lambda: text in str(discovery.last_error))
    assert discovery.unknown_since is not None


def status(code: int, reason: str = "", message: str = "") -> dict[str, Any]:
    return {"kind": "Status", "code": code, "reason": reason, "message": message}


async def test_a_recorded_rollout() -> None:
    ready, bookmark, copied, moved, terminating, ended, back, deleted = WATCH
    async with ApiServer() as server, discover(server) as discovery:
        (await server.list_request()).answer(LIST)
        assert await take(discovery, 1) == [PeerJoined(ZERO)]
        watch = await server.watch_request("1000")
        await watch.send(ready, bookmark)
        assert await take(discovery, 1) == [PeerJoined(ONE)]
        await watch.send(copied, moved, terminating, ended)
        assert await take(discovery, 1) == [PeerLeft(ZERO)]
        await watch.send(back)
        assert await take(discovery, 1) == [PeerJoined(NEW)]
        await watch.send(deleted)
        assert await take(discovery, 1) == [PeerLeft(ONE)]
        assert discovery.peers == (NEW,)
        assert discovery.last_error is None


async def test_a_terminating_peer_stays_while_it_serves_or_leaves_at_once() -> None:
    terminating = WATCH[4]
    for keep, peers in ((True, (ZERO,)), (False, ())):
        async with ApiServer() as server, discover(server, keep_terminating=keep) as discovery:
            (await server.list_request()).answer(LIST)
            await take(discovery, 1)
            watch = await server.watch_request("1000")
            await watch.send(terminating)
            await watch.end()
            await server.watch_request("1010")
            assert discovery.peers == peers


async def test_a_watch_goes_on_from_the_last_version_seen() -> None:
    ready, bookmark, copied = WATCH[:3]
    async with ApiServer() as server, discover(server) as discovery:
        (await server.list_request()).answer(LIST)
        watch = await server.watch_request("1000")
        await watch.send(ready)
        await watch.end()
        watch = await server.watch_request("1001")
        await watch.send(bookmark)
        await watch.cut()
        watch = await server.watch_request("1005")
        # Half an event: it is sent whole the next time.
        await watch.send(json.dumps(copied).encode()[:100])
        await watch.end()
        watch = await server.watch_request("1005")
        await watch.send(json.dumps(copied).encode()[:100])
        await watch.cut()
        watch = await server.watch_request("1005")
        await watch.send(b"\n", copied)
        await watch.end()
        await server.watch_request("1006")
        assert discovery.peers == (ZERO, ONE)


async def test_an_event_may_come_in_pieces() -> None:
    data = json.dumps(WATCH[0]).encode() + b"\n"
    async with ApiServer() as server, discover(server) as discovery:
        (await server.list_request()).answer(LIST)
        watch = await server.watch_request("1000")
        for start in range(0, len(data), 100):
            await watch.send(data[start : start + 100])
        assert await take(discovery, 2) == [PeerJoined(ZERO), PeerJoined(ONE)]


async def test_a_slice_of_a_thousand_pods_is_one_event() -> None:
    event = json.loads(json.dumps(WATCH[0]))
    (pod,) = event["object"]["endpoints"][:1]
    event["object"]["endpoints"] = [
        {
            **pod,
            "addresses": [f"10.2.{number // 250}.{number % 250}"],
            "targetRef": {**pod["targetRef"], "uid": str(number), "name": f"pod-{number}"},
        }
        for number in range(1000)
    ]
    assert len(json.dumps(event)) > 200_000  # aiohttp alone takes lines of 128 KiB
    async with ApiServer() as server, discover(server) as discovery:
        (await server.list_request()).answer(LIST)
        await take(discovery, 1)
        watch = await server.watch_request("1000")
        await watch.send(event)
        await take(discovery, 1001)
        assert len(discovery.peers) == 1000


@pytest.mark.parametrize("how", ["event", "status"])
async def test_a_version_that_is_too_old_is_listed_anew(how: str) -> None:
    async with ApiServer() as server, discover(server) as discovery:
        (await server.list_request()).answer(LIST)
        assert await take(discovery, 1) == [PeerJoined(ZERO)]
        watch = await server.watch_request("1000")
        gone = status(410, "Expired", "too old resource version: 1000 (2000)")
        if how == "event":
            await watch.send({"type": "ERROR", "object": gone})
        else:
            watch.answer(gone, 410)
        listing = await server.list_request()
        assert discovery.peers == (ZERO,)  # until there is a new list
        listing.answer({"items": [WATCH[0]["object"]], "metadata": {"resourceVersion": "2000"}})
        assert await take(discovery, 1) == [PeerJoined(ONE)]
        await server.watch_request("2000")
        assert discovery.last_error is None


async def test_who_left_while_nobody_watched_is_told_after_the_new_list() -> None:
    async with ApiServer() as server, discover(server) as discovery:
        (await server.list_request()).answer(LIST)
        await take(discovery, 1)
        (await server.watch_request("1000")).answer(status(410), 410)
        (await server.list_request()).answer({"items": [], "metadata": {"resourceVersion": "2000"}})
        assert await take(discovery, 1) == [PeerLeft(ZERO)]


@pytest.mark.parametrize(
    "garbage",
    [
        b"<html>\n",
        b"\xff\x00\n",
        b"[" * 50_000 + b"\n",
        b'{"type": "UNHEARD", "object": {}}\n',
        b'{"type": "MODIFIED", "object": {"metadata": {"resourceVersion": "5"}}}\n',
        b'{"type": "BOOKMARK", "object": {}}\n',
        b"x" * (9 << 20),
    ],
    ids=["html", "binary", "deep", "unheard-of", "no slice", "no version", "endless line"],
)
async def test_garbage_in_a_watch_changes_nothing_and_is_listed_anew(garbage: bytes) -> None:
    async with ApiServer() as server, discover(server) as discovery:
        (await server.list_request()).answer(LIST)
        await take(discovery, 1)
        watch = await server.watch_request("1000")
        try:
            await watch.send(garbage)
        except ConnectionError:
            assert len(garbage) > 1 << 20  # the client need not read all of it
        listing = await server.list_request()
        assert "it sent" in str(discovery.last_error)
        assert discovery.peers == (ZERO,)
        listing.answer(LIST)
        await server.watch_request("1000")


@pytest.mark.parametrize("body", [b"", b"nonsense", b"{}", b'{"items": [{}]}', b"[" * 50_000])
async def test_garbage_for_a_list_changes_nothing(body: bytes) -> None:
    async with ApiServer() as server, discover(server) as discovery:
        (await server.list_request()).answer(body)
        await unknown(discovery, "it sent")
        (await server.list_request()).answer(LIST)
        assert await take(discovery, 1) == [PeerJoined(ZERO)]
        assert discovery.last_error is None


async def test_error_events_change_nothing_and_the_watch_goes_on() -> None:
    async with ApiServer() as server, discover(server) as discovery:
        (await server.list_request()).answer(LIST)
        await take(discovery, 1)
        watch = await server.watch_request("1000")
        await watch.send({"type": "ERROR", "object": status(500, "InternalError", "etcd is away")})
        await unknown(discovery, "etcd is away")
        assert discovery.peers == (ZERO,)
        watch = await server.watch_request("1000")
        await watch.send(WATCH[0])
        assert await take(discovery, 1) == [PeerJoined(ONE)]
        assert discovery.last_error is None


@pytest.mark.parametrize("code", [401, 403, 404, 429, 500, 502, 503])
async def test_errors_after_the_first_list_change_nothing(code: int) -> None:
    async with ApiServer() as server, discover(server) as discovery:
        (await server.list_request()).answer(LIST)
        await take(discovery, 1)
        (await server.watch_request("1000")).answer(b"<html>no</html>", code)
        await unknown(discovery, f"{code} : <html>no</html>")
        assert discovery.peers == (ZERO,)
        await (await server.watch_request("1000")).send()
        await until(lambda: discovery.last_error is None)


@pytest.mark.parametrize(
    ("code", "text"), [(401, "token mounted"), (403, "RoleBinding"), (404, "1.21")]
)
async def test_what_only_an_operator_can_mend_ends_it_at_the_start(code: int, text: str) -> None:
    async with ApiServer() as server, discover(server) as discovery:
        (await server.list_request()).answer(status(code, "Forbidden", "may not list"), code)
        for _ in range(2):
            with pytest.raises(DiscoveryError, match=text) as caught:
                await anext(discovery)
            assert "may not list" in str(caught.value)


async def test_a_server_that_is_not_there_is_tried_again() -> None:
    async with ApiServer() as server:
        url = server.url
    async with (
        ApiClient(Configuration(host=url)) as api,
        EndpointSliceDiscovery(
            SERVICE, port=7000, namespace=NAMESPACE, api=api, min_retry_s=0.01
        ) as discovery,
    ):
        await unknown(discovery, "ClientConnectorError")
        assert not discovery.answered


async def test_a_list_that_never_ends_times_out() -> None:
    async with ApiServer() as server, discover(server, timeout_s=0.1) as discovery:
        first = await server.list_request()
        await first.gone.wait()
        await unknown(discovery, "TimeoutError")
        await server.list_request()


async def test_a_watch_that_says_nothing_any_more_is_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kubernetes_module, "_GRACE_S", -0.5)
    async with ApiServer() as server, discover(server, watch_s=1) as discovery:
        (await server.list_request()).answer(LIST)
        watch = await server.watch_request("1000")
        assert watch.query["timeoutSeconds"] == "1"
        with suppress(ConnectionError):  # on a busy machine the client may have gone already
            await watch.send()
        await server.watch_request("1000")
        assert discovery.peers == (ZERO,)


async def test_a_service_without_slices_or_port_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "fabricio")
    async with ApiServer() as server, discover(server, port="other") as discovery:
        (await server.list_request()).answer({"items": [], "metadata": {"resourceVersion": "1"}})
        watch = await server.watch_request("1")
        assert "Does the service exist?" in caplog.text
        await watch.send(WATCH[0], WATCH[0])
        await watch.end()
        await server.watch_request("1001")
        assert caplog.text.count("no TCP port named 'other' in EndpointSlice workers-abcde") == 1
        assert discovery.peers == ()


async def test_closing_ends_the_watch() -> None:
    async with ApiServer() as server:
        async with discover(server) as discovery:
            (await server.list_request()).answer(LIST)
            watch = await server.watch_request("1000")
            await watch.send()
            await take(discovery, 1)
        await watch.gone.wait()
        assert [event async for event in discovery] == []


async def test_outside_of_a_cluster_without_kubeconfig(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(KUBECONFIG, str(tmp_path / "none"))
    async with EndpointSliceDiscovery(SERVICE, port=7000) as discovery:
        with pytest.raises(DiscoveryError, match="no Kubernetes API server is known"):
            await anext(discovery)


async def test_in_a_pod_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    async with EndpointSliceDiscovery(SERVICE, port=7000) as discovery:
        with pytest.raises(DiscoveryError, match="mount a service account's token"):
            await anext(discovery)


async def test_the_service_account_of_a_pod(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def write() -> None:
        for name in ("TOKEN", "CERT"):
            path = tmp_path / name
            path.write_text(f"a {name}", "utf-8")
            monkeypatch.setattr(
                f"kubernetes_asyncio.config.incluster_config.SERVICE_{name}_FILENAME", str(path)
            )

    await off_loop(asyncio.get_running_loop(), write)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    configuration = await kubernetes_module._configuration()
    assert configuration.host == "https://[fd00::1]:443"
    assert configuration.api_key == {"BearerToken": "Bearer a TOKEN"}
    assert configuration.ssl_ca_cert == str(tmp_path / "CERT")


async def test_kubeconfig_and_the_namespace_of_the_pod(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    namespace = tmp_path / "namespace"
    await off_loop(
        asyncio.get_running_loop(), lambda: namespace.write_text(f"{NAMESPACE}\n", "utf-8")
    )
    monkeypatch.setattr(kubernetes_module, "_NAMESPACE_FILE", namespace)
    async with ApiServer() as server:
        cluster = {"name": "c", "cluster": {"server": server.url}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        config = {
            "clusters": [cluster],
            "contexts": [context],
            "current-context": "c",
            "users": [{"name": "u", "user": {}}],
        }
        path = tmp_path / "config"
        text = json.dumps(config)  # JSON is YAML
        await off_loop(asyncio.get_running_loop(), lambda: path.write_text(text, "utf-8"))
        monkeypatch.setattr(KUBECONFIG, str(path))
        async with EndpointSliceDiscovery(SERVICE, port=7000) as discovery:
            (await server.list_request()).answer(LIST)
            assert await take(discovery, 1) == [PeerJoined(ZERO)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"service": ""}, "service is empty"),
        ({"port": "80"}, "port='80'"),
        ({"family": "IPv4"}, "family='IPv4'"),
        ({"watch_s": 0.5}, "watch_s=0.5"),
        ({"watch_s": 0}, "watch_s=0"),
        ({"max_retry_s": -1.0}, "max_retry_s=-1.0"),
    ],
)
async def test_what_is_not_possible_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionsError, match=text):
        EndpointSliceDiscovery(**{"service": SERVICE, "port": 7000, **options})
