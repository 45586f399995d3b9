"""Every example runs, and the demo finds what is wrong."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
DEMO = EXAMPLES / "random_fill.py"
SIMULATED = EXAMPLES / "simulated_nics.py"  # which has a provider of its own

QUICK = {DEMO.name: ["--pages", "200", "--page-bytes", "4096", "--repeat", "3"]}


def run(example: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(example), *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "name", sorted(path.name for path in EXAMPLES.glob("*.py") if path != SIMULATED)
)
def test_it_runs(name: str, provider: str) -> None:
    done = run(EXAMPLES / name, "--provider", provider, *QUICK.get(name, []))
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_simulated_nics() -> None:
    done = run(SIMULATED)
    assert done.returncode == 0, done.stderr
    assert "FI_EIO" in done.stdout
    assert "1048576 bytes written" in done.stdout


@pytest.mark.parametrize(
    ("pages", "page_bytes", "read"), [(1, 1, False), (300, 1000, False), (9, 200_001, True)]
)
def test_the_demo(provider: str, pages: int, page_bytes: int, read: bool) -> None:
    done = run(
        DEMO,
        *("--provider", provider, "--pages", str(pages), "--page-bytes", str(page_bytes)),
        *("--repeat", "3", "--seed", "5", *(["--read"] if read else [])),
    )
    assert done.returncode == 0, done.stderr
    count = 3 * ((pages + 1) // 2)
    assert re.fullmatch(
        rf"{count:,} pages of {page_bytes:,} bytes {'read' if read else 'written'} over {provider} "
        r"in [\d.]+ s: [\d.]+ GB/s  [\d,]+ pages/s; every byte is right\n",
        done.stdout,
    )


@pytest.mark.parametrize("read", [False, True], ids=["write", "read"])
def test_the_demo_notices_one_wrong_byte(provider: str, read: bool) -> None:
    arguments = ["--pages", "50", "--page-bytes", "4096", "--repeat", "1", "--corrupt"]
    done = run(DEMO, "--provider", provider, *arguments, *(["--read"] if read else []))
    assert done.returncode == 1
    assert "WRONG: 1 bytes" in done.stdout


def test_the_demo_by_hand(provider: str) -> None:
    source = ["--source", "127.0.0.1"] if provider == "tcp" else []
    options = ["--provider", provider, *source]
    command = [sys.executable, str(DEMO), "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().removeprefix("listening on ").strip()
        done = run(DEMO, address, *options, *QUICK[DEMO.name])
        assert done.returncode == 0, done.stderr
        assert "every byte is right" in done.stdout
    assert server.returncode == 0


def test_the_demo_is_interrupted(provider: str) -> None:
    shown, terminal = os.openpty()
    with subprocess.Popen(
        [sys.executable, str(DEMO), "--provider", provider, "--repeat", "1000000", "--pages", "50"],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm"},
        # Whoever runs the tests in the background may have it ignored.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    ) as demo:
        os.close(terminal)
        text = b""
        while b"GB/s" not in text:  # the bar lives, so transfers run
            text += os.read(shown, 4096)
        server = Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split()
        demo.send_signal(signal.SIGINT)
        try:
            while chunk := os.read(shown, 4096):
                text += chunk
        except OSError:
            pass  # nobody has the terminal any more: both processes have ended
        finally:
            os.close(shown)
        assert demo.wait() == 130
        assert b"Traceback" not in text
        for name in os.listdir("/dev/shm"):
            assert not {str(demo.pid), *server} & set(re.findall(r"\d+", name))
        assert demo.stdout is not None
        assert demo.stdout.read() == b""


def test_the_demo_cannot_be_done() -> None:
    done = run(DEMO, "--provider", "nosuch")
    assert (done.returncode, done.stdout) == (2, "")
    assert "provider 'nosuch' is not usable here" in done.stderr
    assert "Traceback" not in done.stderr
