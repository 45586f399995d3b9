import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from fabricio._ffi.loader import Library
from fabricio.cli import info as module
from fabricio.cli import main
from fabricio.cli.app import app
from fabricio.errors import NoLibfabricError


@dataclass
class FakeNative:
    """The part of ffi and lib that lists providers; strings are bytes, structs are namespaces."""

    available: list[SimpleNamespace]
    calls: list[tuple[object, object, int]] = field(default_factory=list)
    NULL: object = None

    def new(self, cdecl: str, init: int) -> list[int] | list[SimpleNamespace]:
        return [init] if cdecl == "uint32_t *" else [SimpleNamespace() for _ in range(init)]

    def string(self, text: bytes) -> bytes:
        return text

    def fab_info_list(
        self,
        provider: object,
        source: object,
        rows: list[SimpleNamespace],
        capacity: int,
        count: list[int],
    ) -> int:
        self.calls.append((provider, source, capacity))
        rows[: len(self.available)] = self.available[:capacity]
        count[0] = len(self.available)
        return 0


def provider(name: bytes, *, refusal: bytes = b"") -> SimpleNamespace:
    return SimpleNamespace(
        provider=name,
        domain=b"lo",
        source=b"127.0.0.1",
        immediate_bytes=8,
        tx_size=256,
        rma_iov_limit=4,
        usable=0 if refusal else 1,
        refusal=refusal,
    )


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> FakeNative:
    native = FakeNative([provider(b"tcp"), provider(b"udp", refusal=b"no RMA [yet]")])
    library = Library(Path("/opt/x/libfabric.so.1"), "wheel", (2, 5), ("/old: broken",))
    monkeypatch.setattr(module, "native", lambda: (native, native))
    monkeypatch.setattr(module, "load", lambda: library)
    return native


def test_shows_library_reason_and_providers(native: FakeNative) -> None:
    result = CliRunner().invoke(app, ["info"])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "libfabric 2.5: /opt/x/libfabric.so.1"
    assert "mpich" in lines[1]
    assert lines[2] == "passed over: /old: broken"
    assert lines[4].split() == ["tcp", "lo", "127.0.0.1", "8", "256", "4", "yes"]
    assert lines[5].rstrip().endswith("no: no RMA [yet]")
    assert native.calls == [(None, None, 64)]


def test_filters_reach_libfabric(native: FakeNative) -> None:
    CliRunner().invoke(app, ["info", "--provider", "tcp", "--source", "10.0.0.7"])
    assert native.calls == [(b"tcp", b"10.0.0.7", 64)]


def test_asks_again_with_room_for_all(native: FakeNative) -> None:
    native.available = [provider(b"efa%d" % i) for i in range(100)]
    assert len(module.list_providers(None, None)) == 100
    assert [capacity for *_, capacity in native.calls] == [64, 100]


def test_rows_that_look_the_same_are_shown_once(native: FakeNative) -> None:
    native.available = [provider(b"shm"), provider(b"tcp"), provider(b"shm")]
    assert [row.provider for row in module.list_providers(None, None)] == ["shm", "tcp"]


def test_nothing_found_is_an_error(native: FakeNative) -> None:
    native.available = []
    result = CliRunner().invoke(app, ["info"])
    assert result.exit_code == 1
    assert "No provider" in result.stdout


def test_no_libfabric_is_an_error_on_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> Library:
        raise NoLibfabricError("nowhere [at all]")

    monkeypatch.setattr(module, "load", load)
    result = CliRunner().invoke(app, ["info"])
    assert result.exit_code == 1
    assert result.stderr == "fabricio info: nowhere [at all]\n"
    assert result.stdout == ""


def test_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"pip install 'fabricio-rdma\[cli\]'"):
        main()
