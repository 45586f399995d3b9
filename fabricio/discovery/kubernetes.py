"""`EndpointSliceDiscovery`: peers from the EndpointSlices of a Kubernetes service."""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import aiohttp
from aiohttp.http_exceptions import LineTooLong
from kubernetes_asyncio.client import ApiClient, Configuration, DiscoveryV1Api
from kubernetes_asyncio.config import ConfigException, load_incluster_config, load_kube_config

from fabricio.discovery.backoff import Backoff
from fabricio.discovery.slices import MalformedError, Slices
from fabricio.discovery.source import Discovery, check_family, check_port, check_seconds
from fabricio.discovery.watch import (
    ExpiredError,
    RefusedError,
    Watched,
    parse_event,
    parse_list,
    refused,
)
from fabricio.errors import DiscoveryError, OptionsError
from fabricio.opening import off_loop

if TYPE_CHECKING:
    from fabricio.discovery.membership import Family

_LOG = logging.getLogger("fabricio")

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_SERVICE_LABEL = "kubernetes.io/service-name"

# Answers that nobody but an operator can mend.
_HOPELESS = {
    401: "the API server does not know who asks. Is the service account's token mounted?",
    403: "this service account may not list and watch endpointslices there. Give it a Role with "
    "the verbs list and watch on endpointslices of discovery.k8s.io, and a RoleBinding",
    404: "the API server has no EndpointSlices. Kubernetes 1.21 or later has",
}

_OK = 200

# The server ends a watch after the time that it is given; so much later it has been cut off.
_GRACE_S = 10.0


