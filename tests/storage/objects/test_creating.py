"""Repeated calls to an object store: there is a pause before each further attempt, whatever the store answers."""

import pytest
from fencepost.effects.objects import Exists, Found, ObjectsError
from fencepost.effects.simulated.objects import Faults, SimulatedObjects
from fencepost.storage.objects import format as form
from fencepost.storage.objects.epochs import list_places
from fencepost.storage.objects.fence import ONE_PAGE, Place
from fencepost.storage.objects.format import Claim
from fencepost.storage.objects.takeover import Takeover, read_identity

ATTEMPTS = 20


class GivenUp(Exception):
    """Raised by the pause after ATTEMPTS."""


class Pauses:
    """A pause that notes after how many failed attempts it was called each time."""

    def __init__(self) -> None:
        self.attempts: list[int] = []

    def __call__(self, error: ObjectsError, attempts: int) -> None:
        self.attempts.append(attempts)
        if attempts == ATTEMPTS:
            raise GivenUp


def claim(objects: SimulatedObjects, pause: Pauses) -> None:
    Takeover(objects, pause, Claim(1, 1, (), bytes(8))).run()


def identify(objects: SimulatedObjects, pause: Pauses) -> None:
    read_identity(objects, pause, bytes(16))


@pytest.mark.parametrize("ask", [claim, identify])
def test_a_create_answered_409_though_no_object_has_the_name_is_retried_with_pauses(ask):
    pause = Pauses()
    with pytest.raises(GivenUp):
        ask(SimulatedObjects(faults=Faults(conflicts=1.0)), pause)
    assert pause.attempts == list(range(1, ATTEMPTS + 1))


@pytest.mark.slow
def test_a_long_unordered_listing_is_read_again_with_a_pause_before_each_attempt():
    objects, pause = SimulatedObjects(), Pauses()
    objects.list = lambda prefix, after="": [  # type: ignore[method-assign]
        Found(form.place_name(Place(1, number)), 1) for number in reversed(range(ONE_PAGE + 1))
    ]
    with pytest.raises(GivenUp):
        list_places(objects, form.JOURNAL, pause)
    assert pause.attempts == list(range(1, ATTEMPTS + 1))


def test_a_store_keeps_its_identity_although_creates_are_answered_with_409():
    objects, pause = SimulatedObjects(), Pauses()
    assert read_identity(objects, pause, b"the first store.") == b"the first store."
    with pytest.raises(Exists):
        objects.create(form.IDENTITY_NAME, b"")
    objects.faults.conflicts = 1.0
    assert read_identity(objects, pause, b"another store...") == b"the first store."
    assert pause.attempts == []
