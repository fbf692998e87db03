"""The bank of bugs, for consumers that read from a follower: only seeds that have one can meet these."""

from fencepost.client.consumer.fetcher import Fetcher
from simulation.planting import around, breaks, mutant, replaced


@mutant
@breaks("sdk.md: With a `client_rack` the consumer reads from the follower")
def sdk_a_follower_that_is_behind_is_taken_at_its_word(stack):
    """What it does not have is outside the log, or was cut: the position is reset."""

    def wrapper(told_by_leader):
        return lambda self, node, state: told_by_leader(self, node, state) or True

    around(stack, Fetcher._leave_follower, wrapper)


@mutant
@breaks("sdk.md: It reads from the leader again for half a minute")
def sdk_a_follower_is_never_given_up(stack):
    """Whatever is wrong with it: the leader named it."""
    replaced(stack, Fetcher._read_from_leader, lambda self, state: None)


@mutant
@breaks("sdk.md: With a `client_rack` the consumer reads from the follower")
def sdk_what_a_follower_withholds_is_passed_over(stack):
    """The leader has told that records up to there are stable, and none came: there are none."""

    def wrapper(take):
        def taken(self, node, state, part):
            stable = state.last_stable_offset
            news = take(self, node, state, part)
            if not part.error_code and not part.records and state.replica == node.node_id:
                state.fetch_offset = max(state.fetch_offset, stable)
            return news

        return taken

    around(stack, Fetcher._take, wrapper)


@mutant
@breaks("sdk.md: With a `client_rack` the consumer reads from the follower")
def sdk_the_high_watermark_of_a_follower_is_the_end(stack):
    """What was read above it from somebody else is read again."""

    def wrapper(take):
        def taken(self, node, state, part):
            if not part.error_code and 0 <= part.high_watermark < state.fetch_offset and not state.fetched:
                state.move(part.high_watermark)
            return take(self, node, state, part)

        return taken

    around(stack, Fetcher._take, wrapper)
