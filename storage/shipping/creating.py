"""A create that comes to an end, whatever becomes of its answer.

The rule: after every answer but "done" the store is asked what has the name. If it is what was to be created, it was
created; if it is something else, somebody else was first; if there is nothing, it is tried again. "Exists" proves
nothing: S3 says so of a create that is still under way, and of one's own whose answer was lost.
"""

from collections.abc import Callable
from typing import TypeVar

from ...effects.objects import Exists, Missing, Objects, ObjectsError, Unclear

T = TypeVar("T")
Wait = Callable[[ObjectsError], None]  # called before a call is made again; raises if it is not to be


class Taken(Exception):
    """Raised if somebody else has created an object of this name. content: what they have stored under it."""

    def __init__(self, name: str, content: bytes) -> None:
        super().__init__(f"{name} was created by somebody else")
        self.name = name
        self.content = content


def create(objects: Objects, name: str, content: bytes, wait: Wait) -> None:
    """Create an object; try again until the result is known. Raises: Taken, Refused, and what `wait` raises."""
    while True:
        trouble: ObjectsError
        try:
            objects.create(name, content)
            return
        except (Exists, Unclear) as error:
            trouble = error
        try:
            found = objects.read(name)
        except Missing:
            pass
        except Unclear as error:
            trouble = error
        else:
            if found == content:
                return
            raise Taken(name, found)
        wait(trouble)


def ask(call: Callable[[], T], wait: Wait) -> T:
    """Make a call again and again until its result is known, and return that. Only for calls that may be repeated:
    read, list, delete. Raises the store's errors, except Unclear.
    """
    while True:
        try:
            return call()
        except Unclear as error:
            wait(error)


def read(objects: Objects, name: str, wait: Wait) -> bytes:
    """Return the content of an object. Raises Missing, Refused, and what `wait` raises."""
    return ask(lambda: objects.read(name), wait)


def list_names(objects: Objects, prefix: str, wait: Wait) -> list[str]:
    """Return the names below a prefix, sorted. Raises Refused, and what `wait` raises."""
    return sorted(found.name for found in ask(lambda: objects.list(prefix), wait))
