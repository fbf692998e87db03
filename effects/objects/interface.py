"""What a store of objects can do, and the four answers that are not "done".

The rule: `create` makes an object only if nothing has its name, and of several racers one wins. A call that raises
Unclear may have had its effect, or may have it later, even after calls that began after it. So whoever created
something looks at what has the name before it tries again (storage/shipping/creating.py).
"""

from typing import NamedTuple, Protocol


class ObjectsError(Exception):
    """An answer of a store other than "done". name: of the object; "" if the answer is not about a single one."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}" if name else reason)
        self.name = name
        self.reason = reason


class Exists(ObjectsError):
    """Raised by create(): something has the name already. It may be what an earlier call of ours made."""


class Missing(ObjectsError):
    """Raised by read(): nothing has the name."""


class Unclear(ObjectsError):
    """Raised if nobody knows what became of the call: a timeout, an error of the server, a cut connection."""


class Refused(ObjectsError):
    """Raised if the store does not allow the call, or has no such bucket. hint: what to do about it."""

    def __init__(self, name: str, reason: str, hint: str) -> None:
        super().__init__(name, reason)
        self.hint = hint


class Found(NamedTuple):
    """An object in a listing."""

    name: str
    size_bytes: int


class Objects(Protocol):
    """A store of objects, thread-safe, without retries of its own. Names are paths: parts between slashes."""

    @property
    def where(self) -> str:
        """The URL of the store, for messages. It has no secrets."""
        ...

    def create(self, name: str, content: bytes) -> None:
        """Make an object, durably, if nothing has its name. Raises: Exists, Unclear, Refused."""
        ...

    def put(self, name: str, content: bytes) -> None:
        """Make an object, or replace it, durably. Raises: Unclear, Refused."""
        ...

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return `length` bytes of an object, or all from `start` on; fewer only at its end.

        Raises: Missing, Unclear, Refused.
        """
        ...

    def list(self, prefix: str, after: str = "") -> list[Found]:
        """List all objects whose names begin with a prefix (which ends with a slash), in the order in which they came.

        Of a listing that takes several requests that is the order of names, but for stores that have none.
        after: only those whose names come later. Raises: Unclear, Refused.
        """
        ...

    def delete(self, name: str) -> None:
        """Remove an object. Does nothing if there is none. Raises: Unclear, Refused."""
        ...
