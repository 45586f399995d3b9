"""The only map from return codes to exceptions.

Everything here takes plain numbers and strings, so that it works without the engine's extension.
Codes are errno numbers, and from 256 on libfabric's own; the sign does not matter.
"""

from __future__ import annotations

import errno
import os
import resource
from typing import TypeVar

from fabricio.errors import (
    BrokenResourceError,
    CompletionError,
    FabricError,
    FabricioError,
    NoProviderError,
    PeerLostError,
    PeerUnreachableError,
    RemoteAccessError,
    ResourceExhaustedError,
    TruncatedError,
    UnsupportedError,
)

_E = TypeVar("_E", bound=FabricioError)

# libfabric's own codes, from rdma/fi_errno.h; the last two exist from 1.20 on.
_OWN: dict[int, tuple[str, str]] = {
    256: ("FI_EOTHER", "Unspecified error"),
    257: ("FI_ETOOSMALL", "Provided buffer is too small"),
    258: ("FI_EOPBADSTATE", "Operation not permitted in current state"),
    259: ("FI_EAVAIL", "Error available"),
    260: ("FI_EBADFLAGS", "Flags not supported"),
    261: ("FI_ENOEQ", "Missing or unavailable event queue"),
    262: ("FI_EDOMAIN", "Invalid resource domain"),
    263: ("FI_ENOCQ", "Missing or unavailable completion queue"),
    264: ("FI_ECRC", "CRC error"),
    265: ("FI_ETRUNC", "Truncation error"),
    266: ("FI_ENOKEY", "Required key not available"),
    267: ("FI_ENOAV", "Missing or unavailable address vector"),
    268: ("FI_EOVERRUN", "Queue has been overrun"),
    269: ("FI_ENORX", "Receiver not ready, no receive buffers available"),
    270: ("FI_ENOMR", "Memory registration limit exceeded"),
    271: ("FI_EFIREWALLADDR", "Host is unreachable, possibly due to a firewall"),
}
_EBADFLAGS, _ETRUNC, _ENOKEY, _EOVERRUN, _ENOMR, _EFIREWALLADDR = 260, 265, 266, 268, 270, 271

# Nobody answers there: before anything was posted, and after.
_UNREACHABLE = (
    errno.ECONNREFUSED,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.ETIMEDOUT,
    _EFIREWALLADDR,
)

# A call failed.
_CALL_CLASSES: dict[int, type[FabricError]] = {
    **dict.fromkeys((errno.ENOMEM, errno.ENOSPC, errno.EMFILE, _ENOMR), ResourceExhaustedError),
    **dict.fromkeys(
        (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOPROTOOPT, _EBADFLAGS), UnsupportedError
    ),
    **dict.fromkeys(_UNREACHABLE, PeerUnreachableError),
}

# A posted operation failed.
_COMPLETION_CLASSES: dict[int, type[CompletionError]] = {
    _ETRUNC: TruncatedError,
    **dict.fromkeys((errno.EACCES, errno.EKEYREJECTED, _ENOKEY), RemoteAccessError),
    **dict.fromkeys(
        (
            errno.ECONNRESET,
            errno.ECONNABORTED,
            errno.ESHUTDOWN,
            errno.ENOTCONN,
            errno.EPIPE,
            *_UNREACHABLE,
        ),
        PeerLostError,
    ),
}

# Calls for which NICs keep memory in place, which is limited.
_LOCKING = ("fi_mr", "fi_cq_open", "fi_endpoint", "fi_enable")

_CURES: dict[int, str] = {
    errno.EADDRINUSE: "choose another source, or stop what uses it",
    errno.EADDRNOTAVAIL: "use a source address that this host has",
    errno.EMFILE: "raise RLIMIT_NOFILE (ulimit -n)",
    errno.ENOSPC: "make room; shm needs it in /dev/shm",
    _ENOMR: "deregister regions, or register fewer and larger ones",
    _EBADFLAGS: "use another provider or a newer libfabric",
    errno.ENOSYS: "use another provider or a newer libfabric",
    errno.EOPNOTSUPP: "use another provider or a newer libfabric",
    errno.EACCES: "have the peer share the region anew, with the access that is needed",
    errno.EKEYREJECTED: "have the peer share the region anew, with the access that is needed",
    _ENOKEY: "have the peer share the region anew, with the access that is needed",
    errno.ECONNREFUSED: "check that the peer runs and that its address is current",
    errno.EHOSTUNREACH: "check the route to the peer, and `source`",
    errno.ENETUNREACH: "check the route to the peer, and `source`",
    errno.ETIMEDOUT: "check that the peer runs and that nothing blocks the way",
    errno.ECONNRESET: "connect again once the peer is back",
    errno.ECONNABORTED: "connect again once the peer is back",
    errno.ESHUTDOWN: "connect again once the peer is back",
    _EFIREWALLADDR: "open the firewall between the two hosts",
    _EOVERRUN: "close this Fabric and open another; fewer operations in flight avoid it",
}


