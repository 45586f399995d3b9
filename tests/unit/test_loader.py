import ctypes
import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from fabricio._ffi import loader
from fabricio.errors import NoLibfabricError

if TYPE_CHECKING:
    from collections.abc import Callable

SONAME = "libfabric.so.1"
MAPS_LINE = "7f0000000000-7f0000001000 r-xp 00000000 fe:00 42                 {}\n"


class Machine:
    """A machine to search: every place is empty until a test puts a library there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.maps = root / "maps"
        self.maps.write_text(MAPS_LINE.format("/usr/lib/libc.so.6") + "7f00-7f01 rw-p 0 00:00 0\n")
        self.efa = root / "efa"
        self.system: Path | None = None
        self.wheel_files: list[Path] | None = None
        self.broken: set[str] = set()
        self.version = (2, 5)
        self.opened: list[str] = []

    def library(self, place: str) -> Path:
        path = self.root / place / SONAME
        path.parent.mkdir(parents=True)
        path.touch()
        return path

    def map(self, path: Path | str) -> None:
        self.maps.write_text(self.maps.read_text() + MAPS_LINE.format(path))

    def open(self, name: str, mode: int) -> SimpleNamespace:
        assert mode == os.RTLD_GLOBAL
        self.opened.append(name)
        if name in self.broken or (name == SONAME and not self._resolve()):
            raise OSError(f"{name}: cannot open shared object file")
        if name == SONAME and self.system and "libfabric" not in self.maps.read_text():
            self.map(self.system)
        return SimpleNamespace(fi_version=Version(self.version))

    def _resolve(self) -> bool:
        return self.system is not None or "libfabric" in self.maps.read_text()

    def distribution(self, name: str) -> SimpleNamespace:
        if name != "mpich" or self.wheel_files is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return SimpleNamespace(files=self.wheel_files, locate_file=lambda path: path)


class Version:
    """What ctypes gives for fi_version."""

    def __init__(self, version: tuple[int, int]) -> None:
        self.number = version[0] << 16 | version[1]
        self.restype: object = None

    def __call__(self) -> int:
        return self.number


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    monkeypatch.delenv("FABRICIO_LIBFABRIC", raising=False)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    os.environ.pop("FI_PROVIDER_PATH", None)
    monkeypatch.setattr(loader, "_MAPS", machine.maps)
    monkeypatch.setattr(loader, "_EFA_ROOT", machine.efa)
    monkeypatch.setattr(ctypes, "CDLL", machine.open)
    monkeypatch.setattr(importlib.metadata, "distribution", machine.distribution)
    return machine


def fill(machine: Machine) -> dict[str, Path]:
    """Put a library in every place that is searched on disk."""
    places = {"environment": "named", "efa": "efa/lib64", "wheel": "venv", "system": "usr"}
    paths = {origin: machine.library(place) for origin, place in places.items()}
    machine.wheel_files = [machine.root / "venv/libmpi.so", paths["wheel"]]
    machine.system = paths["system"]
    return paths


def take_away_environment(machine: Machine) -> None:
    os.environ.pop("FABRICIO_LIBFABRIC")


def take_away_efa(machine: Machine) -> None:
    (machine.efa / "lib64" / SONAME).unlink()


def take_away_wheel(machine: Machine) -> None:
    machine.wheel_files = None


def test_order_of_the_search(machine: Machine) -> None:
    paths = fill(machine)
    os.environ["FABRICIO_LIBFABRIC"] = str(paths["environment"])
    steps: list[tuple[str, Callable[[Machine], None] | None]] = [
        ("environment", take_away_environment),
        ("efa", take_away_efa),
        ("wheel", take_away_wheel),
        ("system", None),
    ]
    for origin, take_away in steps:
        library = loader.find_libfabric()
        assert (library.origin, library.path) == (origin, paths[origin])
        assert library.version == (2, 5)
        assert library.passed_over == ()
        if take_away:
            take_away(machine)


def test_reasons_say_which_step_it_was(machine: Machine) -> None:
    fill(machine)
    assert "EFA" in loader.find_libfabric().reason


def test_mapped_library_wins_over_all_but_the_environment(machine: Machine) -> None:
    paths = fill(machine)
    machine.map("/opt/other/libfabric.so.1.29.3")
    library = loader.find_libfabric()
    assert (library.origin, library.path) == ("mapped", Path("/opt/other/libfabric.so.1.29.3"))
    assert machine.opened == [SONAME]
    assert paths["efa"] != library.path


def test_mapped_library_whose_file_is_gone(machine: Machine) -> None:
    machine.map("/opt/other dir/libfabric.so.1 (deleted)")
    assert loader.find_libfabric().path == Path("/opt/other dir/libfabric.so.1")


def test_mapped_libraries_of_similar_name_do_not_count(machine: Machine) -> None:
    paths = fill(machine)
    machine.map("/opt/other/libfabric.so")
    machine.map("/opt/other/libfabric-efa.so.1")
    assert loader.find_libfabric().path == paths["efa"]


def test_environment_may_name_the_mapped_one(machine: Machine) -> None:
    path = machine.library("named")
    machine.map(path)
    os.environ["FABRICIO_LIBFABRIC"] = str(path)
    assert loader.find_libfabric().origin == "environment"


def test_environment_against_the_mapped_one_is_refused(machine: Machine) -> None:
    os.environ["FABRICIO_LIBFABRIC"] = str(machine.library("named"))
    machine.map("/opt/other/libfabric.so.1")
    with pytest.raises(NoLibfabricError, match=r"named/lib.* has /opt/other/.* Unset FABRICIO"):
        loader.find_libfabric()
    assert machine.opened == []


def test_environment_that_cannot_be_loaded_is_an_error_not_a_fallback(machine: Machine) -> None:
    fill(machine)
    os.environ["FABRICIO_LIBFABRIC"] = "/nowhere/libfabric.so.1"
    machine.broken.add("/nowhere/libfabric.so.1")
    with pytest.raises(NoLibfabricError, match=r"/nowhere/.*Correct or unset") as caught:
        loader.find_libfabric()
    assert isinstance(caught.value.__cause__, OSError)


def test_empty_environment_variable_is_as_unset(machine: Machine) -> None:
    fill(machine)
    os.environ["FABRICIO_LIBFABRIC"] = ""
    assert loader.find_libfabric().origin == "efa"


def test_lib64_comes_before_lib(machine: Machine) -> None:
    machine.library("efa/lib")
    path = machine.library("efa/lib64")
    assert loader.find_libfabric().path == path


def test_library_that_cannot_be_loaded_is_passed_over_and_told(machine: Machine) -> None:
    paths = fill(machine)
    machine.broken.add(str(paths["efa"]))
    library = loader.find_libfabric()
    assert library.origin == "wheel"
    assert len(library.passed_over) == 1
    assert str(paths["efa"]) in library.passed_over[0]
    assert "cannot open" in library.passed_over[0]


def test_wheel_whose_file_is_missing(machine: Machine) -> None:
    fill(machine)
    take_away_efa(machine)
    (machine.root / "venv" / SONAME).unlink()
    assert loader.find_libfabric().origin == "system"


def test_plugins_of_the_wheel_are_offered(machine: Machine) -> None:
    path = machine.library("venv")
    machine.wheel_files = [path]
    loader.find_libfabric()
    assert "FI_PROVIDER_PATH" not in os.environ
    (path.parent / "libfabric").mkdir()
    loader.find_libfabric()
    assert os.environ["FI_PROVIDER_PATH"] == str(path.parent / "libfabric")
    os.environ["FI_PROVIDER_PATH"] = "/mine"
    loader.find_libfabric()
    assert os.environ["FI_PROVIDER_PATH"] == "/mine"


def test_plugins_are_not_offered_to_another_library(machine: Machine) -> None:
    paths = fill(machine)
    (paths["wheel"].parent / "libfabric").mkdir()
    assert loader.find_libfabric().origin == "efa"
    assert "FI_PROVIDER_PATH" not in os.environ


def test_too_old(machine: Machine) -> None:
    machine.system = machine.library("usr")
    machine.version = (1, 11)
    with pytest.raises(NoLibfabricError, match=r"usr/.* is libfabric 1\.11 .*1\.17 or later"):
        loader.find_libfabric()


def test_none_says_where_it_was_sought_and_what_to_install(machine: Machine) -> None:
    with pytest.raises(NoLibfabricError) as caught:
        loader.find_libfabric()
    text = str(caught.value)
    for part in (
        "FABRICIO_LIBFABRIC",
        str(machine.efa),
        "mpich",
        "pip install 'fabricio-rdma[libfabric]'",
        "apt-get install libfabric1",
        "cannot open shared object file",
    ):
        assert part in text


def test_load_searches_again_after_a_failure(machine: Machine) -> None:
    loader.load.cache_clear()
    try:
        with pytest.raises(NoLibfabricError):
            loader.load()
        machine.system = machine.library("usr")
        first = loader.load()
        assert loader.load() is first
    finally:
        loader.load.cache_clear()


def test_import_loads_neither_libfabric_nor_the_extension() -> None:
    code = (
        "import sys, fabricio, fabricio._ffi\n"
        "assert 'fabricio._ffi._native' not in sys.modules\n"
        "assert 'libfabric' not in open('/proc/self/maps').read()\n"
    )
    environment = {**os.environ, "FABRICIO_LIBFABRIC": "/nowhere/libfabric.so.1"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_extension_uses_the_library_that_was_loaded() -> None:
    code = (
        "from fabricio._ffi import native\n"
        "from fabricio._ffi.loader import load\n"
        "ffi, lib = native()\n"
        "number = lib.fab_libfabric_version()\n"
        "assert load().version == (number >> 16, number & 0xFFFF), load()\n"
        "maps = [line.split()[-1] for line in open('/proc/self/maps') if 'libfabric.so' in line]\n"
        "assert set(maps) == {str(load().path)}, maps\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
