"""Bad histories of named producers, and good ones beside them.

Each function writes one history with the steps of story.py; its name says what happens in it. `@bad` names the
anomaly that the checker must find in it; without `@bad` the history is good.
"""

from simulation.golden import bad
from simulation.named_rules import Highest, Numbered, Opened
from simulation.sdk_clients import FIRST_IN_ORDER
from simulation.story import P, data

N = "n"
NOBODY = (-1000, -1)


def opens(s, epoch):
    s._op("n", Opened(N), True, epoch)


def stands(s, sequence):
    s._op("n", Highest(N, P), True, sequence)


def sends(s, sequence, at=None, epoch=1, duplicate=False, ok=True):
    """Note that a named producer sends a record for the first time; `again` is for retries. at: the offset that the
    answer tells, if it tells one.
    """
    in_order = FIRST_IN_ORDER + sequence
    s.send(_value(sequence), at=at or 0, sequence=in_order, producer=NOBODY, ok=None if at is None else True)
    again(s, sequence, at=at, epoch=epoch, duplicate=duplicate, ok=ok)


def again(s, sequence, at=None, epoch=1, duplicate=True, ok=True):
    result = (-1 if at is None else at, duplicate)
    return s._op("n", Numbered(N, P, sequence, epoch), ok, result)


def logged(s, *sequences):
    s.dump(*(data(at, _value(sequence), producer=(-1, -1), plain=True) for at, sequence in enumerate(sequences)))


def _value(sequence):
    return f"{N}/0/{sequence}"


def a_life_and_its_successor(s):
    """A good history: an answer is lost, the next process sends some records again, and one that was lost is written
    then.
    """
    opens(s, 1), sends(s, 4, at=0), sends(s, 8, ok=None), sends(s, 9, ok=None), s.restart()
    opens(s, 2), stands(s, 8), again(s, 4, epoch=2), again(s, 8, epoch=2), again(s, 9, epoch=2, at=2, duplicate=False)
    logged(s, 4, 8, 9)


def what_was_taken_by_a_crash_is_written_by_the_next(s):
    """A good history: a crash loses the record, and the next process writes it."""
    opens(s, 1), sends(s, 4, ok=None), s.restart(), opens(s, 3), stands(s, -1)
    again(s, 4, epoch=3, at=0, duplicate=False), logged(s, 4)


def a_first_attempt_that_was_written_is_no_duplicate(s):
    """A good history: its first answer was lost, and the answer to the retry names no offset, and no duplicate."""
    opens(s, 1), sends(s, 4), logged(s, 4)


GOOD = [
    a_life_and_its_successor,
    what_was_taken_by_a_crash_is_written_by_the_next,
    a_first_attempt_that_was_written_is_no_duplicate,
]


@bad("duplicate")
def a_named_record_is_written_again(s):
    opens(s, 1), sends(s, 4, at=0), again(s, 4, at=1, duplicate=False)


@bad("duplicate")
def a_named_record_below_the_highest_is_written(s):
    opens(s, 1), sends(s, 4), sends(s, 8, at=1), again(s, 4, at=2, duplicate=False)


@bad("false duplicate")
def what_was_never_written_is_called_a_duplicate(s):
    opens(s, 1), sends(s, 4, duplicate=True), logged(s)


@bad("false duplicate")
def a_crash_takes_what_was_called_a_duplicate(s):
    opens(s, 1), sends(s, 4, ok=None), again(s, 4), s.restart(), logged(s)


@bad("lost write")
def a_name_forgets_how_far_it_was(s):
    opens(s, 1), sends(s, 4, at=0), s.restart(), opens(s, 2), stands(s, -1)


@bad("lost write")
def what_the_second_attempt_was_told_is_not_in_the_log(s):
    opens(s, 1), sends(s, 4), logged(s)


@bad("sequence gap")
def a_record_of_the_source_is_left_out(s):
    opens(s, 1), sends(s, 4, at=0), sends(s, 8, ok=None), sends(s, 9, at=1), logged(s, 4, 9)


@bad("nonmonotonic send")
def a_record_is_written_behind_what_follows_it(s):
    opens(s, 1), sends(s, 4, ok=None), sends(s, 8, ok=None), logged(s, 8, 4)


@bad("zombie accepted")
def an_older_epoch_writes(s):
    opens(s, 1), opens(s, 2), sends(s, 4, at=0, epoch=1)


@bad("epoch reuse")
def two_processes_have_one_epoch(s):
    opens(s, 1), opens(s, 1)


@bad("epoch reuse")
def the_epochs_of_a_name_go_back(s):
    opens(s, 2), opens(s, 1)
