"""An object store for the functions of storage/shipping/, which would give up if a call is refused.

The rule: a store that answers 403 is treated like one that is unreachable. A broker whose journal is there waits until
it answers, even in the middle of a take-over, because rights can be restored, and a broker that gave up would have to
be started again by a person.
"""

from functools import partial

from ...effects.objects import Content, Found, Objects
from .creating import Pause, until_clear


class PatientObjects:
    """The same store; a call that ends as Unclear or Refused is repeated until it has another result or `pause`
    raises.
    """

    def __init__(self, objects: Objects, pause: Pause) -> None:
        self._objects = objects
        self._pause = pause

    @property
    def where(self) -> str:
        """The URL of the store."""
        return self._objects.where

    def create(self, name: str, content: Content) -> None:
        """Create an object. Raises Exists, also if an earlier attempt of this call has created it."""
        until_clear(partial(self._objects.create, name, content), self._pause)

    def put(self, name: str, content: bytes) -> None:
        """Create an object, or replace it."""
        until_clear(partial(self._objects.put, name, content), self._pause)

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return `length` bytes of an object from `start` on (None: all). Raises Missing."""
        return until_clear(partial(self._objects.read, name, start, length), self._pause)

    def list(self, prefix: str, after: str = "") -> list[Found]:
        """Return all objects whose names begin with `prefix` and come after `after`."""
        return until_clear(partial(self._objects.list, prefix, after), self._pause)

    def delete(self, name: str) -> None:
        """Remove an object, if it exists."""
        until_clear(partial(self._objects.delete, name), self._pause)
