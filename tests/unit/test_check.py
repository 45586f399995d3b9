"""Return codes -> exceptions, without the engine's extension."""

import errno
import resource

import pytest

from fabricio._ffi.check import check, errno_name, errno_text, error_from
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

ENOMR, ETRUNC, ENOKEY, EOVERRUN, EBADFLAGS = 270, 265, 266, 268, 260


def test_check_passes_what_is_not_negative() -> None:
    assert check(0, "fi_send") == 0
    assert check(17, "fi_cq_read") == 17


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        (ResourceExhaustedError, (errno.ENOMEM, errno.ENOSPC, ENOMR, errno.EMFILE)),
        (UnsupportedError, (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOPROTOOPT, EBADFLAGS)),
        (
            PeerUnreachableError,
            (
                errno.ECONNREFUSED,
                errno.EHOSTUNREACH,
                errno.ENETUNREACH,
                errno.EHOSTDOWN,
                errno.ETIMEDOUT,
            ),
        ),
        (FabricError, (errno.EINVAL, errno.EIO, 256, 9999)),
    ],
)
def test_failed_call(kind: type[FabricError], codes: tuple[int, ...]) -> None:
    for code in codes:
        with pytest.raises(FabricError) as caught:
            check(-code, "fi_mr_reg", provider="tcp")
        error = caught.value
        assert type(error) is kind
        assert (error.code, error.call, error.provider) == (code, "fi_mr_reg", "tcp")
        assert error.name == errno_name(code)
        for part in ("fi_mr_reg", error.name, str(code), "provider tcp"):
            assert part in str(error)


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        (TruncatedError, (ETRUNC,)),
        (RemoteAccessError, (errno.EACCES, errno.EKEYREJECTED, ENOKEY)),
        (
            PeerLostError,
            (errno.ECONNRESET, errno.ECONNABORTED, errno.ESHUTDOWN, errno.ECONNREFUSED),
        ),
        (CompletionError, (errno.EIO, errno.ECANCELED, 256)),
    ],
)
def test_failed_completion(kind: type[CompletionError], codes: tuple[int, ...]) -> None:
    for code in codes:
        error = error_from((-code, -5, "fi_cq_readerr", "qp died"), operation="write", provider="x")
        assert type(error) is kind
        assert isinstance(error, CompletionError)
        assert (error.operation, error.code, error.provider_code) == ("write", code, -5)
        assert (error.name, error.provider_text) == (errno_name(code), "qp died")
        for part in ("write failed in fi_cq_readerr", error.name, "provider x", "qp died", "-5"):
            assert part in str(error)


@pytest.mark.parametrize("operation", [None, "read"])
def test_overrun_breaks_the_resource_and_keeps_its_cause(operation: str | None) -> None:
    error = error_from((-EOVERRUN, 0, "fi_cq_read", ""), operation=operation, provider="tcp")
    assert isinstance(error, BrokenResourceError)
    assert isinstance(error.__cause__, FabricError)
    assert error.__cause__.code == EOVERRUN


def test_no_provider() -> None:
    with pytest.raises(NoProviderError, match="fabricio info"):
        check(-errno.ENODATA, "fi_getinfo")
    with pytest.raises(FabricError):
        check(-errno.ENODATA, "fi_eq_read")


@pytest.mark.parametrize("call", ["fi_mr_regattr", "fi_mr_reg", "fi_cq_open", "fi_enable"])
def test_who_may_not_lock_memory_is_told_the_limit(call: str) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    shown = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft} bytes"
    with pytest.raises(ResourceExhaustedError, match=f"RLIMIT_MEMLOCK is {shown}"):
        check(-errno.ENOMEM, call)


def test_text_of_the_provider_is_not_repeated() -> None:
    same = errno_text(errno.EIO)
    error = error_from((-errno.EIO, 0, "fi_cq_readerr", same), operation="read", provider="")
    assert str(error).count(same) == 1


def test_names_are_libfabrics() -> None:
    assert errno_name(-errno.ENOMEM) == "FI_ENOMEM"
    assert errno_name(errno.EOPNOTSUPP) == "FI_EOPNOTSUPP"
    assert errno_name(errno.EAGAIN) == "FI_EAGAIN"
    assert errno_name(-ENOMR) == "FI_ENOMR"
    assert errno_name(4000) == "FI_4000"


def test_every_code_gives_an_exception_with_a_text() -> None:
    for code in range(1, 300):
        for operation in (None, "send"):
            error = error_from((-code, 0, "call", ""), operation=operation, provider="")
            assert isinstance(error, FabricioError)
            assert errno_name(code) in str(error)


def test_an_address_vector_that_is_full_has_another_cure_than_a_full_folder() -> None:
    with pytest.raises(ResourceExhaustedError, match="256 peers at most that exist"):
        check(-errno.ENOSPC, "fi_av_insert", provider="shm")
    with pytest.raises(ResourceExhaustedError, match="/dev/shm"):
        check(-errno.ENOSPC, "fi_enable", provider="shm")
