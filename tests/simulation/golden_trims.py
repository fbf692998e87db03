"""Bad histories of logs whose beginning is deleted (DeleteRecords).

Each function writes one history with the steps of story.py; its name says what happens in it. `@bad` names the
anomaly that the checker must find in it; without `@bad` the history is good.
"""

from simulation.golden import bad
from simulation.story import data


def deleted_and_read_on(s):
    """A good history: records below the offset that was asked for are gone, the others are there."""
    s.send("x", "y", "z"), s.raw((0, "x"), (1, "y"), (2, "z")), s.trim(2)
    s.raw((2, "z"), start=2, log_start=2, hw=3), s.dump(data(2, "z", sequence=2, plain=True))


def deleted_to_its_end(s):
    """A good history: the log has no record left."""
    s.send("x"), s.raw((0, "x")), s.trim(1, ok=None), s.dump()


@bad("log begins too late")
def more_is_deleted_than_was_asked_for(s):
    s.send("x", "y", "z"), s.trim(1), s.raw((2, "z"), start=2, log_start=2, hw=3)


@bad("log begins too late")
def the_request_was_refused_and_carried_out(s):
    s.send("x", "y"), s.trim(1, ok=False), s.raw((1, "y"), start=1, log_start=1, hw=2)


@bad("lost write")
def what_is_behind_the_new_beginning_is_gone_too(s):
    s.send("x", "y", "z"), s.trim(1), s.raw((2, "z"), start=1, log_start=1, hw=3)
