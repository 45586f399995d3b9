"""hwloc's XML, made safe for hwloc.

hwloc trusts such a file: an object without its CPU set, or sets that do not fit into one another,
crash it. Here everything that it builds on is checked first, and what fabricio has no use for
(caches' details, distances, operating system devices) is left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as Et

from fabricio.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES = 64 << 20
_MAX_DEPTH = 64
_MAX_OBJECTS = 1 << 18
_MAX_INDEX = (1 << 16) - 1  # CPUs and NUMA nodes

_HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
    '<topology version="2.0">\n'
)
_SETS = ("cpuset", "complete_cpuset", "nodeset", "complete_nodeset")
_NUMBER = r"[0-9]{1,20}"
_BITMAP = re.compile(r"(0x[0-9a-f]{1,8})?(,(0x[0-9a-f]{1,8})?)*", re.IGNORECASE)
_BUS = r"[0-9a-f]{4}:[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]"
_KIND = r"[0-9a-f]{4} \[[0-9a-f]{4}:[0-9a-f]{4}\] \[[0-9a-f]{4}:[0-9a-f]{4}\] [0-9a-f]{2}"
# An object has these attributes and no others.
_ATTRIBUTES = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "os_index": _NUMBER,
        "local_memory": _NUMBER,
        "kind": _NUMBER,
        "subkind": _NUMBER,
        "bridge_type": "[01]-1",
        "bridge_pci": r"[0-9a-f]{4}:\[[0-9a-f]{2}-[0-9a-f]{2}\]",
        "depth": _NUMBER,
        "pci_busid": _BUS,
        "pci_type": _KIND,
        "pci_link_speed": r"[0-9]{1,9}(\.[0-9]{1,9})?",
    }.items()
}
# What each type must have beside its sets.
_NEEDS: dict[str, tuple[str, ...]] = {
    "Machine": (),
    "Group": (),
    "Package": (),
    "Die": (),
    "Core": (),
    "PU": ("os_index",),
    "NUMANode": ("os_index",),
    "Bridge": ("bridge_type", "bridge_pci", "depth"),
    "PCIDev": ("pci_busid", "pci_type"),
}
# From the outside in; groups may be anywhere above cores.
_RANKS = {"Machine": 0, "Package": 1, "Die": 2, "Core": 3, "PU": 4}
_CACHE = re.compile("L[1-5]i?Cache|Group")
_ATTACHED = ("NUMANode", "Bridge", "PCIDev")
_DROPPED = ("OSDev", "Misc")
# XML cannot hold these at all.
_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def sanitize(data: bytes) -> bytes:
    """Check a topology that hwloc wrote, and write it anew with what is used of it.

    Args:
        data: XML of hwloc 2.x, from `fabricio topo --xml` or lstopo.

    Returns: XML that hwloc takes without harm.
    Raises: OptionsError: it is too large, no XML, or no topology that holds together; says what.
    """
    if len(data) > MAX_BYTES:
        raise OptionsError(f"it has {len(data)} bytes, more than the {MAX_BYTES} that are read")
    if b"<!ENTITY" in data:
        raise OptionsError("it declares XML entities, which hwloc never writes")
    try:
        root = Et.fromstring(data)  # the parser fetches nothing
    except (Et.ParseError, ValueError, LookupError) as error:
        raise OptionsError(f"it is no XML: {error}") from error
    if root.tag != "topology":
        raise OptionsError(f"it holds <{root.tag}>, not <topology>")
    version = root.get("version", "1")
    if not version.startswith("2."):
        raise OptionsError(f"it is of version {version}: export it with hwloc 2.x")
    return (_HEAD + _Writer().machine(root) + "</topology>\n").encode()


class _Writer:
    """Checks objects and writes them."""

    def __init__(self) -> None:
        self._count = 0
        self._cpus = 0
        self._nodes = 0

    def machine(self, root: Et.Element) -> str:
        """Write the one machine of the file."""
        objects = root.findall("object")
        if len(objects) != 1 or objects[0].get("type") != "Machine":
            raise OptionsError("it does not hold one Machine")
        machine = objects[0]
        sets = _sets("Machine", machine)
        allowed = {
            f"allowed_{name}": _bitmap("Machine", f"allowed_{name}", machine)
            if f"allowed_{name}" in machine.attrib
            else sets[name]
            for name in ("cpuset", "nodeset")
        }
        text = self._object(machine, "Machine", sets, sets, (0, 0), allowed)
        if self._cpus != sets["cpuset"] or self._cpus == 0:
            raise OptionsError("the CPUs of Machine are not those of its PU objects")
        if self._nodes != sets["nodeset"] or self._nodes == 0:
            raise OptionsError("the nodes of Machine are not those of its NUMANode objects")
        if allowed["allowed_cpuset"] & ~self._cpus or allowed["allowed_nodeset"] & ~self._nodes:
            raise OptionsError("more CPUs or nodes are allowed in Machine than it has")
        if not allowed["allowed_cpuset"] or not allowed["allowed_nodeset"]:
            raise OptionsError("no CPU or no node of Machine is allowed")
        return text

    def _object(
        self,
        element: Et.Element,
        kind: str,
        sets: dict[str, int],
        outer: dict[str, int],
        place: tuple[int, int],
        extra: dict[str, int] | None = None,
    ) -> str:
        """Write one object and what is in it.

        `outer` are the sets of what it is in; `place` is (depth, rank of it or what it is in).
        """
        self._count += 1
        if place[0] > _MAX_DEPTH or self._count > _MAX_OBJECTS:
            raise OptionsError("it holds more objects, or deeper ones, than any machine")
        attributes = {"type": kind} | _attributes(kind, element)
        if kind in ("Bridge", "PCIDev"):
            if kind == "Bridge" and attributes["bridge_type"] == "0-1":
                for name in ("pci_busid", "pci_type", "pci_link_speed"):
                    attributes.pop(name, None)
            elif "pci_busid" not in attributes or "pci_type" not in attributes:
                raise OptionsError("a Bridge has no pci_busid or no pci_type")
        else:
            self._check_sets(kind, attributes, sets, outer)
            attributes |= {name: _hex(value) for name, value in sets.items()}
            attributes |= {name: _hex(value) for name, value in (extra or {}).items()}
        body = "".join(_infos(element)) + "".join(self._children(element, kind, sets, place))
        head = "".join(f' {name}="{_escape(value)}"' for name, value in attributes.items())
        return f"<object{head}>\n{body}</object>\n" if body else f"<object{head}/>\n"

    def _children(
        self, element: Et.Element, kind: str, sets: dict[str, int], place: tuple[int, int]
    ) -> Iterator[str]:
        """Write what is in an object, in hwloc's order: normal objects, memory, I/O."""
        normal: list[tuple[int, str]] = []
        memory: list[tuple[int, str]] = []
        devices: list[str] = []
        cpus_seen = 0
        for inner, child in _unwrapped(element, place[0]):
            if inner in _DROPPED:
                continue
            if inner not in _NEEDS:
                raise OptionsError(f"it holds an object of type {inner!r}, which is unknown")
            _check_nesting(kind, inner, place[1])
            below = (place[0] + 1, _RANKS.get(inner, place[1]))
            if inner in ("Bridge", "PCIDev"):
                devices.append(self._object(child, inner, sets, sets, below))
                continue
            own = _sets(inner, child)
            text = self._object(child, inner, own, sets, below)
            if inner == "NUMANode":
                memory.append((_lowest(own["nodeset"]), text))
                continue
            if own["complete_cpuset"] & cpus_seen:
                raise OptionsError(f"a CPU is in two objects of one {kind}")
            cpus_seen |= own["complete_cpuset"]
            normal.append((_lowest(own["complete_cpuset"]), text))
        for _, text in (*sorted(normal), *sorted(memory)):
            yield text
        yield from devices

    def _check_sets(
        self, kind: str, attributes: dict[str, str], sets: dict[str, int], outer: dict[str, int]
    ) -> None:
        """Check that an object lies in what it is in, and is what its number says."""
        for name, value in sets.items():
            if value & ~outer[name]:
                raise OptionsError(f"{name} of a {kind} goes beyond that of what it is in")
        for name in ("cpuset", "nodeset"):
            if sets[name] & ~sets[f"complete_{name}"]:
                raise OptionsError(f"{name} of a {kind} goes beyond its complete_{name}")
        if kind not in ("NUMANode", "PU"):
            if not sets["cpuset"]:
                raise OptionsError(f"a {kind} has no CPU")
            return
        number = int(attributes["os_index"])
        if number > _MAX_INDEX:
            raise OptionsError(f"a {kind} has the number {number}, which is above {_MAX_INDEX}")
        name = "cpuset" if kind == "PU" else "nodeset"
        if sets[name] != 1 << number or sets[f"complete_{name}"] != 1 << number:
            raise OptionsError(f"the {name} of {kind} {number} is not its number")
        seen = self._cpus if kind == "PU" else self._nodes
        if seen >> number & 1:
            raise OptionsError(f"{kind} {number} is there twice")
        if kind == "PU":
            self._cpus |= 1 << number
        else:
            self._nodes |= 1 << number


