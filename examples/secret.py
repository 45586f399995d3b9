"""Two Fabrics that share a secret, which is changed while both are open; a stranger is refused."""

import argparse
import asyncio
import secrets
from pathlib import Path
from tempfile import TemporaryDirectory

from fabricio import AuthenticationError, Fabric, FabricioError, Listener


class SecretFolder:
    """Secrets in files of a folder, as a cluster mounts them: the current and the previous one."""

    def __init__(self, folder: Path) -> None:
        """Read from this folder."""
        self._folder = folder

    def __call__(self) -> list[bytes]:
        """Read anew for each connection, so that whoever changes the files is heard at once."""
        files = (self._folder / "current", self._folder / "previous")
        return [file.read_bytes() for file in files if file.exists()]

    def change(self) -> None:
        """Make a new secret the current one; the previous one stays good."""
        current = self._folder / "current"
        if current.exists():
            current.replace(self._folder / "previous")
        current.write_bytes(secrets.token_bytes(32))

    def retire(self) -> None:
        """Let the previous one be good no longer."""
        (self._folder / "previous").unlink()


def say(error: FabricioError) -> None:
    """Tell of a peer that was refused; the listener goes on."""
    print("server: refused a peer:", type(error).__name__)


async def meet(client: Fabric, server: Fabric, listener: Listener) -> None:
    """Connect, and part."""
    async with await client.connect(server.address), await listener.accept():
        print("client: connected")


async def main(folder: Path, provider: str | None = None) -> None:
    """Connect before, while and after the secret is changed, and without it."""
    secret = SecretFolder(folder)
    secret.change()
    async with (
        Fabric(provider=provider, secret=secret) as server,
        Fabric(provider=provider, secret=secret) as client,
        Fabric(provider=provider) as stranger,
        server.listen(on_refused=say) as listener,
    ):
        await meet(client, server, listener)
        secret.change()
        await meet(client, server, listener)
        secret.retire()
        await meet(client, server, listener)
        try:
            await stranger.connect(server.address)
        except AuthenticationError as error:
            print("stranger:", error)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--provider", help="tcp, shm, efa, verbs; default: the best there is")
    with TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory), parser.parse_args().provider))
