"""EndpointSlices: read, merged, and refused if they are none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricio.discovery.membership import Peer
from fabricio.discovery.slices import MalformedError, Slice, Slices
from fabricio.discovery.watch import (
    ExpiredError,
    RefusedError,
    Watched,
    parse_event,
    parse_list,
    refused,
)


def endpoint(address: str, pod: str | None = None, **conditions: bool | None) -> dict[str, Any]:
    found: dict[str, Any] = {"addresses": [address], "conditions": conditions}
    if pod is not None:
        found["targetRef"] = {"kind": "Pod", "name": pod, "namespace": "d", "uid": f"uid of {pod}"}
    return found


def item(
    name: str,
    *endpoints: dict[str, Any],
    family: str = "IPv4",
    ports: object = ({"name": "fabricio", "port": 7000, "protocol": "TCP"},),
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "resourceVersion": "5"},
        "addressType": family,
        "ports": list(ports) if isinstance(ports, tuple) else ports,
        "endpoints": list(endpoints),
    }


def peers(*items: dict[str, Any], port: int | str = "fabricio", **options: Any) -> list[Peer]:  # noqa: ANN401  (those of Slices)
    keep = options.pop("keep_terminating", True)
    members = options.pop("members", set())
    slices = Slices(port, options.pop("family", None))
    slices.replace(Slice.parse(each) for each in items)
    return slices.peers(members, keep_terminating=keep)


def test_all_slices_are_one_list() -> None:
    found = peers(item("s1", endpoint("10.0.0.1", "a")), item("s2", endpoint("10.0.0.2", "b")))
    assert found == [Peer("10.0.0.1", 7000, "a"), Peer("10.0.0.2", 7000, "b")]


def test_a_pod_in_two_slices_is_one_peer() -> None:
    pod = endpoint("10.0.0.1", "a")
    assert peers(item("s1", pod), item("s2", pod)) == [Peer("10.0.0.1", 7000, "a")]


def test_a_pod_that_moves_stays_until_it_is_in_none() -> None:
    pod = endpoint("10.0.0.1", "a")
    slices = Slices("fabricio", None)
    slices.put(Slice.parse(item("s1", pod)))
    slices.put(Slice.parse(item("s2", pod)))
    slices.put(Slice.parse(item("s1")))
    assert len(slices.peers((), keep_terminating=True)) == 1
    slices.remove(Slice.parse(item("s2")))
    assert slices.peers((), keep_terminating=True) == []
    assert len(slices) == 1


def test_a_pod_ready_in_one_slice_only_is_ready() -> None:
    stale = item("s1", endpoint("10.0.0.1", "a", ready=False))
    assert len(peers(stale, item("s2", endpoint("10.0.0.1", "a", ready=True)))) == 1


@pytest.mark.parametrize(
    ("family", "host"), [(None, "10.0.0.1"), ("v4", "10.0.0.1"), ("v6", "fd00::1")]
)
def test_a_pod_with_both_families_is_one_peer(family: str | None, host: str) -> None:
    six = item("s6", endpoint("fd00::1", "a"), family="IPv6")
    four = item("s4", endpoint("10.0.0.1", "a"))
    assert peers(six, four, family=family) == [Peer(host, 7000, "a")]


def test_a_pod_with_one_family_is_found_by_default() -> None:
    six = item("s6", endpoint("fd00::1", "a"), family="IPv6")
    assert peers(six) == [Peer("fd00::1", 7000, "a")]
    assert peers(six, family="v4") == []
    assert peers(item("names", endpoint("x.example", "a"), family="FQDN")) == []


def test_ports_are_found_by_name_in_each_slice() -> None:
    ports = ({"name": "http", "port": 80}, {"name": "fabricio", "port": 7001, "protocol": "TCP"})
    other = item("s2", endpoint("10.0.0.2", "b"), ports=ports)
    found = peers(item("s1", endpoint("10.0.0.1", "a")), other)
    assert found == [Peer("10.0.0.1", 7000, "a"), Peer("10.0.0.2", 7001, "b")]
    assert [each.port for each in peers(other, port=9)] == [9]


@pytest.mark.parametrize(
    "ports",
    [
        None,
        [],
        [{"name": "http", "port": 80}],
        [{"name": "fabricio", "port": None}],
        [{"name": "fabricio", "port": 7000, "protocol": "UDP"}],
    ],
)
def test_a_slice_without_the_port_has_no_peers(ports: object) -> None:
    slices = Slices("fabricio", None)
    slices.put(Slice.parse(item("s1", endpoint("10.0.0.1", "a"), ports=ports)))
    assert slices.peers((), keep_terminating=True) == []
    assert slices.without_port() == ["s1"]


@pytest.mark.parametrize(
    ("conditions", "joins", "stays"),
    [
        ({}, True, True),
        ({"ready": None, "serving": None, "terminating": None}, True, True),
        ({"ready": True, "serving": True, "terminating": False}, True, True),
        ({"ready": False, "serving": False, "terminating": False}, False, False),
        # Terminating: no new member, but an old one as long as it serves.
        ({"ready": False, "serving": True, "terminating": True}, False, True),
        ({"ready": False, "serving": False, "terminating": True}, False, False),
        # As with publishNotReadyAddresses.
        ({"ready": True, "serving": False, "terminating": False}, True, True),
        ({"ready": True, "serving": False, "terminating": True}, False, True),
    ],
)
def test_conditions(conditions: dict[str, bool | None], joins: bool, stays: bool) -> None:
    pod = item("s1", endpoint("10.0.0.1", "a", **conditions))
    member = {("10.0.0.1", 7000)}
    assert bool(peers(pod)) is joins
    assert bool(peers(pod, members=member)) is stays
    leaves_at_once = conditions.get("terminating") is True
    kept = peers(pod, members=member, keep_terminating=False)
    assert bool(kept) is (stays and not leaves_at_once)


def test_a_pod_without_reference_has_another_name() -> None:
    named = {"addresses": ["10.0.0.1"], "hostname": "web-0"}
    assert peers(item("s", named))[0].name == "web-0"
    assert peers(item("s", {"addresses": ["10.0.0.1"]}))[0].name == "10.0.0.1"


@pytest.mark.parametrize(
    "broken",
    [
        None,
        [],
        {},
        {"metadata": {}},
        {"metadata": {"name": 5}, "addressType": "IPv4"},
        {"metadata": {"name": "s"}},
        item("s", ports=[{"name": "fabricio", "port": 65536}]),
        item("s", ports=[{"name": "fabricio", "port": "7000"}]),
        item("s", ports=[{"name": 5, "port": 7000}]),
        item("s", ports="7000"),
        item("s", ports=[{"name": "fabricio", "port": True}]),
        item("s", {"addresses": []}),
        item("s", {}),
        item("s", {"addresses": [5]}),
        item("s", {"addresses": ["x.example"]}),
        item("s", {"addresses": ["fd00::1"]}),
        item("s", {"addresses": ["10.0.0.1"], "conditions": []} | {"conditions": "ready"}),
        item("s", {"addresses": ["10.0.0.1"], "targetRef": {"name": 5}}),
    ],
)
def test_what_is_no_slice_is_refused(broken: object) -> None:
    with pytest.raises(MalformedError):
        Slice.parse(broken)


def line(kind: str, value: object) -> bytes:
    return json.dumps({"type": kind, "object": value}).encode() + b"\n"


def test_events() -> None:
    found = Slice.parse(item("s1", endpoint("10.0.0.1", "a")))
    for kind, meaning in (("ADDED", "put"), ("MODIFIED", "put"), ("DELETED", "removed")):
        event = parse_event(line(kind, item("s1", endpoint("10.0.0.1", "a"))))
        assert (event.kind, event.version, event.slice) == (meaning, "5", found)
    bookmark = {"kind": "EndpointSlice", "metadata": {"resourceVersion": "9"}}
    assert parse_event(line("BOOKMARK", bookmark)) == Watched("bookmark", "9")


@pytest.mark.parametrize(
    "status", [{"code": 410}, {"reason": "Expired"}, {"reason": "Gone", "code": "x"}]
)
def test_gone_is_told_from_other_errors(status: dict[str, Any]) -> None:
    with pytest.raises(ExpiredError):
        parse_event(line("ERROR", status))
    with pytest.raises(ExpiredError):
        parse_event(json.dumps({"kind": "Status", **status}).encode())


@pytest.mark.parametrize("status", [{"code": 500, "message": "etcd"}, {}, None, "no"])
def test_other_errors(status: object) -> None:
    with pytest.raises(RefusedError):
        parse_event(line("ERROR", status))


def test_an_answer_with_another_http_status() -> None:
    body = json.dumps({"kind": "Status", "code": 403, "message": "may not"}).encode()
    forbidden = refused(403, body)
    assert isinstance(forbidden, RefusedError)
    assert (forbidden.code, "may not" in str(forbidden)) == (403, True)
    assert "<html>" in str(refused(502, b"<html>\xff bad gateway"))
    assert isinstance(refused(410, b""), ExpiredError)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xfe\n",
        b"<html>",
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"type": "ADDED"}',
        b'{"type": [], "object": {}}',
        b'{"type": "UNHEARD", "object": {}}',
        line("BOOKMARK", {}),
        line("BOOKMARK", {"metadata": {"resourceVersion": 5}}),
        line("ADDED", {"metadata": {"resourceVersion": "5"}}),
    ],
)
def test_garbage_in_a_watch_is_refused(garbage: bytes) -> None:
    with pytest.raises(MalformedError):
        parse_event(garbage)


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"items": 5, "metadata": {"resourceVersion": "1"}}', b'{"items": [{}]}']
)
def test_what_is_no_list_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedError):
        parse_list(body)


def test_a_list_without_items_is_empty() -> None:
    empty: tuple[object, ...] = (None, [])
    for items in empty:
        body = json.dumps({"items": items, "metadata": {"resourceVersion": "7"}}).encode()
        listed = parse_list(body)
        assert (listed.slices, listed.version) == ((), "7")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("type", "object", "metadata", "name", "addressType", "ports", "port", "kind"),
                    *("endpoints", "addresses", "conditions", "ready", "targetRef", "uid", "items"),
                    *("resourceVersion", "code", "reason"),
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(_JSON, st.sampled_from(["ADDED", "DELETED", "BOOKMARK", "ERROR"]))
def test_nothing_else_is_raised_for_any_json(value: object, kind: str) -> None:
    for parse, data in ((parse_event, line(kind, value)), (parse_list, json.dumps(value).encode())):
        try:
            parse(data)
        except (MalformedError, ExpiredError, RefusedError):
            continue
