"""What needs an extra is loaded when it is asked for, and says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fabricio.discovery


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("DnsDiscovery", "dns", "dns"),
        ("EndpointSliceDiscovery", "kubernetes_asyncio", "kubernetes"),
        ("EndpointSliceDiscovery", "aiohttp", "kubernetes"),
    ],
)
def test_a_missing_extra_is_named(name: str, package: str, extra: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from fabricio.discovery import Peers\n"
        f"try: from fabricio.discovery import {name}\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=15
    )
    assert f"{name} needs more packages ({package}" in done.stdout
    assert f"pip install 'fabricio-rdma[{extra}]'" in done.stdout


def test_the_package_alone_loads_no_extra() -> None:
    code = (
        "import sys, fabricio.discovery\n"
        "print([name for name in ('dns', 'aiohttp', 'kubernetes_asyncio') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=15
    )
    assert done.stdout == "[]\n"


def test_all_names_are_there_documented_and_sorted() -> None:
    names = fabricio.discovery.__all__
    assert names == sorted(set(names))
    for name in names:
        value = getattr(fabricio.discovery, name)
        if isinstance(value, type):
            assert (value.__doc__ or "").strip()


def test_other_names_are_none() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nobody'"):
        fabricio.discovery.Nobody  # noqa: B018  (asking is the test)
