"""What both sides of a connect do: take a peer in, say who we are, begin with messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabricio._ffi.check import check
from fabricio.address import Address
from fabricio.channel import Channel
from fabricio.endpoint import Endpoint
from fabricio.errors import OptionsError, ResourceExhaustedError
from fabricio.handshake import OwnTerms

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricio.completion import Completion
    from fabricio.engine import Engine
    from fabricio.errors import FabricioError
    from fabricio.handshake import Terms, Ticket


def own_terms(engine: Engine) -> OwnTerms:
    """Say who we are."""
    attributes, options = engine.attributes, engine.options
    return OwnTerms(
        provider=attributes.provider,
        incarnation=engine.incarnation,
        lanes=engine.address.lanes,
        lane_counts=engine.address.lane_counts,
        immediate_bytes=attributes.immediate_bytes,
        max_message_bytes=options.max_message_bytes,
        receive_window_bytes=options.receive_window_bytes,
        frame_bytes=attributes.frame_bytes,
        peer_timeout_ms=max(1, round(options.peer_timeout_s * 1e3)),
    )


def add_peer(
    engine: Engine,
    lanes: tuple[bytes, ...],
    lane_counts: tuple[int, ...],
    cookie: int,
    on_added: Callable[[Channel | None, FabricioError | None], object],
) -> None:
    """Have the engine take in a peer.

    Args:
        engine: the engine.
        lanes: raw address of each of the peer's lanes, worker by worker.
        lane_counts: how many lanes each of its workers has.
        cookie: random number that the peer must put into every frame.
        on_added: called once, with the channel of the new slot or with why there is none.

    Raises: OptionsError: addresses of different length; ResourceExhaustedError: no more endpoints
        are allowed; FabricError: out of memory; what `Engine.check` raises.
    """
    engine.check()
    limit = engine.options.max_endpoints
    if len(engine.channels) + engine.adding >= limit:
        raise ResourceExhaustedError(
            f"this Fabric has max_endpoints={limit} endpoints, those that begin or end included: "
            "close some, or raise max_endpoints"
        )
    if len({len(lane) for lane in lanes}) != 1:
        raise OptionsError("the peer's lanes have addresses of different length: copy it anew")

    def added(completion: Completion) -> None:
        engine.adding -= 1
        if completion.status or completion.cause is not None:
            on_added(None, engine.error(completion))
        else:
            on_added(Channel(engine, completion.peer), None)

    token = engine.reader.expect(added)
    addresses = b"".join(lanes)
    rc = engine.lib.fab_peer_add(
        engine.handle,
        token,
        cookie,
        addresses,
        len(lanes[0]),
        engine.ffi.new("uint32_t[]", lane_counts),
        len(lane_counts),
    )
    if rc < 0:
        engine.reader.forget(token)
    check(rc, "fi_av_insert", provider=engine.provider)
    engine.adding += 1


def introduce(channel: Channel, theirs: Terms, ticket: Ticket) -> Endpoint:
    """Begin with a peer that has said who it is.

    Args:
        channel: of the peer's slot here.
        theirs: its terms, compatible with ours.
        ticket: what frames to it must bear.

    Raises: RemoteProtocolError: its limits make no sense; FabricError: the engine refuses.
    """
    engine = channel.engine
    heartbeat_s = min(engine.options.heartbeat_s, theirs.peer_timeout_ms / 4e3)
    channel.attach(ticket.slots, ticket.cookie, heartbeat_s)
    address = Address(theirs.provider, theirs.incarnation, theirs.lanes, theirs.lane_counts)
    endpoint = Endpoint(channel, address)
    channel.open(
        address,
        frame_bytes=min(engine.attributes.frame_bytes, theirs.frame_bytes),
        max_message_bytes=min(engine.options.max_message_bytes, theirs.max_message_bytes),
        send_window_bytes=theirs.receive_window_bytes,
    )
    return endpoint
