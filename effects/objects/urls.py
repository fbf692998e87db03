"""Opens a store of objects by its URL: `file:///path`, `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`.

The rule: a URL has no secrets. Keys, endpoint and region come from where the tools of the provider find them.
"""

import os
from urllib.parse import unquote, urlsplit

from .directory import DirectoryObjects
from .interface import Objects

REMOTE = ("s3", "gs", "az")
SCHEMES = ("file", *REMOTE)
EXAMPLES = "file:///path, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"


class BadUrl(Exception):
    """Raised for a URL that names no store of objects. hint: what it should look like."""

    def __init__(self, cause: str, hint: str) -> None:
        super().__init__(cause)
        self.hint = hint


def is_url(text: str) -> bool:
    """Return whether a text is meant as a URL and not as a path."""
    return "://" in text


def open_objects(url: str) -> Objects:
    """Open the store of a URL. Asks nothing of it yet. Raises: BadUrl; ModuleNotFoundError, without obstore."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise BadUrl(f"{url}: no store of objects is known by {parts.scheme}://", f"write {EXAMPLES}")
    if parts.query or parts.fragment or parts.username or parts.password:
        raise BadUrl(f"{url} has more than a name", "keys and endpoints are not part of the URL: docs/store.md")
    if parts.scheme == "file":
        if parts.netloc or not os.path.isabs(parts.path):
            raise BadUrl(f"{url}: the path is not absolute", "write three slashes: file:///path")
        return DirectoryObjects(unquote(parts.path))
    if not parts.netloc:
        raise BadUrl(f"{url} names no bucket", f"write {EXAMPLES}")
    from .remote import RemoteObjects

    return RemoteObjects(parts.scheme, parts.netloc, parts.path.strip("/"))
