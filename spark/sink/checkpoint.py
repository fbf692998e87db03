"""The checkpoint of a query: where it is, and its files, if this process can read them.

The rule: only the local file system is read, and a path that was derived from properties is used only if the checkpoint
there has the query's id. Sources: Spark's StreamMetadata, OffsetSeqLog, StreamExecution; Hadoop's Path, which does not
decode %-escapes.
"""

import json
import os

FOLDER, DESCRIPTION = "spark.sql.streaming.checkpointLocation", "spark.job.description"
"""Properties of a stream's task: the session's folder of checkpoints, and the job's description."""


def place_of(folder: str | None, description: str | None, query_id: str | None) -> str | None:
    """Return the path of the query's checkpoint, if it is made of the session's checkpoint folder and the query's
    name; else None. description: the job's description as Spark sets it, which contains both name and id.

    A query without a name gets a new checkpoint at each start, so nobody can set its checkpoint back.
    """
    name, has_id, _ = (description or "").partition(f"\nid = {query_id}\n")
    return f"{folder}/{name}" if folder and name and has_id else None


def read(place: str | None, *names: str) -> str | None:
    """Return the text of a file in the checkpoint. place: the checkpoint's path. names: the file's path in it. None:
    it does not exist, or this process cannot read it.
    """
    path = _path(place or "")
    if path is None:
        return None
    try:
        with open(os.path.join(path, *names), encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError):
        return None


def query_id(place: str | None) -> str | None:
    """Return the id of the query that the checkpoint at this path belongs to; None if it cannot be read."""
    text = read(place, "metadata")
    try:
        return None if text is None else str(json.loads(text).get("id") or "") or None
    except (AttributeError, ValueError):
        return None


def _path(place: str) -> str | None:
    """Return the local path of a path, file:/path or file:///path; None for other file systems."""
    if place.startswith("file:"):
        place = place.removeprefix("file:")
        if place.startswith("//"):
            place = place[2:] if place.startswith("///") else ""
    elif "://" in place:
        return None
    return place or None
