"""Creating rounds and seals in the store under names that another broker may take first.

The rule: only a plain success of a create is believed. Before a create is tried again, the object that has the name is
read (fence.py). After an unclear result the caller tries again without end: that the store is unreachable is no reason
to give up.
"""

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from ...effects.objects import Content, Exists, Missing, Objects, ObjectsError, Refused, Unclear
from ..journal.format import Malformed
from ..shipping.creating import Wait
from . import fence, format
from .errors import Fenced, ObjectDamaged, ended_message
from .fence import Answer, Found, Place, Step
from .format import NewerObject, RoundHeader, Seal

T = TypeVar("T")
Pause: TypeAlias = Callable[[ObjectsError, int], None]
"""pause(error, attempts) waits before the next attempt. error: Unclear or Refused, the latest one. attempts: how many
have failed. May raise to give up."""


def until_clear(call: Callable[[], T], pause: Pause) -> T:
    """Call the function until it raises neither Unclear nor Refused, and return its result.

    pause(error, attempts) waits between two calls, and may raise to end this. Raises Exists, Missing; what `pause`
    raises.
    """
    attempts = 0
    while True:
        try:
            return call()
        except (Unclear, Refused) as error:
            attempts += 1
            pause(error, attempts)


def as_wait(pause: Pause) -> Wait:
    """Return a function, in the form that storage/shipping/ uses, that waits before a failed call is repeated. It calls
    `pause` with the error and the number of failed calls for that object so far.
    """
    attempts: Counter[str] = Counter()

    def wait(error: ObjectsError) -> None:
        """Wait before the next attempt, longer after more of them for the same object."""
        attempts[error.name] += 1
        pause(error, attempts[error.name])

    return wait


def create_or_read(objects: Objects, name: str, content: bytes) -> bytes:
    """Create an object if nothing has its name. Returns the content of the object that has the name then, created here
    or by others.

    Raises Unclear, Refused. A store may answer that the name is taken when it is not. Then there is nothing to read,
    and Unclear is raised, so that the caller tries again after a pause.
    """
    try:
        objects.create(name, content)
    except Exists:  # created by another broker, or by a request of ours whose answer was lost
        try:
            return objects.read(name)
        except Missing:
            raise Unclear(name, "a create found an object of this name, and a read found none") from None
    return content


def read_head(objects: Objects, place: Place) -> RoundHeader | Seal:
    """Read the header of the object that has a round's name: it is a round or a seal (the mark that an epoch has
    ended). Raises Missing, Unclear, Refused, ObjectDamaged.
    """
    name = format.place_name(place)
    try:
        return format.read_header(place, objects.read(name, 0, format.HEADER_BYTES))
    except (Malformed, NewerObject) as error:
        raise ObjectDamaged(objects.where, name, str(error)) from error


def create_seal(objects: Objects, seal: Seal, pause: Pause) -> None:
    """Try to create a seal (the object that ends an epoch). Returns also if the name is taken; a listing shows
    afterwards whether by a seal or a round. Raises what `pause` raises.
    """
    try:
        until_clear(lambda: objects.create(format.place_name(seal.place), format.pack_seal(seal)), pause)
    except Exists:
        pass


class RoundCreation:
    """The creation of one round in the store, in one or more attempts. attempt() may be called in a worker."""

    def __init__(self, objects: Objects, header: RoundHeader, content: Content) -> None:
        """content: the whole object, which begins with the header."""
        self._objects = objects
        self._header = header
        self._content = content
        self._step = Step.CREATE

    @property
    def name(self) -> str:
        """The name of the round's object."""
        return format.place_name(self._header.place)

    def attempt(self) -> bool:
        """Try to create the round; if the result of an earlier create was unclear, first read the object that has its
        name.

        Returns whether the round is created; False: call again.

        Raises: Fenced, if another broker has ended the epoch; ObjectDamaged; Unclear, Refused: the result is not known,
        call again.
        """
        if self._step is Step.CREATE:
            self._step = fence.after_create(self._create())
        if self._step is Step.LOOK:
            found, reason = self._look()
            self._step = fence.after_look(found)
            if self._step is Step.FENCED:
                raise Fenced(reason)
            if self._step is Step.DAMAGED:
                raise ObjectDamaged(self._objects.where, self.name, reason)
        return self._step is Step.CREATED

    def _create(self) -> Answer:
        """Try once to create the object. Returns CREATED, EXISTS if the name is taken, or UNCLEAR if the result is not
        known. Raises Refused.
        """
        try:
            self._objects.create(self.name, self._content)
        except Exists:
            return Answer.EXISTS
        except Unclear:
            return Answer.UNCLEAR
        return Answer.CREATED

    def _look(self) -> tuple[Found, str]:
        """Read the header of the object that has the round's name. Returns what it is and, if it is not this round,
        the error text. Raises: Unclear, Refused, ObjectDamaged.
        """
        place = self._header.place
        try:
            there = read_head(self._objects, place)
        except Missing:
            return Found.NOTHING, ""
        if isinstance(there, Seal):
            return Found.SEAL, ended_message(place, there.by)
        if there != self._header:
            return Found.OTHER, "another round has the name of one of ours"
        return Found.OWN, ""


def create_round(creation: RoundCreation, pause: Pause) -> None:
    """Create a round; try again until it is clear that it exists. Raises Fenced, ObjectDamaged; what `pause` raises."""
    attempts = 0
    while not until_clear(creation.attempt, pause):
        attempts += 1
        pause(Unclear(creation.name, "a create had no effect"), attempts)
