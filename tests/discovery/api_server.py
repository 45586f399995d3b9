"""As much of a Kubernetes API server as lists and watches EndpointSlices, over real HTTP.

Each request waits for the test, which takes it by `ApiServer.request` and answers it.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web

if TYPE_CHECKING:
    from types import TracebackType

NAMESPACE = "gpu"
SERVICE = "workers"

_BACKSTOP_S = 10.0
_PATH = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"


class Exchange:
    """One request, and what the test answers.

    Attributes:
        query: of the request's URL.
        watch: whether it is a watch.
        gone: set when the client has gone.
    """

    def __init__(self, request: web.Request) -> None:
        """Take a request, unanswered."""
        self._request = request
        self._response: web.StreamResponse | None = None
        self._over: asyncio.Future[web.StreamResponse] = asyncio.get_running_loop().create_future()
        self.query = dict(request.query)
        self.watch = self.query.get("watch") == "True"
        self.gone = asyncio.Event()

    async def serve(self) -> web.StreamResponse:
        """Wait for the test's answer."""
        try:
            return await self._over
        finally:
            self.gone.set()

    def answer(self, body: bytes | dict[str, Any], status: int = 200) -> None:
        """Answer with a body, at once."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._over.set_result(
            web.Response(body=data, status=status, content_type="application/json")
        )

    async def send(self, *events: dict[str, Any] | bytes) -> None:
        """Send events of a watch, or bytes as they are; the first begins the answer."""
        if self._response is None:
            self._response = web.StreamResponse()
            await self._response.prepare(self._request)
        for event in events:
            data = event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n"
            await self._response.write(data)

    async def end(self) -> None:
        """End the watch in order."""
        await self.send()
        assert self._response is not None
        self._over.set_result(self._response)

    async def cut(self) -> None:
        """Drop the connection."""
        await self.send()
        assert self._response is not None
        assert self._request.transport is not None
        self._request.transport.abort()
        self._over.set_result(self._response)


class ApiServer:
    """`async with ApiServer() as server`; ends the requests that are open with its block.

    Attributes:
        url: where it is.
    """

    def __init__(self) -> None:
        """Prepare."""
        self._requests: asyncio.Queue[Exchange] = asyncio.Queue()
        app = web.Application()
        app.router.add_get(_PATH, self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.0)
        self.url = ""

    async def __aenter__(self) -> Self:
        """Listen on a free port."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop."""
        await self._runner.cleanup()

    async def request(self) -> Exchange:
        """Wait for the next request."""
        async with asyncio.timeout(_BACKSTOP_S):
            return await self._requests.get()

    async def list_request(self) -> Exchange:
        """Wait for the next request, which is for a list."""
        exchange = await self.request()
        assert not exchange.watch, exchange.query
        assert exchange.query == {"labelSelector": f"kubernetes.io/service-name={SERVICE}"}
        return exchange

    async def watch_request(self, version: str) -> Exchange:
        """Wait for the next request, which is for a watch from this resource version on."""
        exchange = await self.request()
        assert exchange.watch, exchange.query
        assert exchange.query["resourceVersion"] == version
        assert exchange.query["allowWatchBookmarks"] == "True"
        assert exchange.query["labelSelector"] == f"kubernetes.io/service-name={SERVICE}"
        return exchange

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        exchange = Exchange(request)
        self._requests.put_nowait(exchange)
        return await exchange.serve()
