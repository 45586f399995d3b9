"""The plain C baselines of `baseline/`: built at first use, run on the libfabric fabricio uses."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.provider import source_of
from fabricio._ffi.loader import load

if TYPE_CHECKING:
    from benchmarks.driver import Figures

SOURCES = Path(__file__).parent / "baseline"
BUILD = Path(__file__).parent.parent / "build" / "benchmarks"

# Far above any run; a run that takes as long has lost its other process.
TIMEOUT_S = 60.0


@cache
def build(name: str) -> Path:
    """Compile one baseline, unless it is newer than all its sources.

    Args:
        name: "pages" or "messages".

    Returns:
        The program.

    Raises:
        subprocess.CalledProcessError: the compiler or pkg-config failed; they said why.
        FileNotFoundError: one of them is not installed.
    """
    program = BUILD / name
    sources = [SOURCES / f"{name}.c", SOURCES / "fabric_pair.c", SOURCES / "fabric_pair.h"]
    if program.exists() and program.stat().st_mtime > max(s.stat().st_mtime for s in sources):
        return program
    BUILD.mkdir(parents=True, exist_ok=True)
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "libfabric"], check=True, stdout=subprocess.PIPE
    ).stdout.decode()
    compiler = shlex.split(os.environ.get("CC", "cc"))
    units = [str(source) for source in sources if source.suffix == ".c"]
    subprocess.run(
        [*compiler, "-std=c11", "-O2", "-Wall", *units, *shlex.split(flags), "-o", str(program)],
        check=True,
    )
    return program


def run(name: str, provider: str, **parameters: int) -> Figures:
    """Run one baseline once.

    Args:
        name: "pages" or "messages".
        provider: libfabric provider.
        parameters: options of the program, with underscores: page_bytes=65536.

    Returns:
        The numbers of the line that it prints.

    Raises:
        subprocess.CalledProcessError: it failed and said why on standard error.
        subprocess.TimeoutExpired: it did not end.
    """
    command = [str(build(name)), "--provider", provider]
    source = source_of(provider)
    if source is not None:
        command += ["--source", source]
    for option, value in parameters.items():
        command += [f"--{option.replace('_', '-')}", str(value)]
    library = load()  # also names the directory of its plugins in our environment
    result = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        timeout=TIMEOUT_S,
        env=os.environ | {"LD_PRELOAD": str(library.path)},
    )
    line: dict[str, float | str] = json.loads(result.stdout)
    return {key: value for key, value in line.items() if not isinstance(value, str)}
