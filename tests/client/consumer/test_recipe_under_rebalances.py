"""The README's loop, `consumer.batches()` with `producer.transaction(batch)`: a rebalance at each of its awaits, and
while each request of its producer is under way.
"""

import pytest
from fencepost.client.group.commits import GroupCommits
from fencepost.client.values import ConsumerGroupMetadata
from long_runs import first_only
from recipe import GROUP, NEWER, Copying

pytestmark = pytest.mark.slow

STRATEGIES = ["range", "cooperative-sticky", NEWER]
HAPPENS = ["another_joins", "the_other_takes_over", "it_takes_too_long"]
MOMENTS = {"await": False, "request": True}


def runs(strategy, what, moment, every=1, first=1):
    """Run the loop again and again, with `what` happening at another moment each time: at the one with the number
    `first`, and at each `every`th after it. Returns how many moments a run without a disturbance has.
    """
    undisturbed = Copying(strategy)
    at_request = MOMENTS[moment]
    count = undisturbed.run(-1 if at_request else 0, undisturbed.another_joins, at_request=at_request)
    for number in range(first, count + 1, every):
        copying = Copying(strategy)
        try:
            copying.run(number, getattr(copying, what), at_request=at_request)
        except BaseException as error:
            error.add_note(f"at {moment} {number} of {count}")
            raise
    return count


@pytest.mark.requirement("S-83", "S-89", "S-118")
@pytest.mark.parametrize("moment", first_only(MOMENTS))
@pytest.mark.parametrize("what", HAPPENS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_rebalance_during_a_transaction_loses_and_repeats_no_record(strategy, what, moment):
    assert runs(strategy, what, moment, 8, first=1 + HAPPENS.index(what)) >= 10


@pytest.mark.long
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("what", HAPPENS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_rebalance_at_any_moment_loses_and_repeats_no_record(strategy, what, moment):
    runs(strategy, what, moment)


@pytest.mark.parametrize("strategy", first_only(["range", NEWER]))
def test_without_a_generation_in_commits_the_test_finds_repeated_records(strategy, monkeypatch):
    """This checks that the test above can fail: commits that are not fenced let records be repeated."""
    monkeypatch.setattr(GroupCommits, "metadata", lambda self: ConsumerGroupMetadata(GROUP))
    with pytest.raises(AssertionError, match="lost, or done twice"):
        runs(strategy, "the_other_takes_over", "await")
