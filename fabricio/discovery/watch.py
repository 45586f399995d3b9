"""Lists and watch events of the Kubernetes API, as bytes. No I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from fabricio.discovery.slices import MalformedError, Slice

_GONE = 410


class ExpiredError(Exception):
    """The API server does not know the resource version any more: list anew."""


class RefusedError(Exception):
    """The API server answers with an error.

    Attributes:
        code: as in HTTP.
    """

    def __init__(self, code: int, message: str) -> None:
        """Keep both."""
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Listed:
    """All slices at one time, and the resource version to watch from."""

    slices: tuple[Slice, ...]
    version: str


@dataclass(frozen=True, slots=True)
class Watched:
    """One event; a bookmark brings nothing but the resource version."""

    kind: Literal["put", "removed", "bookmark"]
    version: str
    slice: Slice | None = None


_KINDS: dict[str, Literal["put", "removed", "bookmark"]] = {
    "ADDED": "put",
    "MODIFIED": "put",
    "DELETED": "removed",
    "BOOKMARK": "bookmark",
}


def parse_list(body: bytes) -> Listed:
    """Read an EndpointSliceList.

    Raises: MalformedError: it is none.
    """
    table = _load(body)
    items = table.get("items")
    if items is not None and not isinstance(items, list):
        raise MalformedError("items is no list")
    return Listed(tuple(Slice.parse(item) for item in items or ()), _version(table))


def parse_event(line: bytes) -> Watched:
    """Read one line of a watch.

    Raises: ExpiredError: list anew; RefusedError: another error event; MalformedError: neither an
        event nor an error.
    """
    table = _load(line)
    kind, item = table.get("type"), table.get("object")
    if kind == "ERROR":
        raise refusal(item)
    if table.get("kind") == "Status":
        raise refusal(table)
    if not isinstance(item, dict) or not isinstance(kind, str) or kind not in _KINDS:
        raise MalformedError(f"an event of type {kind!r:.50}")
    if _KINDS[kind] == "bookmark":
        return Watched("bookmark", _version(item))
    return Watched(_KINDS[kind], _version(item), Slice.parse(item))


def refused(code: int, body: bytes) -> ExpiredError | RefusedError:
    """Return what an answer with an HTTP status other than 200 means."""
    try:
        status: dict[str, Any] = _load(body)
    except MalformedError:
        status = {"message": body[:200].decode("utf-8", "replace")}
    return refusal({**status, "code": code})


def refusal(status: object) -> ExpiredError | RefusedError:
    """Return what a Status object means."""
    table = status if isinstance(status, dict) else {}
    code, reason, message = (table.get(key) for key in ("code", "reason", "message"))
    text = f"{code} {reason or ''}: {message or 'no more is said'}"[:300]
    if code == _GONE or reason in ("Expired", "Gone"):
        return ExpiredError(text)
    return RefusedError(code if isinstance(code, int) else 0, text)


def _load(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"what is no JSON: {body[:50]!r}") from error
    if not isinstance(value, dict):
        raise MalformedError(f"JSON that is no object: {body[:50]!r}")
    return value


def _version(table: dict[str, Any]) -> str:
    metadata = table.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if not isinstance(version, str) or not version:
        raise MalformedError("an object without metadata.resourceVersion")
    return version
