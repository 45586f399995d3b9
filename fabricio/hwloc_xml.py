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
# What each type must have beside its sets; hwloc's order from the outside in.
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
_RANKS = {"Machine": 0, "Group": 1, "Package": 2, "Die": 3, "Core": 4, "PU": 5}
# Passed through: their children count as their parent's.
_TRANSPARENT = re.compile("(L[1-5]i?|Mem)Cache|Group")
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
        text = self._object(machine, "Machine", sets, sets, 0, allowed)
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
        depth: int,
        extra: dict[str, int] | None = None,
    ) -> str:
        """Write one object and what is in it; `outer` are the sets of what it is in."""
        self._count += 1
        if depth > _MAX_DEPTH or self._count > _MAX_OBJECTS:
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
        attributes["gp_index"] = str(self._count)
        body = "".join(_infos(element)) + "".join(self._children(element, kind, sets, depth))
        head = "".join(f' {name}="{_escape(value)}"' for name, value in attributes.items())
        return f"<object{head}>\n{body}</object>\n" if body else f"<object{head}/>\n"

    def _children(
        self, element: Et.Element, kind: str, sets: dict[str, int], depth: int
    ) -> Iterator[str]:
        """Write what is in an object: normal objects, then memory, then I/O, as hwloc does."""
        order: tuple[list[str], list[str], list[str]] = ([], [], [])
        cpus_seen = 0
        for child in _unwrapped(element, depth):
            inner = child.get("type", "")
            if inner in _DROPPED:
                continue
            if inner not in _NEEDS:
                raise OptionsError(f"it holds an object of type {inner!r}, which is unknown")
            _check_nesting(kind, inner)
            if inner in ("Bridge", "PCIDev"):
                order[2].append(self._object(child, inner, sets, sets, depth + 1))
                continue
            own = _sets(inner, child)
            if inner != "NUMANode":
                if own["complete_cpuset"] & cpus_seen:
                    raise OptionsError(f"a CPU is in two objects of one {kind}")
                cpus_seen |= own["complete_cpuset"]
            order[inner == "NUMANode"].append(self._object(child, inner, own, sets, depth + 1))
        for texts in order:
            yield from texts

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


def _unwrapped(element: Et.Element, depth: int) -> Iterator[Et.Element]:
    """Objects in an object; of caches and groups what is in them."""
    for child in element.findall("object"):
        if _TRANSPARENT.fullmatch(child.get("type", "")):
            if depth > _MAX_DEPTH:
                raise OptionsError("it holds deeper objects than any machine")
            yield from _unwrapped(child, depth + 1)
        else:
            yield child


def _check_nesting(outer: str, inner: str) -> None:
    if inner in ("Bridge", "PCIDev"):
        fits = outer in _RANKS or outer == "Bridge"
    elif inner == "NUMANode":
        fits = outer in _RANKS and outer != "PU"
    else:
        fits = outer in _RANKS and _RANKS[outer] < _RANKS[inner]
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


def _hex(value: int) -> str:
    words = []
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