def errno_name(code: int) -> str:
    """Return libfabric's name of a code, such as "FI_ENOMEM"; "FI_<number>" if it has none."""
    number = abs(code)
    if number in _OWN:
        return _OWN[number][0]
    # One number has two names; libfabric uses this one.
    name = "EOPNOTSUPP" if number == errno.EOPNOTSUPP else errno.errorcode.get(number)
    return f"FI_{name}" if name is not None else f"FI_{number}"


def errno_text(code: int) -> str:
    """Return the text of a code, such as "Cannot allocate memory"."""
    number = abs(code)
    return _OWN[number][1] if number in _OWN else os.strerror(number)


def check(rc: int, call: str, *, provider: str = "") -> int:
    """Pass a return code on, or raise.

    Args:
        rc: what the call returned.
        call: its name, for the text.
        provider: name of the provider, if known.

    Returns:
        rc, which is 0 or more.

    Raises:
        FabricError: or the subclass of it, or BrokenResourceError, that belongs to the code.
        NoProviderError: fi_getinfo found nothing.
    """
    if rc >= 0:
        return rc
    raise error_from((rc, 0, call, ""), operation=None, provider=provider)


def error_from(
    failure: tuple[int, int, str, str], *, operation: str | None, provider: str
) -> FabricioError:
    """Make the exception for a failure that the engine reported.

    Args:
        failure: code, provider's code (0: none), call, provider's text ("": none), as in
            `struct fab_error`.
        operation: "write", "read" or "send" where something had been posted; None where a call
            failed.
        provider: name of the provider.

    Returns:
        A CompletionError where something had been posted, else a FabricError; NoProviderError or
        BrokenResourceError where the code says so. To be raised by the caller.
    """
    code, provider_code, call, provider_text = failure
    number = abs(code)
    text = _describe(number, provider_code, call, provider_text, operation, provider)
    if number == errno.ENODATA and call == "fi_getinfo":
        return NoProviderError(f"{text}; run `fabricio info` to see which providers there are")
    if number == _EOVERRUN:
        broken = BrokenResourceError(text)
        broken.__cause__ = _fill(FabricError(text), number, failure, provider)
        return broken
    if operation is None:
        return _fill(_CALL_CLASSES.get(number, FabricError)(text), number, failure, provider)
    error = _COMPLETION_CLASSES.get(number, CompletionError)(text, operation=operation)
    return _fill(error, number, failure, provider)


def _fill(error: _E, number: int, failure: tuple[int, int, str, str], provider: str) -> _E:
    if isinstance(error, (FabricError, CompletionError)):
        error.code = number
        error.name = errno_name(number)
        error.provider = provider
        _, error.provider_code, error.call, error.provider_text = failure
    return error


def _describe(
    number: int,
    provider_code: int,
    call: str,
    provider_text: str,
    operation: str | None,
    provider: str,
) -> str:
    what = f"{operation} failed in {call}" if operation and call else f"{operation or call} failed"
    text = f"{what}: {errno_name(number)} ({number}, {errno_text(number)})"
    if provider:
        text += f" from provider {provider}"
    if provider_text and provider_text != errno_text(number):
        text += f", which says {provider_text!r}"
    if provider_code:
        text += f" ({provider_code})"
    cure = _cure(number, call)
    return f"{text}; {cure}" if cure else text


def _cure(number: int, call: str) -> str:
    if number == errno.ENOMEM and call.startswith(_LOCKING):
        soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        return (
            f"RLIMIT_MEMLOCK is {_limit(soft)} of at most {_limit(hard)}: raise it (ulimit -l) to "
            "more than all that is registered, the buffers of each Fabric included"
        )
    if number == errno.ENOSPC and call == "fi_av_insert":
        return "shm knows 256 peers at most that exist: end some, or open another Fabric"
    return _CURES.get(number, "")


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else f"{value} bytes"
