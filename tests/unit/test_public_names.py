"""The public names: all there, all documented, and nothing heavy comes with them."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import fabricio

# What a bare `import fabricio` must leave alone: the extension needs libfabric, the others need
# to be installed, and asking for them costs time.
HEAVY = (
    *("fabricio._ffi._native", "numpy", "cupy", "torch", "uvloop", "rich", "typer"),
    *("dns", "kubernetes_asyncio", "aiohttp"),
)


def names() -> list[str]:
    return list(fabricio.__all__)


@pytest.mark.parametrize("name", names())
def test_name_exists_and_is_documented(name: str) -> None:
    value = getattr(fabricio, name)
    assert inspect.isclass(value)
    assert value.__module__.startswith("fabricio.")
    assert (value.__doc__ or "").strip()
    assert "_" not in value.__name__


def test_names_are_sorted_and_unique() -> None:
    assert names() == sorted(set(names()))


def test_every_error_is_public() -> None:
    errors = importlib.import_module("fabricio.errors")
    tree = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.FabricioError)
    }
    assert tree <= set(names())


def test_nothing_else_is_exported() -> None:
    modules = {path.stem for path in Path(fabricio.__file__).parent.glob("*.py")}
    visible = {name for name in vars(fabricio) if not name.startswith("_")}
    assert visible - modules - {"cli", "discovery", "testing"} == set(names())


@pytest.mark.parametrize("name", names())
def test_public_methods_are_documented(name: str) -> None:
    for attribute, value in vars(getattr(fabricio, name)).items():
        if attribute.startswith("_"):
            continue
        function = value.fget if isinstance(value, property) else inspect.unwrap(value)
        if inspect.isfunction(function):
            assert (function.__doc__ or "").strip(), f"{name}.{attribute}"


def test_import_loads_nothing_heavy() -> None:
    code = (
        "import sys, fabricio\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
        "print('libfabric' in open('/proc/self/maps').read())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=15
    )
    assert done.stdout.splitlines() == ["[]", "False"]
    assert done.stderr == ""
