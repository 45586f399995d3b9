"""Opening an engine: which provider, which NICs, which workers."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from fabricio._ffi import native
from fabricio.engine import Engine
from fabricio.errors import FabricError, FabricioError, NoProviderError
from fabricio.nics import PROVIDER_VARIABLE, provider_names
from fabricio.placement import WorkerPlan, plan_workers
from fabricio.shm import remove_leftovers
from fabricio.topology import Topology

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from fabricio.options import FabricOptions

_T = TypeVar("_T")

# Codes by which a provider says that it is not there.
_ABSENT = {errno.ENODATA, errno.ENOSYS, errno.ENODEV, errno.ENOENT}


async def open_engine(loop: asyncio.AbstractEventLoop, options: FabricOptions) -> Engine:
    """Open the provider asked for, or the first that works.

    Raises: NoLibfabricError: there is none to load; NoProviderError: no such provider here;
        OptionsError: NICs, GPUs or CPUs that are not here; FabricError: it cannot be opened.
    Cancellation: everything is closed before CancelledError is raised.
    """
    # What is loaded is read from files, and looking at the machine takes milliseconds.
    library = native() if native.cache_info().currsize else await off_loop(loop, native)
    asked = options.provider or os.environ.get(PROVIDER_VARIABLE) or None
    failures: list[FabricioError] = []
    for provider in provider_names(asked):
        try:
            plans = await off_loop(loop, partial(plan, options, provider))
            engine = Engine(library, loop, options, provider, plans)
            await engine.open()
        except FabricError as error:
            if asked is not None and error.code not in _ABSENT:
                raise
            failures.append(error)
        except NoProviderError as error:
            failures.append(error)
        else:
            return engine
    what = f"provider {asked!r} is not" if asked else "none of the providers tried is"
    raise NoProviderError(
        f"{what} usable here: {'; '.join(map(str, failures))}. Run `fabricio info` to see what "
        f"libfabric offers, and choose with provider= or {PROVIDER_VARIABLE}"
    ) from failures[-1]


def plan(options: FabricOptions, provider: str) -> tuple[WorkerPlan, ...]:
    """Choose the workers of a Fabric.

    Raises: as `Topology.discover` and `plan_workers`.
    Thread: any, but not the event loop.
    """
    if provider == "shm":
        remove_leftovers()
    topology = Topology.discover(provider)
    nics = options.nics
    if nics is None and options.source is not None:
        holders = [nic.domain for nic in topology.nics if options.source in nic.addresses]
        if not holders:
            # libfabric knows best what is wrong with it.
            return (WorkerPlan((None,), (options.source,), (), None, None),)
        nics = tuple(holders[:1])
    pin = options.pin
    if pin is None:
        pin = any(nic.pci is not None for nic in topology.nics)
    return plan_workers(
        topology,
        nics=nics,
        gpus=options.gpus,
        nics_per_gpu=options.nics_per_gpu,
        workers=options.workers,
        source=options.source,
        pin=pin,
    )


async def off_loop(loop: asyncio.AbstractEventLoop, work: Callable[[], _T]) -> _T:
    """Do what blocks in a thread that ends with it.

    Raises: what `work` raises.
    Cancellation: nobody waits any longer for what `work` does.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="fabricio-open")
    try:
        return await loop.run_in_executor(pool, work)
    finally:
        pool.shutdown(wait=False)  # the thread ends by itself, now
