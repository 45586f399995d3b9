"""The secret that Fabrics share: which values are good, and reading it for one handshake.

No text made here holds any part of a secret, nor what a callable of the application said.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from fabricio.errors import OptionsError

# Whoever records a handshake can try secrets against it, offline: 128 random bits are out of reach.
MIN_SECRET_BYTES = 16
MAX_SECRET_BYTES = 4096
# Each costs 10 bytes of the first frame.
MAX_SECRET_COUNT = 4

Secrets = bytes | Sequence[bytes]
Secret = Secrets | Callable[[], Secrets]

_CURE = "use bytes, such as those that secrets.token_bytes(32) once gave, the same on all sides"


def check_secret(secret: object) -> None:
    """Check what was given as `secret=`; a callable is not called yet.

    Raises: OptionsError: no secret, or a weak one; the value is not in the text.
    """
    if secret is not None and not callable(secret):
        _checked(secret, "secret= is")


def read_secrets(secret: Secret | None) -> tuple[bytes, ...]:
    """Return the secrets that count now, the current one first; none if there is no secret.

    Args:
        secret: as in `FabricOptions`; a callable is called.

    Raises: OptionsError: the callable raised (its exception is the cause), or what it returned is
        no secret.
    """
    if secret is None:
        return ()
    if not callable(secret):
        return _checked(secret, "secret= is")
    try:
        secrets = secret()
        if isinstance(secrets, Sequence) and not isinstance(secrets, (bytes, str)):
            secrets = tuple(secrets)  # a sequence of the application's may raise, too
    except Exception as error:
        raise OptionsError(
            f"the callable given as secret= raised {type(error).__name__}: have it return the "
            "current secret, or a sequence of the current and the previous one"
        ) from error
    if inspect.iscoroutine(secrets):
        secrets.close()  # else it complains that nobody awaited it
    return _checked(secrets, "the callable given as secret= returned")


def _checked(secrets: object, whose: str) -> tuple[bytes, ...]:
    """Return them as a tuple; the messages tell types and lengths, no more."""
    if isinstance(secrets, bytes):
        secrets = (secrets,)
    if isinstance(secrets, (str, bytearray, memoryview)) or not isinstance(secrets, Sequence):
        raise OptionsError(f"{whose} a {type(secrets).__name__}: {_CURE}")
    if not 1 <= len(secrets) <= MAX_SECRET_COUNT:
        raise OptionsError(
            f"{whose} a sequence of {len(secrets)} secrets: use 1 to {MAX_SECRET_COUNT}, such as "
            "the current and the previous one"
        )
    for one in secrets:
        if not isinstance(one, bytes):
            raise OptionsError(f"{whose} a sequence with a {type(one).__name__}: {_CURE}")
        if len(one) < MIN_SECRET_BYTES:
            raise OptionsError(
                f"{whose} a secret of {len(one)} bytes, and the least is {MIN_SECRET_BYTES}, since "
                "whoever records a handshake can try out short ones: " + _CURE
            )
        if len(one) > MAX_SECRET_BYTES:
            raise OptionsError(
                f"{whose} a secret of {len(one)} bytes, and the most is {MAX_SECRET_BYTES}: {_CURE}"
            )
    return tuple(secrets)
