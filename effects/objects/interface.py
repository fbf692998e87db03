"""The interface of an object store, and the errors of its calls.

The rule: `create` makes an object only if nothing has its name, and of several clients that try it only one succeeds. A
call that raises Unclear may have had its effect, or may have it later, even after calls that began later. So the caller
of a create that was unclear reads the object that has the name before it tries again (storage/shipping/creating.py).
"""

from typing import NamedTuple, Protocol, TypeAlias

from ..gathering import Buffer

Content: TypeAlias = bytes | list[Buffer]
"""The bytes of an object; or buffers that make them up one after another, so that they need not be joined."""


class ObjectsError(Exception):
    """An error of a call to an object store. name: of the object; "" if it is not about a single one."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}" if name else reason)
        self.name = name
        self.reason = reason


class Exists(ObjectsError):
    """Raised by create() if an object has the name already. An earlier call of this client may have created it."""


class Missing(ObjectsError):
    """Raised by read() if no object has the name."""


class Unclear(ObjectsError):
    """Raised if it is not known whether the call had an effect: a timeout, a server error, a lost connection."""


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
    """An object store. Thread-safe. It repeats no call by itself. Names are paths, with slashes."""

    @property
    def where(self) -> str:
        """The URL of the store, for messages. It has no secrets."""
        ...

    def create(self, name: str, content: Content) -> None:
        """Create an object, durably, if none has its name. Raises Exists, Unclear, Refused."""
        ...

    def put(self, name: str, content: bytes) -> None:
        """Create an object, or replace it, durably. Raises Unclear, Refused."""
        ...

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return `length` bytes of an object from `start` on (None: all); fewer only at its end.

        Raises Missing, Unclear, Refused.
        """
        ...

    def list(self, prefix: str, after: str = "") -> list[Found]:
        """Return all objects whose names begin with `prefix`, which ends with a slash.

        The order is that of the store, mostly that of names. after: only objects whose names come after this one.
        Raises Unclear, Refused.
        """
        ...

    def delete(self, name: str) -> None:
        """Remove an object. Does nothing if it does not exist. Raises Unclear, Refused."""
        ...
