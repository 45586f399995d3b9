"""Imports point one way, and what only one place may touch is touched there alone."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import fabricio.errors

ROOT = Path(fabricio.errors.__file__).parent

# From the bottom up. A module imports from its own layer or from below; a name stands for the
# package below it too.
LAYERS = (
    ("errors", "secret", "options", "waiting"),
    ("hardware",),
    (
        "_ffi",
        "statistics",
        "address",
        "buffers",
        "pages",
        "frames",
        "codec",
        "descriptor",
        "custody",
        "shm",
    ),
    ("completion", "grouping", "hwloc_xml", "nics"),
    ("topology", "placement"),
    ("messages", "events", "control", "outgoing", "incoming", "replay", "handshake"),
    ("proofs", "authentication"),
    ("engine", "transfer", "revocation", "registration", "memory", "remote"),
    ("inbox", "outbox", "sharing", "parting", "channel"),
    ("submission", "endpoint"),
    ("introduction", "refusals", "acceptor", "connector", "rendezvous", "listener"),
    ("opening",),
    ("fabric",),
    ("__init__",),
    ("cli", "discovery", "testing", "__main__"),
)
RANKS = {name: rank for rank, names in enumerate(LAYERS) for name in names}

SANS_IO = (
    "errors",
    "secret",
    "options",
    "address",
    "buffers",
    "pages",
    "frames",
    "codec",
    "descriptor",
    "events",
    "control",
    "outgoing",
    "incoming",
    "replay",
    "messages",
    "handshake",
    "proofs",
    "authentication",
    "hardware",
    "grouping",
    "hwloc_xml",
    "placement",
    "discovery.backoff",
    "discovery.membership",
    "discovery.slices",
    "discovery.watch",
)
NOT_SANS_IO = ("asyncio", "socket", "selectors", "cffi", "_cffi_backend", "fabricio._ffi")
READERS = {"add_reader", "remove_reader", "add_writer", "remove_writer"}


def module_name(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts)


def sources(root: Path) -> dict[str, ast.Module]:
    """Module name without "fabricio." -> its syntax tree."""
    return {
        module_name(path, root): ast.parse(path.read_text("utf-8"), str(path))
        for path in sorted(root.rglob("*.py"))
    }


def imports(tree: ast.AST) -> set[str]:
    """All that is imported anywhere in it, functions and TYPE_CHECKING included: `a.b` or `a.b.c`
    for `from a.b import c`.
    """
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def is_typing_block(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def without_typing_blocks(tree: ast.Module) -> ast.Module:
    """The module without what only a type checker reads, which orders nothing."""
    body = [node for node in tree.body if not is_typing_block(node)]
    return ast.Module(body=body, type_ignores=[])


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def forbidden_imports(modules: dict[str, ast.Module]) -> list[str]:
    return [
        f"{name} imports {imported}"
        for name, tree in modules.items()
        for imported in sorted(imports(tree))
        if (name in SANS_IO and any(within(imported, other) for other in NOT_SANS_IO))
        or (within(imported, "cffi") and not within(name, "_ffi"))
    ]


def strangers_to_readers(modules: dict[str, ast.Module]) -> list[str]:
    return [
        f"{name} line {node.lineno} uses {node.attr}, which only completion and custody may"
        for name, tree in modules.items()
        if name not in ("completion", "custody")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in READERS
    ]


def resolve(imported: str, modules: dict[str, ast.Module]) -> str | None:
    """The module of fabricio that an import means: itself, a package, or what holds the name."""
    if not within(imported, "fabricio"):
        return None
    parts = imported.split(".")[1:]
    for name in (parts, [*parts, "__init__"], parts[:-1], [*parts[:-1], "__init__"]):
        if ".".join(name) in modules:
            return ".".join(name)
    return None


def graph(modules: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Module -> modules of fabricio that it imports when it runs."""
    edges = {}
    for name, tree in modules.items():
        found = {resolve(imported, modules) for imported in imports(without_typing_blocks(tree))}
        edges[name] = {other for other in found if other is not None and other != name}
    return edges


def upward_imports(modules: dict[str, ast.Module]) -> list[str]:
    broken = []
    for name, others in graph(modules).items():
        rank = RANKS.get(name.split(".", maxsplit=1)[0])
        if rank is None:
            broken.append(f"{name} has no layer: give it one in LAYERS")
            continue
        broken += [
            f"{name} imports {other}, which is above it"
            for other in sorted(others)
            if RANKS.get(other.split(".", maxsplit=1)[0], -1) > rank
        ]
    return broken


def cycle(modules: dict[str, ast.Module]) -> list[str]:
    try:
        TopologicalSorter(graph(modules)).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


MODULES = sources(ROOT)


def test_the_modules_are_found() -> None:
    assert {"errors", "messages", "_ffi.check"} <= MODULES.keys()
    assert graph(MODULES)["messages"] >= {"codec", "frames", "errors"}


def test_sans_io_modules_import_neither_asyncio_nor_the_engine() -> None:
    assert forbidden_imports(MODULES) == []


def test_only_two_modules_touch_the_loops_readers() -> None:
    assert strangers_to_readers(MODULES) == []


def test_imports_point_downwards() -> None:
    assert upward_imports(MODULES) == []


def test_imports_make_no_circle() -> None:
    assert cycle(MODULES) == []


def parse(**code: str) -> dict[str, ast.Module]:
    return {
        name.replace("__", ".", 1) if name.startswith("_ffi") else name: ast.parse(text)
        for name, text in code.items()
    }


@pytest.mark.parametrize(
    "code",
    [
        "import asyncio",
        "import asyncio.events as events",
        "from asyncio import Future",
        "from fabricio._ffi import native",
        "import fabricio._ffi.check",
        "from fabricio import _ffi",
        "def late():\n    import socket",
        "if TYPE_CHECKING:\n    from asyncio import Future",
        "import cffi",
    ],
)
def test_a_violation_in_a_sans_io_module_is_seen(code: str) -> None:
    assert forbidden_imports(parse(messages=code))


def test_cffi_is_for_ffi_alone() -> None:
    assert forbidden_imports(parse(fabric="from cffi import FFI"))
    assert not forbidden_imports(parse(_ffi__build="from cffi import FFI"))


@pytest.mark.parametrize("name", sorted(READERS))
def test_a_stranger_to_readers_is_seen(name: str) -> None:
    code = f"def go(loop):\n    loop.{name}(3)"
    assert strangers_to_readers(parse(endpoint=code))
    assert not strangers_to_readers(parse(completion=code))


def test_an_upward_import_is_seen() -> None:
    code = parse(completion="from fabricio.fabric import Fabric", fabric="", errors="")
    assert upward_imports(code) == ["completion imports fabric, which is above it"]
    code = parse(completion="from fabricio import fabric", fabric="", errors="")
    assert upward_imports(code)
    code["completion"] = ast.parse("if TYPE_CHECKING:\n    from fabricio.fabric import Fabric")
    assert not upward_imports(code)


def test_importing_the_package_itself_is_upward() -> None:
    code = parse(endpoint="from fabricio import Fabric", __init__="")
    assert upward_imports(code) == ["endpoint imports __init__, which is above it"]


def test_a_module_without_a_layer_is_seen() -> None:
    assert upward_imports(parse(utils="")) == ["utils has no layer: give it one in LAYERS"]


def test_a_circle_is_seen() -> None:
    code = parse(endpoint="import fabricio.listener", listener="import fabricio.endpoint")
    assert set(cycle(code)) == {"endpoint", "listener"}
