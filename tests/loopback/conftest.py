"""Two Fabrics in one process, and what they leave behind."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fabricio import Endpoint, Fabric, MemoryRegion, RemoteRegion, Transfer
from fabricio.testing import check_endpoint_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from fabricio.memory import Access

    Bytes = np.ndarray[Any, np.dtype[np.uint8]]
    OpenPair = Callable[..., AbstractAsyncContextManager["Pair"]]


# Two million operations, one at a time, are never over before the test has said what it wants.
ENDLESS_PAGES, ENDLESS_PAGE_BYTES = 1 << 21, 8
SLOW: dict[str, Any] = {"inflight_count": 1, "segments": 1, "merge": False}


@pytest.fixture(autouse=True)
async def clean(loop_errors_refused: None) -> None:
    """Every test here must leave nothing behind."""


@dataclass
class Memory:
    """A region of one side, its bytes, and what the other side got when it was shared."""

    array: Bytes
    region: MemoryRegion
    remote: RemoteRegion


@dataclass
class Endless:
    """One page, and an endless row of pages, to be written or read by the endpoint."""

    endpoint: Endpoint
    page: Memory
    row: Memory
    page_count: int = ENDLESS_PAGES
    page_bytes: int = ENDLESS_PAGE_BYTES

    def write(self, **arguments: Any) -> Transfer:  # noqa: ANN401  (those of write_pages)
        """Write the near page to every far one; on a slow pair it runs whenever the loop looks."""
        zeros, all_pages = np.zeros(self.page_count, np.int64), np.arange(self.page_count)
        return self.endpoint.write_pages(
            self.page.region,
            zeros,
            self.row.remote,
            all_pages,
            page_bytes=self.page_bytes,
            **arguments,
        )

    def read(self) -> Transfer:
        """Read the far page into every near one."""
        zeros, all_pages = np.zeros(self.page_count, np.int64), np.arange(self.page_count)
        return self.endpoint.read_pages(
            self.row.region, all_pages, self.page.remote, zeros, page_bytes=self.page_bytes
        )


@dataclass
class Pair:
    """Two Fabrics and the two ends of a connection between them: `a` connected, `b` accepted."""

    near: Fabric
    far: Fabric
    a: Endpoint
    b: Endpoint

    async def register(self, length_bytes: int, seed: int = 1) -> Memory:
        """Random bytes of the near side, shared with `b`."""
        return await self._register(self.near, self.a, self.b, length_bytes, seed, "rw")

    async def register_far(
        self, length_bytes: int, access: Access = "rw", *, seed: int | None = None
    ) -> Memory:
        """Zeros, or random bytes, of the far side, shared with `a`."""
        return await self._register(self.far, self.b, self.a, length_bytes, seed, access)

    async def endless_write(self) -> Endless:
        """Memory for a write from near to far that does not end."""
        page = await self.register(ENDLESS_PAGE_BYTES)
        return Endless(self.a, page, await self.register_far(ENDLESS_PAGES * ENDLESS_PAGE_BYTES))

    async def endless_read(self) -> Endless:
        """Memory for a read from far to near that does not end."""
        page = await self.register_far(ENDLESS_PAGE_BYTES, seed=1)
        row = await self._register(
            self.near, self.a, self.b, ENDLESS_PAGES * ENDLESS_PAGE_BYTES, None, "rw"
        )
        return Endless(self.a, page, row)

    async def connect(self) -> tuple[Endpoint, Endpoint]:
        """One more connection from the near Fabric to the far one."""
        return await connect(self.near, self.far)

    async def works(self) -> None:
        """Everything still works, both ways."""
        longest = min(100_000, self.near.options.max_message_bytes - 5)
        await check_endpoint_pair(
            self.a, self.b, page_bytes=512, page_count=8, message_bytes=longest
        )

    async def _register(
        self,
        fabric: Fabric,
        sender: Endpoint,
        receiver: Endpoint,
        length_bytes: int,
        seed: int | None,
        access: Access,
    ) -> Memory:
        array = np.zeros(length_bytes, np.uint8)
        if seed is not None:
            array[:] = np.random.default_rng(seed).integers(0, 256, length_bytes, np.uint8)
        region = await fabric.register(array)
        await sender.send(region.share(access))
        remote = await receiver.recv()
        assert isinstance(remote, RemoteRegion)
        return Memory(array, region, remote)


class Interposed:
    """The engine's functions, some of them replaced: put it in the place of `Engine.lib`."""

    def __init__(self, lib: Any, **replaced: Callable[..., object]) -> None:  # noqa: ANN401  (cffi's)
        self._lib = lib
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever the engine has)
        return getattr(self._lib, name)


async def connect(near: Fabric, far: Fabric) -> tuple[Endpoint, Endpoint]:
    """Connect two Fabrics; nobody else may listen on the far one."""
    async with far.listen() as listener, asyncio.TaskGroup() as group:
        accepted = group.create_task(listener.accept())
        connected = group.create_task(near.connect(far.address))
    return connected.result(), accepted.result()


@pytest.fixture
def open_pair(options: dict[str, Any]) -> OpenPair:
    """Open a Pair as a context, with options of both Fabrics."""

    @asynccontextmanager
    async def open_one(**overrides: Any) -> AsyncIterator[Pair]:  # noqa: ANN401  (FabricOptions types them)
        async with AsyncExitStack() as stack:
            near = await stack.enter_async_context(Fabric(**options, **overrides))
            far = await stack.enter_async_context(Fabric(**options, **overrides))
            a, b = await connect(near, far)
            yield Pair(near, far, a, b)

    return open_one


@pytest.fixture
def open_slow_pair(open_pair: OpenPair) -> OpenPair:
    """Open a Pair that moves one page at a time."""
    return partial(open_pair, **SLOW)


@pytest.fixture
async def pair(open_pair: OpenPair) -> AsyncIterator[Pair]:
    """A Pair with default options."""
    async with open_pair() as opened:
        yield opened
