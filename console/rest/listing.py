"""Lists in the form of Confluent's REST API: kind, metadata with links, data; and pages of them. Pure.

The rule: a page token is the sort key of the last item that was sent, so a list may change between two pages, and no
item that stays in it is left out or sent twice. Links are paths, so that no Host header is repeated in an answer.
"""

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from ..http.parameters import segment_of
from ..http.problems import BAD_PARAMETER, Problem

T = TypeVar("T")
Key = tuple[Any, ...]

KEY_CHARS = 300_000  # in the sort keys of one page


def path_of(*parts: Any) -> str:
    """Return the path /v3/clusters/… for these names, each encoded."""
    return "/v3/clusters/" + "/".join(quote(segment_of(str(each)), safe=":") for each in parts)


def related(*parts: Any) -> dict[str, str]:
    """Return a link to another resource."""
    return {"related": path_of(*parts)}


def item(kind: str, parts: Iterable[Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return one item in Confluent's shape: kind, metadata and these fields. parts: the names in its path, beginning
    with the cluster's id.
    """
    names = list(parts)
    resource = "/".join(f"{names[i].rstrip('s')}={names[i + 1]}" for i in range(1, len(names) - 1, 2))
    crn = f"crn:///kafka={names[0]}" + (f"/{resource}" if resource else "")
    return {"kind": kind, "metadata": {"self": path_of(*names), "resource_name": crn}, "cluster_id": names[0], **fields}


def page(
    kind: str,
    link: tuple[str, Mapping[str, str]],
    query: Mapping[str, Any],
    items: Iterable[T],
    key: Callable[[T], Key],
    row: Callable[[T], Mapping[str, Any]],
) -> dict[str, Any]:
    """Return one page of a list. link: path and query of the request. key: by which the list is sorted. row: makes the
    JSON of an item, called only for the items of the page.

    Raises Problem for a page token that is not of this list.
    """
    path, given = link
    ordered = sorted(items, key=key)
    total = len(ordered)
    if query["page_token"] is not None:
        after = _read_token(query["page_token"])
        try:
            ordered = [each for each in ordered if key(each) > after]
        except TypeError:
            raise _bad_token() from None
    shown = _take_fitting(ordered[: query["page_size"]], key)
    more = len(ordered) > len(shown)
    next_link = f"{path}?{urlencode({**given, 'page_token': _token(key(shown[-1]))})}" if more else None
    itself = f"{path}?{urlencode(given)}" if given else path
    return {
        "kind": kind,
        "metadata": {"self": itself, "next": next_link},
        "data": [row(each) for each in shown],
        "total": total,
    }


def _take_fitting(items: list[T], key: Callable[[T], Key]) -> list[T]:
    """Return the first items whose names have at most KEY_CHARS characters together, but at least one item. A name
    may have 32,767 characters.
    """
    chars = 0
    for count, each in enumerate(items):
        chars += sum(len(part) for part in key(each) if isinstance(part, str))
        if chars > KEY_CHARS and count:
            return items[:count]
    return items


def whole(kind: str, path: str, rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return all rows as a list in one page, for lists that are always short."""
    data = list(rows)
    return {"kind": kind, "metadata": {"self": path, "next": None}, "data": data, "total": len(data)}


def matching(items: Iterable[T], contains: str | None, name: Callable[[T], str]) -> list[T]:
    """Return the items whose name contains this text, in upper or lower case. All items if the text is empty or
    None.
    """
    if not contains:
        return list(items)
    wanted = contains.casefold()
    return [each for each in items if wanted in name(each).casefold()]


def _token(key: Key) -> str:
    """Return the page token that continues a list after this key."""
    return base64.urlsafe_b64encode(json.dumps(key, ensure_ascii=False).encode()).decode().rstrip("=")


def _read_token(text: str) -> Key:
    """Return the key in a page token. Raises Problem if it is not valid."""
    try:
        found = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        raise _bad_token() from None
    if not isinstance(found, list) or not all(isinstance(each, str | int | float) for each in found):
        raise _bad_token()
    return tuple(found)


def _bad_token() -> Problem:
    """Return the problem for a page token that is not valid."""
    return Problem(BAD_PARAMETER, "page_token is not one of this list", "take it from metadata.next")
