"""A real DNS server, dnsmasq, on a port of its own of 127.0.0.1."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
from typing import TYPE_CHECKING, Self

from fabricio.opening import off_loop

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

DOMAIN = "cluster.test"

_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin"))
_TRIES = 5  # another program may take a port between its choice and its use

Records = dict[str, list[str]]  # name -> addresses


class Dnsmasq:
    """Answers for `cluster.test`; every other name it refuses. A context; stops with its block.

    Attributes:
        port: on 127.0.0.1, UDP and TCP, the same after a new start.
    """

    def __init__(self, directory: Path) -> None:
        """Prepare."""
        self._hosts = directory / "hosts"
        self._config = directory / "dnsmasq.conf"
        self._process: subprocess.Popen[str] | None = None
        self._options: list[str] = []
        self._said = ""
        self.port = 0

    @property
    def nameserver(self) -> str:
        """Address and port."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        """Start, without any record."""
        self._write({})
        for _ in range(_TRIES):
            self.port = _free_port()
            if self._start():
                return self
        raise RuntimeError(f"no port for dnsmasq: {self._said}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop."""
        self._stop()

    async def serve(self, records: Records) -> None:
        """Have other addresses; SIGHUP makes the server read them, and it says when it has."""
        await off_loop(asyncio.get_running_loop(), lambda: self.serve_now(records))

    def serve_now(self, records: Records) -> None:
        """Do the same where no loop runs."""
        self._write(records)
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)
        assert self._has_read()

    async def restart(self, *options: str) -> None:
        """Stop, and start with other options, such as "local-ttl=5"; the addresses stay."""
        self._options = list(options)
        await self.stop()
        assert await off_loop(asyncio.get_running_loop(), self._start), self._said

    async def stop(self) -> None:
        """Stop; nobody answers then."""
        await off_loop(asyncio.get_running_loop(), self._stop)

    def _start(self) -> bool:
        """Start and wait until it has read its records; False: it cannot."""
        lines = [
            f"port={self.port}",
            "listen-address=127.0.0.1",
            "bind-interfaces",
            "no-resolv",
            "no-hosts",
            "pid-file",
            f"addn-hosts={self._hosts}",
            f"local=/{DOMAIN}/",
            *self._options,
        ]
        self._config.write_text("\n".join(lines) + "\n", "utf-8")
        program = shutil.which("dnsmasq", path=_PATH)
        assert program is not None, "no dnsmasq: run scripts/setup-system"
        self._process = subprocess.Popen(
            # In the foreground, with its own user and its log on stderr.
            [program, "--no-daemon", f"--conf-file={self._config}"],
            stderr=subprocess.PIPE,
            text=True,
        )
        if self._has_read():
            return True
        self._stop()
        return False

    def _has_read(self) -> bool:
        """Wait until it has read the addresses; False: it has ended instead."""
        assert self._process is not None
        assert self._process.stderr is not None
        said = []
        for line in self._process.stderr:
            said.append(line)
            if f"read {self._hosts}" in line:
                return True
        self._said = "".join(said)
        return False

    def _stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            with self._process:
                self._process = None

    def _write(self, records: Records) -> None:
        lines = [f"{each} {name}\n" for name, addresses in records.items() for each in addresses]
        self._hosts.write_text("".join(lines), "utf-8")


def _free_port() -> int:
    """Return a port of 127.0.0.1 that is free for UDP and for TCP."""
    while True:
        with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagram:
            stream.bind(("127.0.0.1", 0))
            port: int = stream.getsockname()[1]
            try:
                datagram.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
