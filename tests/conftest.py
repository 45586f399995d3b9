"""What all tests share: hypothesis' profile, event loops, providers and the search for leaks."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import re
import time
from asyncio import constants
from collections import Counter
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import uvloop
from blockbuster import BlockBuster

from fabricio._ffi import native
from fabricio._ffi.check import check
from fabricio.engine import Engine
from fabricio.memory import MemoryRegion
from fabricio.transfer import Transfer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

# The same examples in every run; a deadline would measure how busy the machine is.
hypothesis.settings.register_profile("fabricio", deadline=None, derandomize=True)
hypothesis.settings.load_profile("fabricio")

# Always tested, and those that are tested where libfabric offers them.
PROVIDERS = ("tcp", "shm")
HARDWARE_PROVIDERS = ("efa", "verbs")

# In debug mode asyncio keeps the stack of whoever makes a handle, a future or a task, for errors to
# show. Its checks need none of it, and all of it is most of what many tests would take.
constants.DEBUG_STACK_DEPTH = 1  # type: ignore[misc]  # typeshed calls it final

# A joined thread may stay in /proc for a moment: the kernel wakes who joins it before that.
_GONE_WITHIN_S = 2.0


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Cross every asynchronous test with both loops."""
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Cross every test that asks for a provider with all of them."""
    if "provider" in metafunc.fixturenames:
        offered = [name for name in HARDWARE_PROVIDERS if _is_offered(name)]
        metafunc.parametrize("provider", [*PROVIDERS, *offered])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Spare the garbage collector all that exists by now.

    pytest keeps some of every test to its end: hundreds of tests later that was most of the work
    of a search for leaks.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def options(provider: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Options of a Fabric that stays on this host."""
    if provider in PROVIDERS:
        # No NIC of these is on PCI, and to look there takes a virtual machine most of an opening.
        monkeypatch.setenv("HWLOC_COMPONENTS", "-linux:pci")
    return {"provider": provider, **({"source": "127.0.0.1"} if provider == "tcp" else {})}


@pytest.fixture(scope="session")
def blocking_refused() -> Iterator[None]:
    """Let every blocking call on a running loop raise."""
    buster = BlockBuster()
    for function in buster.functions.values():
        # A kubeconfig is read once, on a developer's machine, by a package that does it so.
        function.can_block_in("kubernetes_asyncio/config/kube_config.py", "load_kube_config")
    buster.activate()
    yield
    buster.deactivate()


@pytest.fixture(scope="session")
def collectable() -> None:
    """Load what stays loaded."""
    native()
    uvloop.run(_resolve())  # it keeps a pipe and the threads that resolve names


@pytest.fixture
def leaks_refused(collectable: None) -> Iterator[None]:
    """Fail a test that leaves anything behind: see `_leftovers` and `_census`."""
    before = _census()
    yield
    gc.collect()
    left = _leftovers()
    deadline = time.monotonic() + _GONE_WITHIN_S
    while (more := _census() - before) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert not left, f"the test left {left}"
    assert not more, f"the test left {dict(more)}"


@pytest.fixture
async def loop_errors_refused(leaks_refused: None, blocking_refused: None) -> AsyncIterator[None]:
    """Fail a test in which the loop met an exception that nobody else did."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, uvloop.Loop):
        loop.set_debug(True)
        loop.slow_callback_duration = 3600.0  # no test measures time
    met: list[dict[str, Any]] = []

    def meet(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        met.append(context)
        if not isinstance(context.get("exception", ValueError()), Exception):
            # pytest's own, such as its timeout, which uvloop brings here and then goes on.
            for task in asyncio.all_tasks(loop):
                task.cancel()

    loop.set_exception_handler(meet)
    yield
    gc.collect()  # a task whose exception nobody asked for says so when it goes
    assert not met, f"the loop met {met}"


async def _resolve() -> None:
    await asyncio.get_running_loop().getaddrinfo("127.0.0.1", None)


def _census() -> Counter[str]:
    """Count what the process holds: threads, descriptors, and its files in /dev/shm."""
    found: Counter[str] = Counter()
    for thread in os.listdir("/proc/self/task"):
        found[f"thread {thread}"] += 1
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found[f"descriptor of {os.readlink(f'/proc/self/fd/{descriptor}')}"] += 1
        except FileNotFoundError:
            continue  # the one that listed them
    for name in os.listdir("/dev/shm"):
        if str(os.getpid()) in re.findall(r"\d+", name):
            found[f"file {name} in /dev/shm"] += 1
    return found


def _leftovers() -> list[object]:
    """Find engines that run, regions that hold memory and transfers without an outcome."""
    return [
        each
        for each in gc.get_objects()
        if (isinstance(each, Engine) and each.has_workers)
        or (isinstance(each, MemoryRegion) and each._buffer is not None)
        or (isinstance(each, Transfer) and not each.done())
    ]


@functools.cache
def _is_offered(provider: str) -> bool:
    ffi, lib = native()
    count = ffi.new("uint32_t *")
    rows = ffi.new("struct fab_info[]", 1)
    check(lib.fab_info_list(provider.encode(), ffi.NULL, rows, 1, count), "fi_getinfo")
    return bool(count[0] and rows[0].usable)
