"""Creates whose answer is lost, that are refused for no reason, or that take effect late: one client creates, once."""

import pytest
from fencepost.effects.objects import Exists, Refused, Unclear
from fencepost.effects.simulated.objects import Faults, SimulatedObjects
from fencepost.storage.shipping.creating import NameTaken, ask, create
from followed import Waiting

FAULTS = {
    "before": Faults(before=0.5), "after": Faults(after=0.5), "late": Faults(late=0.5),
    "conflicts": Faults(conflicts=0.5),
    "all": Faults(before=0.3, after=0.3, late=0.3, conflicts=0.3, reads=0.3),
}  # fmt: skip


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_create_is_repeated_until_the_object_exists_although_answers_are_lost(faults):
    for seed in range(50):
        objects = SimulatedObjects(seed, faults)
        create(objects, "a", b"mine", Waiting())
        assert objects.content == {"a": b"mine"}


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_creating_an_existing_object_raises_name_taken_with_its_content(faults):
    for seed in range(50):
        objects = SimulatedObjects(seed, faults)
        objects.content["a"] = b"theirs"
        with pytest.raises(NameTaken) as taken:
            create(objects, "a", b"mine", Waiting())
        assert taken.value.content == b"theirs"
        assert objects.content == {"a": b"theirs"}


def test_a_create_answered_409_without_an_object_is_tried_until_the_caller_gives_up():
    """S3 answers 409 while another create of the name is under way, whether or not that one succeeds. Here every create
    is answered so: one attempt, three more, then the 409 is raised.
    """
    objects = SimulatedObjects(faults=Faults(conflicts=1))
    waiting = Waiting(3)
    with pytest.raises(Exists, match="409"):
        create(objects, "a", b"mine", waiting)
    assert len(waiting.troubles) == 4


def test_a_create_or_read_that_the_store_refuses_is_not_retried():
    objects = SimulatedObjects()
    objects.refuses = "403"
    waiting = Waiting()
    with pytest.raises(Refused):
        create(objects, "a", b"", waiting)
    with pytest.raises(Refused):
        ask(lambda: objects.read("a"), waiting)
    assert not waiting.troubles


def test_a_read_that_raises_unclear_is_repeated_until_it_returns_the_content():
    objects = SimulatedObjects(faults=Faults(reads=0.9))
    objects.content["a"] = b"x"
    waiting = Waiting()
    assert [ask(lambda: objects.read("a"), waiting) for _ in range(5)] == [b"x"] * 5
    assert waiting.troubles
    assert all(isinstance(each, Unclear) for each in waiting.troubles)
