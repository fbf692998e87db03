"""The files of the pages: read once, sent from memory with an ETag. Only files of the folder are sent, by their exact
names.

The rule: a path is looked up in a table and never opened, so no path leads out of the folder.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

from ..http.problems import NO_ROUTE, Problem

FOLDER = Path(__file__).parent.parent / "static"
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}


class StaticFile(NamedTuple):
    """One file of the pages. tag: a digest of its content, for the ETag."""

    content: bytes
    media_type: str
    tag: str


def read_files(folder: Path = FOLDER) -> dict[str, StaticFile]:
    """Return all files below the folder, by their relative path; those of unknown types are left out."""
    found: dict[str, StaticFile] = {}
    for path in sorted(folder.rglob("*")):
        media_type = _TYPES.get(path.suffix)
        if media_type is not None and path.is_file():
            content = path.read_bytes()
            tag = hashlib.sha256(content).hexdigest()[:16]
            found[path.relative_to(folder).as_posix()] = StaticFile(content, media_type, tag)
    return found


def answer(files: dict[str, StaticFile], name: str, request: web.Request) -> web.Response:
    """Return the response with a file; 304 if the browser has it. Raises Problem if there is no such file."""
    found = files.get(name)
    if found is None:
        raise Problem(NO_ROUTE, "there is no such file")
    headers = {"ETag": f'"{found.tag}"', "Cache-Control": "no-cache"}
    if request.headers.get("If-None-Match") == headers["ETag"]:
        return web.Response(status=304, headers=headers)
    return web.Response(body=found.content, content_type=found.media_type, charset="utf-8", headers=headers)
