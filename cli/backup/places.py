"""The arguments of `backup` and `restore`: a folder, or the URL of an object store."""

from collections.abc import Sequence

from ...effects.objects import BadUrl, Objects, is_url, open_objects
from ..output.failures import WRONG_USAGE, Failure


def objects_of(url: str) -> Objects:
    """Open the store of a URL. Raises Failure."""
    try:
        return open_objects(url)
    except BadUrl as error:
        raise Failure(str(error), error.hint, WRONG_USAGE) from None


def two_places(places: Sequence[str], data_dir: str | None, default: str, usage: str) -> tuple[str, str]:
    """Return (data directory, place of the backup) from the one or two arguments and --data-dir. default: the data
    directory if only a URL is given. Raises Failure if one of the two is missing or given twice.
    """
    if len(places) == 2 and data_dir is None:
        return _trimmed(places[0]), _trimmed(places[1])
    if len(places) == 1 and (data_dir is not None or is_url(places[0])):
        return _trimmed(data_dir or default), _trimmed(places[0])
    raise Failure("name the data directory and where the backup is", usage, WRONG_USAGE)


def _trimmed(path: str) -> str:
    return path if is_url(path) else path.rstrip("/") or path
