"""Writes p5.xml and p5_nics.json: an AWS p5.48xlarge as hwloc and libfabric see it, from facts.

Run it anew after a change: python tests/data/make_p5.py

The PCI tree and the EFA NICs are those that lspci and fi_info show on such a host. Not shown there
and taken from AWS' description: two sockets with 48 cores and 96 CPUs and 1 TiB each, the first
four GPUs at the first. Local disks, and bridges without a device, are left out.
"""

import json
from pathlib import Path

XML = Path(__file__).with_name("p5.xml")
NICS = Path(__file__).with_name("p5_nics.json")

# Bus of the root port -> buses of Ethernet adapters; EFA NICs follow at +11, the GPU at +15.
SWITCHES = {
    0x44: range(0x47, 0x4C),
    0x55: range(0x58, 0x5C),
    0x66: range(0x69, 0x6D),
    0x77: range(0x7A, 0x7E),
    0x88: range(0x8C, 0x90),
    0x99: range(0x9C, 0xA0),
    0xAA: range(0xAD, 0xB1),
    0xBB: range(0xBE, 0xC2),
}
CORES = 48
ETHERNET, EFA, GPU, NVSWITCH = (
    "0200 [1d0f:ec20]",
    "0200 [1d0f:efa1]",
    "0302 [10de:2330]",
    "0680 [10de:22a3]",
)
PORT = "0604 [1d0f:0200]"


def bitmap(value: int) -> str:
    words: list[str] = []
    while value or not words:
        words.append(f"0x{value & 0xFFFFFFFF:x}" if value & 0xFFFFFFFF else "")
        value >>= 32
    return ",".join(reversed(words)) or "0x0"


def sets(cpus: int, nodes: int) -> str:
    return (
        f'cpuset="{bitmap(cpus)}" complete_cpuset="{bitmap(cpus)}" '
        f'nodeset="{bitmap(nodes)}" complete_nodeset="{bitmap(nodes)}"'
    )


def pci(address: str, kind: str, speed: float) -> str:
    link = f' pci_link_speed="{speed:.6f}"' if speed else ""
    return f'pci_busid="0000:{address}" pci_type="{kind} [0000:0000] 00"{link}'


def device(address: str, kind: str, speed: float = 0.0) -> str:
    return f'<object type="PCIDev" {pci(address, kind, speed)}/>\n'


def bridge(address: str, buses: str, depth: int, inner: str) -> str:
    return (
        f'<object type="Bridge" bridge_type="1-1" depth="{depth}" bridge_pci="0000:[{buses}]" '
        f"{pci(address, PORT, 0.0)}>\n{inner}</object>\n"
    )


def host(buses: str, inner: str) -> str:
    return (
        f'<object type="Bridge" bridge_type="0-1" depth="0" bridge_pci="0000:[{buses}]">\n'
        f"{inner}</object>\n"
    )


def port(switch: int, slot: int, bus: int, kind: str, speed: float = 0.0) -> str:
    inner = device(f"{bus:02x}:00.0", kind, speed)
    return bridge(f"{switch + 2:02x}:{slot // 8:02x}.{slot % 8}", f"{bus:02x}-{bus:02x}", 3, inner)


def switch(first: int) -> str:
    last = f"{first + 16:02x}"
    ports = "".join(port(first, bus - first - 3, bus, ETHERNET) for bus in SWITCHES[first])
    ports += "".join(port(first, bus - first - 3, bus, EFA, 31.507692) for bus in nic_buses(first))
    ports += port(first, 12, first + 15, GPU, 63.015385)
    inner = bridge(f"{first + 1:02x}:00.0", f"{first + 2:02x}-{last}", 2, ports)
    outer = bridge(f"{first:02x}:00.0", f"{first + 1:02x}-{last}", 1, inner)
    return host(f"{first:02x}-{last}", outer)


def nic_buses(first: int) -> range:
    return range(first + 11, first + 15)


def nvswitches() -> str:
    ports = "".join(port(0xCC, slot, 0xCF + slot, NVSWITCH) for slot in range(4))
    inner = bridge("cd:00.0", "ce-d2", 2, ports)
    return host("cc-d2", bridge("cc:00.0", "cd-d2", 1, inner))


def package(node: int) -> str:
    cpus = 0
    cores = ""
    for core in range(node * CORES, (node + 1) * CORES):
        pair = (core, core + 2 * CORES)
        own = sum(1 << cpu for cpu in pair)
        cpus |= own
        pus = "".join(
            f'<object type="PU" os_index="{cpu}" {sets(1 << cpu, 1 << node)}/>\n' for cpu in pair
        )
        cores += f'<object type="Core" {sets(own, 1 << node)}>\n{pus}</object>\n'
    memory = (
        f'<object type="NUMANode" os_index="{node}" {sets(cpus, 1 << node)} '
        f'local_memory="{1 << 40}"/>\n'
    )
    console = device("00:03.0", "0300 [1d0f:1111]") + device("00:04.0", "0108 [1d0f:8061]")
    devices = host("00-00", console) if node == 0 else ""
    devices += "".join(switch(first) for first in list(SWITCHES)[node * 4 : node * 4 + 4])
    devices += nvswitches() if node == 1 else ""
    return (
        f'<object type="Package" os_index="{node}" {sets(cpus, 1 << node)}>\n'
        f"{memory}{cores}{devices}</object>\n"
    )


def nics() -> str:
    """What fi_info says of the NICs, in the words of fabricio.hardware.Nic."""
    rows = [
        {"domain": f"rdmap{bus}s0-rdm", "pci": f"0000:{bus:02x}:00.0", "bits_per_s": 100 * 10**9}
        for first in SWITCHES
        for bus in nic_buses(first)
    ]
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    return f"[\n{lines}\n]\n"


def main() -> None:
    cpus = (1 << 4 * CORES) - 1
    NICS.write_text(nics(), encoding="utf-8")
    XML.write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
        '<topology version="2.0">\n'
        f'<object type="Machine" os_index="0" {sets(cpus, 3)} allowed_cpuset="{bitmap(cpus)}" '
        f'allowed_nodeset="0x3">\n{package(0)}{package(1)}</object>\n</topology>\n',
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
