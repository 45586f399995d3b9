"""The tree of exceptions: shape, attributes, and that every one can be copied and pickled."""

import copy
import pickle

import pytest

from fabricio import errors
from fabricio.errors import (
    CompletionError,
    FabricError,
    FabricioError,
    OptionsError,
    PeerLostError,
    PeerUnreachableError,
    RegionError,
    RemoteTransferError,
)

TREE = {
    "OptionsError": "FabricioError",
    "NoLibfabricError": "FabricioError",
    "NoProviderError": "FabricioError",
    "DiscoveryError": "FabricioError",
    "AuthenticationError": "FabricioError",
    "RegionError": "FabricioError",
    "FabricError": "FabricioError",
    "ResourceExhaustedError": "FabricError",
    "UnsupportedError": "FabricError",
    "PeerUnreachableError": "FabricError",
    "CompletionError": "FabricioError",
    "TruncatedError": "CompletionError",
    "RemoteAccessError": "CompletionError",
    "PeerLostError": "CompletionError",
    "RemoteTransferError": "CompletionError",
    "ClosedResourceError": "FabricioError",
    "BrokenResourceError": "FabricioError",
    "BusyResourceError": "FabricioError",
    "WouldBlock": "FabricioError",
    "ProtocolError": "FabricioError",
    "LocalProtocolError": "ProtocolError",
    "RemoteProtocolError": "ProtocolError",
}
CLASSES = [value for value in vars(errors).values() if isinstance(value, type)]


def test_tree_is_exactly_as_designed() -> None:
    found = {kind.__name__: kind.__bases__[0].__name__ for kind in CLASSES}
    assert found.pop("FabricioError") == "Exception"
    assert found == TREE


@pytest.mark.parametrize(
    ("kind", "twin"),
    [
        (OptionsError, ValueError),
        (PeerUnreachableError, ConnectionError),
        (PeerLostError, ConnectionError),
    ],
)
def test_builtin_twins(kind: type[FabricioError], twin: type[Exception]) -> None:
    with pytest.raises(twin, match="why"):
        raise kind("why")


@pytest.mark.parametrize("kind", CLASSES)
def test_pickle_and_copy_keep_text_and_attributes(kind: type[FabricioError]) -> None:
    error = kind("what happened; what to do")
    if isinstance(error, (FabricError, CompletionError)):
        error.code = 113
        error.provider_text = "no route"
    if isinstance(error, RemoteTransferError):
        error.transfer = 7
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is kind
        assert str(twin) == "what happened; what to do"
        assert vars(twin) == vars(error)


def test_attributes_have_defaults_that_claim_nothing() -> None:
    call = FabricError("x")
    assert (call.code, call.name, call.call, call.provider) == (0, "", "", "")
    failed = CompletionError("x", operation="write", pages_done=3, bytes_done=192)
    assert (failed.operation, failed.pages_done, failed.bytes_done) == ("write", 3, 192)
    assert failed.quiesced
    assert RegionError("x").position is None
    assert RegionError("x", position=4).position == 4
    assert RemoteTransferError("x").transfer == 0
