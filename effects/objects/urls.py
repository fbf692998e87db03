"""Opens an object store by its URL: file:///path, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix.

The rule: a URL has no secrets. Keys, endpoint and region come from the places where the provider's own tools look.
"""

import os
import socket
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from .directory import DirectoryObjects
from .interface import Objects
from .mounts import Mount, mount_of

REMOTE = ("s3", "gs", "az")
CONNECT_S = 2.0
SCHEMES = ("file", *REMOTE)
EXAMPLES = "file:///path, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"


class BadUrl(Exception):
    """Raised for a URL that names no object store. hint: what it should look like."""

    def __init__(self, cause: str, hint: str) -> None:
        super().__init__(cause)
        self.hint = hint


def is_url(text: str) -> bool:
    """Return whether the text is a URL and not a path."""
    return "://" in text


def open_objects(url: str) -> Objects:
    """Open the object store of a URL, without a request. Raises BadUrl; ModuleNotFoundError without obstore."""
    parts = _checked(url)
    if parts.scheme == "file":
        return DirectoryObjects(unquote(parts.path))
    from .remote import RemoteObjects

    return RemoteObjects(parts.scheme, parts.netloc, parts.path.strip("/"))


def open_at_each_address(url: str) -> list[Objects]:
    """Open an object store once for each address of its server that accepts connections. Returns an empty list if only
    one does, or if that is not known.

    It is known only of S3 without TLS, because a certificate is for the name. Connections with TLS are spread over all
    addresses anyway.
    """
    parts = _checked(url)
    if parts.scheme != "s3":
        return []
    from .remote import RemoteObjects, s3_endpoint

    endpoint = urlsplit(s3_endpoint(os.environ))
    if endpoint.scheme != "http" or not endpoint.hostname:
        return []
    try:
        found = socket.getaddrinfo(endpoint.hostname, endpoint.port or 80, type=socket.SOCK_STREAM)
    except OSError:
        return []
    places = dict.fromkeys((family, at) for family, _, _, _, at in found if _answers(family, at))
    if len(places) < 2:
        return []
    hosts = [f"[{at[0]}]" if family == socket.AF_INET6 else str(at[0]) for family, at in places]
    return [
        RemoteObjects("s3", parts.netloc, parts.path.strip("/"), f"http://{host}:{endpoint.port or 80}")
        for host in hosts
    ]


def _answers(family: int, address: Any) -> bool:
    """Return whether a server accepts connections at this address: some of a name's addresses may not be in use."""
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(CONNECT_S)
        try:
            one.connect(address)
        except OSError:
            return False
    return True


def mount_of_url(url: str) -> Mount | None:
    """Return the mount of the directory of a URL; None if the URL names none, or the system does not tell."""
    parts = _checked(url)
    return mount_of(unquote(parts.path)) if parts.scheme == "file" else None


def open_shared(url: str) -> Objects:
    """Open an object store for the journal of several brokers. Raises BadUrl, also for a directory whose listings
    are cached.
    """
    mount = mount_of_url(url)
    if mount is not None and mount.is_cached:
        cause = f"{url}: {mount.point} is {mount.kind}, mounted without noac, so its listings may be outdated"
        raise BadUrl(cause, "mount it with noac, or name another store")
    return open_objects(url)


def _checked(url: str) -> SplitResult:
    """Split a URL into its parts. Raises BadUrl if it names no object store."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise BadUrl(f"{url}: no store of objects is known by {parts.scheme}://", f"write {EXAMPLES}")
    if parts.query or parts.fragment or parts.username or parts.password:
        raise BadUrl(f"{url} has more than a name", "keys and endpoints are not part of the URL: docs/store.md")
    if parts.scheme == "file":
        if parts.netloc or not os.path.isabs(parts.path):
            raise BadUrl(f"{url}: the path is not absolute", "write three slashes: file:///path")
    elif not parts.netloc:
        raise BadUrl(f"{url} names no bucket", f"write {EXAMPLES}")
    return parts