class EndpointSliceDiscovery(Discovery):
    """Peers from the EndpointSlices of a service, as soon as the API server knows of a change.

    A pod joins when it is ready, and leaves when its slice does not have it any more, when it is
    not ready, or, if it terminates, when it no longer serves. All slices of the service are one
    list: a pod that is in two of them for a moment, or that has addresses of both families, is one
    peer. Slices are listed, then watched from that resource version on; a watch that breaks goes on
    where it was, and one that is too old (410 Gone) begins with a new list. Whatever fails is tried
    again, with pauses that grow, and changes nothing until there is an answer.

    An error that only an operator can mend (401, 403, 404) ends the iteration with DiscoveryError
    if the API server has never answered; later it is taken as any other.
    """

    def __init__(
        self,
        service: str,
        *,
        port: int | str,
        namespace: str | None = None,
        family: Family | None = None,
        keep_terminating: bool = True,
        api: ApiClient | None = None,
        watch_s: float = 120.0,
        timeout_s: float = 10.0,
        min_retry_s: float = 0.5,
        max_retry_s: float = 30.0,
    ) -> None:
        """Prepare; entering begins to ask.

        Args:
            service: name of the Service.
            port: number, or the name that the port has in the Service.
            namespace: of the Service; None: this pod's own, or "default" outside of a cluster.
            family: "v4" or "v6": those addresses only; None: of a pod with both, IPv4.
            keep_terminating: whether a member stays while it terminates and still serves, so that
                what moves to it can end. One that terminates never joins.
            api: client to use, which stays yours; None: by the pod's service account, or outside of
                a cluster by kubeconfig.
            watch_s: seconds after which a watch is renewed; a whole number of 1 or more. A
                connection that is dead without saying so is noticed 10 s after that.
            timeout_s: seconds for any other request.
            min_retry_s: shortest pause in seconds between two requests.
            max_retry_s: longest pause in seconds between two attempts that fail.

        Raises: OptionsError: a value that is not possible.
        """
        super().__init__()
        check_port(port)
        check_seconds(
            watch_s=watch_s, timeout_s=timeout_s, min_retry_s=min_retry_s, max_retry_s=max_retry_s
        )
        if watch_s != int(watch_s):
            raise OptionsError(f"watch_s={watch_s:g} is not possible: give whole seconds")
        check_family(family)
        if not service:
            raise OptionsError("the name of the service is empty")
        self._service = service
        self._namespace = namespace
        self._keep_terminating = keep_terminating
        self._given_api = api
        self._watch_s = watch_s
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._watch_timeout = aiohttp.ClientTimeout(
            total=watch_s + _GRACE_S, sock_connect=timeout_s
        )
        self._backoff = Backoff(min_retry_s, max_retry_s)
        self._slices = Slices(port, family)
        self._port = port
        self._version: str | None = None  # where to watch from; None: list first
        self._warned: set[str] = set()

    def __repr__(self) -> str:
        """Show what is watched."""
        return f"<EndpointSliceDiscovery {self._namespace or 'own namespace'}/{self._service}>"

    async def _run(self) -> None:
        if self._namespace is None:
            self._namespace = await off_loop(asyncio.get_running_loop(), _own_namespace)
        if self._given_api is not None:
            await self._follow(DiscoveryV1Api(self._given_api))
            return
        try:
            configuration = await _configuration()
        except ConfigException as error:
            raise DiscoveryError(
                f"no Kubernetes API server is known: {error}. In a pod, mount a service account's "
                "token (automountServiceAccountToken); elsewhere, set KUBECONFIG, or give api="
            ) from error
        async with ApiClient(configuration) as api:
            await self._follow(DiscoveryV1Api(api))

    async def _follow(self, api: DiscoveryV1Api) -> None:
        """List and watch, forever."""
        while True:
            try:
                if self._version is None:
                    self._version = await self._list(api)
                await self._watch(api, self._version)
            except ExpiredError as error:
                _LOG.debug("%r: listing anew: %s", self, error)
                self._version = None
            except RefusedError as error:
                if error.code in _HOPELESS and not self.answered:
                    raise self._failure(f"{error}: {_HOPELESS[error.code]}", error) from error
                self._unknown(self._failure(str(error), error))
            except MalformedError as error:
                self._version = None  # what came before may have been nonsense as well
                self._unknown(self._failure(f"it sent {error}", error))
            except (aiohttp.ClientError, ConfigException, OSError) as error:
                self._unknown(self._failure(f"{type(error).__name__} {error}".strip(), error))
            await asyncio.sleep(self._backoff.next_s())

    async def _list(self, api: DiscoveryV1Api) -> str:
        """Take all slices; return the resource version to watch from."""
        async with await self._request(api, limits=self._timeout) as response:
            listed = parse_list(await response.read())
        self._slices.replace(listed.slices)
        if not listed.slices:
            _LOG.warning("%r: there are no EndpointSlices. Does the service exist?", self)
        self._publish()
        return listed.version

    async def _watch(self, api: DiscoveryV1Api, version: str) -> None:
        """Take changes until the server ends the watch, which it does now and then."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        async with await self._request(
            api,
            limits=self._watch_timeout,
            watch=True,
            resource_version=version,
            allow_watch_bookmarks=True,
            timeout_seconds=round(self._watch_s),
        ) as response:
            # The package's own Watch connects again without a pause and ends at an event that it
            # does not understand, so the lines are read here.
            self._current()
            while (line := await _line(response)) is not None:
                if line.strip():
                    self._take(parse_event(line))
                    self._backoff.reset()
        if loop.time() - start > self._watch_s / 2:
            self._backoff.reset()

    async def _request(
        self,
        api: DiscoveryV1Api,
        *,
        limits: aiohttp.ClientTimeout,
        **arguments: Any,  # noqa: ANN401  (the API types them)
    ) -> aiohttp.ClientResponse:
        """Ask for the slices of the service.

        Raises: ExpiredError, RefusedError: the answer is an error.
        """
        assert self._namespace is not None
        answer: object = await api.list_namespaced_endpoint_slice(
            self._namespace,
            label_selector=f"{_SERVICE_LABEL}={self._service}",
            _preload_content=False,
            _request_timeout=limits,
            **arguments,
        )
        response = cast("aiohttp.ClientResponse", answer)  # as it comes, not preloaded
        if response.status != _OK:
            async with response:
                raise refused(response.status, await response.read())
        return response

    def _take(self, event: Watched) -> None:
        if event.slice is not None:
            if event.kind == "removed":
                self._slices.remove(event.slice)
            else:
                self._slices.put(event.slice)
            self._publish()
        self._version = event.version

    def _publish(self) -> None:
        for name in self._slices.without_port():
            if name not in self._warned:
                self._warned.add(name)
                _LOG.warning("%r: no TCP port named %r in EndpointSlice %s", self, self._port, name)
        members = self._slices.peers(
            self._membership.places, keep_terminating=self._keep_terminating
        )
        self._known(members)

    def _failure(self, what: str, cause: Exception) -> DiscoveryError:
        failure = DiscoveryError(
            f"the Kubernetes API server does not say who is behind service {self._service} in "
            f"namespace {self._namespace}: {what}"
        )
        failure.__cause__ = cause
        return failure


async def _line(response: aiohttp.ClientResponse) -> bytes | None:
    """Read one line; None: the server has ended the watch, perhaps within a line.

    Raises: MalformedError: the line is too long.
    """
    try:
        line = await response.content.readline()
    except (LineTooLong, ValueError) as error:  # the latter by older releases of aiohttp
        raise MalformedError("a line that is too long") from error
    return line if line.endswith(b"\n") else None


async def _configuration() -> Configuration:
    """Find out how to reach the API server.

    Raises: ConfigException: nothing says how.
    """
    loop = asyncio.get_running_loop()
    configuration = await off_loop(loop, Configuration)
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        await off_loop(loop, partial(load_incluster_config, configuration))
    else:
        await load_kube_config(client_configuration=configuration)  # once, and in no pod
    return configuration


def _own_namespace() -> str:
    """Return the namespace of this pod, or "default" outside of a cluster."""
    try:
        return _NAMESPACE_FILE.read_text("utf-8").strip() or "default"
    except FileNotFoundError:
        return "default"