def _unwrapped(element: Et.Element, depth: int) -> Iterator[tuple[str, Et.Element]]:
    """Objects in an object, with their types.

    Of a cache or a group comes what is in it, unless memory or devices are attached to it: these
    belong to its CPUs, and it comes as a group.
    """
    for child in element.findall("object"):
        kind = child.get("type", "")
        is_cache = _CACHE.fullmatch(kind)
        if kind != "MemCache" and not is_cache:
            yield kind, child
            continue
        if depth > _MAX_DEPTH:
            raise OptionsError("it holds deeper objects than any machine")
        inside = list(_unwrapped(child, depth + 1))
        if is_cache and any(inner in _ATTACHED for inner, _ in inside):
            yield "Group", child
        else:
            yield from inside


def _check_nesting(outer: str, inner: str, rank: int) -> None:
    """Check that an object may be in another; `rank` is of what is no group."""
    if inner in ("Bridge", "PCIDev"):
        fits = outer not in ("NUMANode", "PCIDev")
    elif inner == "NUMANode":
        fits = outer not in ("PU", "NUMANode", "Bridge", "PCIDev")
    elif inner == "Group":
        fits = outer in ("Machine", "Package", "Die", "Group")
    else:
        fits = (outer in _RANKS or outer == "Group") and rank < _RANKS.get(inner, 0)
    if not fits:
        raise OptionsError(f"it holds a {inner} in a {outer}")


