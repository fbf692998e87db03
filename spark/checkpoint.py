"""The checkpoint of a query, as far as a sink may look at it: where it is, and the files that are in reach.

The rule: nothing is guessed. What is not in this machine's file system is not read, and a place that was only concluded
counts once the query's own id stands there. Sources: Spark's StreamMetadata, OffsetSeqLog, StreamExecution; Hadoop's
Path, which decodes nothing.
"""

import json
import os

FOLDER, DESCRIPTION = "spark.sql.streaming.checkpointLocation", "spark.job.description"
"""Properties of a stream's task: the folder in which the session keeps checkpoints, and whose job it is."""


def place_of(folder: str | None, description: str | None, query_id: str | None) -> str | None:
    """Of a query that has its checkpoint by the session's setting and its name. None: it has none of the two.

    One without a name gets a new checkpoint at each start, so there is nothing that could be set back.
    """
    name, is_told, _ = (description or "").partition(f"\nid = {query_id}\n")
    return f"{folder}/{name}" if folder and name and is_told else None


def read(place: str | None, *names: str) -> str | None:
    """A file of it. None: it is not there, or this process cannot read it."""
    path = _path(place or "")
    if path is None:
        return None
    try:
        with open(os.path.join(path, *names), encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError):
        return None


def query_id(place: str | None) -> str | None:
    """Whose it is."""
    text = read(place, "metadata")
    try:
        return None if text is None else str(json.loads(text).get("id") or "") or None
    except (AttributeError, ValueError):
        return None


def _path(place: str) -> str | None:
    """In this file system: a path, or file:/path, file:///path."""
    if place.startswith("file:"):
        place = place.removeprefix("file:")
        if place.startswith("//"):
            place = place[2:] if place.startswith("///") else ""
    elif "://" in place:
        return None
    return place or None
