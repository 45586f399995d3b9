"""Conformance: whatever the provider, two endpoints do what `Endpoint` promises."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from fabricio import MemoryRegion, RemoteRegion
from fabricio.waiting import close_all

if TYPE_CHECKING:
    from fabricio.endpoint import Endpoint

_SEED = 20
_VALUES: tuple[object, ...] = (
    None,
    True,
    -(1 << 63),
    (1 << 64) - 1,
    0.1,
    "",
    "ü" * 300,
    b"",
    bytes(range(256)),
    [],
    {},
    {"nested": [{"deep": [1, 2, [3]]}], 7: b"seven"},
)


async def check_endpoint_pair(
    a: Endpoint,
    b: Endpoint,
    *,
    page_bytes: int = 4096,
    page_count: int = 32,
    message_bytes: int = 200_000,
) -> None:
    """Check messages both ways and each kind of transfer both ways, every byte of both sides.

    Args:
        a: one end of a connection; nobody else may be in its `recv`, and nothing unread in it.
        b: the other end, on the same event loop.
        page_bytes: length of a page; at least 1.
        page_count: pages of each region; at least 4. Twice two regions of that size are allocated.
        message_bytes: length of the longest message, for a Fabric whose `max_message_bytes` is not
            at least 5 bytes more.

    Raises: AssertionError: says what was not as promised; FabricioError: whatever failed.
    Cancellation: the regions are deregistered before CancelledError is raised.
    Thread: event loop only.
    """
    if page_bytes < 1 or page_count < 4:
        raise ValueError(f"page_bytes={page_bytes}, page_count={page_count}: at least 1 and 4")
    await _check_messages(a, b, message_bytes)
    for source, target in ((a, b), (b, a)):
        check = _Check(source, target, page_bytes, page_count)
        try:
            await check.open()
            await check.whole()
            await check.pages()
            await check.nothing()
        finally:
            await check.close()


async def _check_messages(a: Endpoint, b: Endpoint, message_bytes: int) -> None:
    """Send every kind of value, and a long one, in both directions at once."""
    values = [*_VALUES, random.Random(_SEED).randbytes(message_bytes)]

    async def send_all(endpoint: Endpoint) -> None:
        for value in values:
            await endpoint.send(value)
        await endpoint.flush()

    async def receive_all(endpoint: Endpoint) -> None:
        for value in values:
            _expect_equal("a message", await endpoint.recv(), value)

    async with asyncio.TaskGroup() as group:
        for endpoint in (a, b):
            group.create_task(send_all(endpoint))
            group.create_task(receive_all(endpoint))


class _Check:
    """Transfers of one direction: `source` writes and reads, `target` looks on."""

    def __init__(
        self, source: Endpoint, target: Endpoint, page_bytes: int, page_count: int
    ) -> None:
        self._source = source
        self._target = target
        self._page_bytes = page_bytes
        self._page_count = page_count
        self._random = random.Random(_SEED)
        size = page_bytes * page_count
        # What the memory must hold, and what it holds.
        self._local_model = bytearray(self._random.randbytes(size))
        self._remote_model = bytearray(self._random.randbytes(size))
        self._local_memory = bytearray(self._local_model)
        self._remote_memory = bytearray(self._remote_model)
        self._opened: list[MemoryRegion] = []
        self._local: MemoryRegion
        self._remote: RemoteRegion

    async def open(self) -> None:
        """Register both sides; the target shares its own in a message."""
        self._local = await self._register(self._source, self._local_memory)
        region = await self._register(self._target, self._remote_memory)
        await self._target.send({"regions": [region.share("rw")]})
        message = await self._source.recv()
        remote = message["regions"][0] if isinstance(message, dict) else message
        if not isinstance(remote, RemoteRegion):
            raise AssertionError(f"a shared region arrived as {remote!r}")
        self._remote = remote

    async def close(self) -> None:
        """Deregister both sides."""
        await close_all(
            asyncio.get_running_loop(), [region.deregister() for region in self._opened]
        )

    async def whole(self) -> None:
        """Write and read parts of the regions, with and without notification."""
        source, local, remote = self._source, self._local, self._remote
        size, half = len(self._local_memory), len(self._local_memory) // 2
        _expect_equal("bytes written", await source.write(local, remote, notify=None), size)
        _expect_equal("a notification", await self._target.recv(), None)
        self._remote_model[:] = self._local_model
        self._compare("write")

        self._change_remote()
        moved = await source.read(local[half:], remote[: size - half], notify=["read"])
        _expect_equal("bytes read", moved, size - half)
        self._local_model[half:] = self._remote_model[: size - half]
        _expect_equal("a notification", await self._target.recv(), ["read"])
        self._compare("read")

        source.write(local[1:half], remote[:-1], notify="first")
        await source.write(local[:1], remote[-1:], notify="second", confirm=False)
        for text in ("first", "second"):
            _expect_equal("a notification", await self._target.recv(), text)
        self._remote_model[: half - 1] = self._local_model[1:half]
        self._remote_model[-1:] = self._local_model[:1]
        self._compare("writes of odd length")

    async def pages(self) -> None:
        """Move permuted pages, adjacent pages, and pages within larger strides."""
        count = self._page_count
        everything = list(range(count))
        permuted = self._random.sample(everything, count)
        await self._move_pages(permuted, self._random.sample(everything, count), read=False)
        await self._move_pages(permuted, self._random.sample(everything, count), read=True)
        await self._move_pages(everything[1:], everything[:-1], read=False)
        await self._move_pages([0], [count - 1], read=False)
        # Half a page in the middle of each second page.
        page, offset = max(1, self._page_bytes // 2), self._page_bytes // 4
        some = self._random.sample(range(count // 2), count // 2)
        for read in (False, True):
            await self._move_pages(
                some, some[::-1], read=read, page=page, stride=2 * self._page_bytes, offset=offset
            )

    async def nothing(self) -> None:
        """Move no page at all: done at once, and notified all the same."""
        source = self._source
        moved = await source.write_pages(
            self._local, [], self._remote, [], page_bytes=self._page_bytes, notify={"pages": 0}
        )
        _expect_equal("bytes of no page", moved, 0)
        _expect_equal("a notification", await self._target.recv(), {"pages": 0})
        _expect_equal("bytes of no byte", await source.write(self._local[:0], self._remote), 0)
        self._compare("transfers of nothing")

    async def _register(self, endpoint: Endpoint, memory: bytearray) -> MemoryRegion:
        region = await MemoryRegion.register(endpoint._channel.engine, memory, "rw")
        self._opened.append(region)
        return region

    def _change_remote(self) -> None:
        """Let the target's process write into its own memory."""
        self._remote_model[:] = self._remote_memory[:] = self._random.randbytes(
            len(self._remote_memory)
        )

    async def _move_pages(
        self,
        local_pages: list[int],
        remote_pages: list[int],
        *,
        read: bool,
        page: int | None = None,
        stride: int | None = None,
        offset: int = 0,
    ) -> None:
        page_bytes = self._page_bytes if page is None else page
        move = self._source.read_pages if read else self._source.write_pages
        self._change_remote()
        transfer = move(
            self._local,
            local_pages,
            self._remote,
            remote_pages,
            page_bytes=page_bytes,
            local_stride_bytes=stride,
            remote_stride_bytes=stride,
            local_offset_bytes=offset,
            remote_offset_bytes=offset,
            notify=remote_pages,
        )
        _expect_equal("pages to move", transfer.pages_total, len(local_pages))
        _expect_equal("a notification", await self._target.recv(), remote_pages)
        _expect_equal("bytes moved", await transfer, len(local_pages) * page_bytes)
        _expect_equal("pages moved", transfer.pages_done, len(local_pages))
        step = page_bytes if stride is None else stride
        for local_page, remote_page in zip(local_pages, remote_pages, strict=True):
            there = slice(offset + remote_page * step, offset + remote_page * step + page_bytes)
            here = slice(offset + local_page * step, offset + local_page * step + page_bytes)
            if read:
                self._local_model[here] = self._remote_model[there]
            else:
                self._remote_model[there] = self._local_model[here]
        self._compare("read_pages" if read else "write_pages")

    def _compare(self, what: str) -> None:
        """Compare every byte of both sides, those not to be touched included."""
        for name, memory, model in (
            ("source", self._local_memory, self._local_model),
            ("target", self._remote_memory, self._remote_model),
        ):
            if memory != model:
                wrong = [at for at, byte in enumerate(memory) if byte != model[at]]
                raise AssertionError(
                    f"after {what}, {len(wrong)} bytes of the {name}'s memory are wrong, the first "
                    f"at {wrong[0]} and the last at {wrong[-1]} of {len(memory)}"
                )


def _expect_equal(what: str, found: object, expected: object) -> None:
    if found != expected or type(found) is not type(expected):
        raise AssertionError(f"{what} is {found!r:.200}, not {expected!r:.200}")
