"""A create that is repeated until its result is known, even if the answer is lost.

The rule: after every answer except success, the object that has the name is read. If it is what was to be created, the
create has succeeded; if it is something else, another client was first; if there is none, the create is repeated. The
answer "exists" proves nothing: S3 gives it for a create that is still under way, and for one's own create whose answer
was lost.
"""

from collections.abc import Callable
from typing import TypeVar

from ...effects.objects import Exists, Missing, Objects, ObjectsError, Unclear

T = TypeVar("T")
Wait = Callable[[ObjectsError], None]  # called before a failed call is repeated; raises if it is not to be repeated


class NameTaken(Exception):
    """Raised if another client has created an object of this name. content: the content of that object."""

    def __init__(self, name: str, content: bytes) -> None:
        super().__init__(f"{name} was created by somebody else")
        self.name = name
        self.content = content


def create(objects: Objects, name: str, content: bytes, wait: Wait) -> None:
    """Create an object; try again until the result is known. Raises: NameTaken, Refused, and what `wait` raises."""
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
            raise NameTaken(name, found)
        wait(trouble)


def ask(call: Callable[[], T], wait: Wait) -> T:
    """Repeat a call until its result is known, and return that. Only for calls that may be repeated: read, list,
    delete. Raises the store's errors, except Unclear.
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