def _attributes(kind: str, element: Et.Element) -> dict[str, str]:
    found = {}
    for name, pattern in _ATTRIBUTES.items():
        value = element.get(name)
        if value is None:
            if name in _NEEDS[kind]:
                raise OptionsError(f"a {kind} has no {name}")
            continue
        # What hwloc may say of a slot that it knows nothing of is no reason to refuse a file.
        if not pattern.fullmatch(value) or (value.isdecimal() and int(value) >= 1 << 64):
            if name not in _NEEDS[kind]:
                continue
            raise OptionsError(f"{name}={value!r} of a {kind} is not possible")
        found[name] = value
    if "os_index" in found and int(found["os_index"]) >= 1 << 32:
        raise OptionsError(f"os_index={found['os_index']!r} of a {kind} is not possible")
    return found


def _sets(kind: str, element: Et.Element) -> dict[str, int]:
    return {name: _bitmap(kind, name, element) for name in _SETS}


def _bitmap(kind: str, name: str, element: Et.Element) -> int:
    """Read "0x1,,0xff00ff00": words of 32 bits, the highest first, where none is 0."""
    text = element.get(name)
    if text is None:
        raise OptionsError(f"a {kind} has no {name}")
    words = text.split(",")
    if len(words) > (_MAX_INDEX + 1) // 32 or not _BITMAP.fullmatch(text):
        raise OptionsError(f"{name} of a {kind} is not possible: {text[:80]!r}")
    value = 0
    for word in words:
        value = value << 32 | int(word or "0", 16)
    return value


def _lowest(value: int) -> int:
    """The lowest bit that is set."""
    return value & -value


def _hex(value: int) -> str:
    words: list[str] = []
    while value or not words:
        words.append(f"0x{value & 0xFFFFFFFF:08x}")
        value >>= 32
    return ",".join(reversed(words))


def _infos(element: Et.Element) -> Iterator[str]:
    for info in element.findall("info"):
        name, value = info.get("name", ""), info.get("value", "")
        if name and not _UNPRINTABLE.search(name + value):
            yield f'<info name="{_escape(name)}" value="{_escape(value)}"/>\n'


def _escape(text: str) -> str:
    """As hwloc's own reader wants it, which knows no more than these."""
    for char, name in (
        ("&", "amp"),
        ("<", "lt"),
        (">", "gt"),
        ('"', "quot"),
        ("\n", "#10"),
        ("\r", "#13"),
        ("\t", "#9"),
    ):
        text = text.replace(char, f"&{name};")
    return text
