"""The bank of bugs, for consumers that read from a follower: only seeds that have one can meet these.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

from fencepost.client.consumer.fetcher import Fetcher
from simulation.planting import around, breaks, mutant, replaced


@mutant
@breaks("sdk.md: With a `client_rack` the consumer reads from the follower")
def sdk_a_follower_that_is_behind_is_taken_at_its_word(stack):
    """An offset that the follower does not have is taken for out of range, or for truncated: the position is reset."""

    def wrapper(told_by_leader):
        return lambda self, node, state: told_by_leader(self, node, state) or True

    around(stack, Fetcher._leave_follower, wrapper)


@mutant
@breaks("sdk.md: It reads from the leader again for half a minute")
def sdk_a_follower_is_never_given_up(stack):
    """The consumer goes on with the follower that the leader named, whatever error it answers."""
    replaced(stack, Fetcher._read_from_leader, lambda self, state: None)


@mutant
@breaks("sdk.md: With a `client_rack` the consumer reads from the follower")
def sdk_what_a_follower_withholds_is_passed_over(stack):
    """If the follower sends no records, the consumer goes on at the last stable offset that was told before, as if
    there were none below.
    """

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
    """The position goes back to the follower's high watermark: records above it, which the leader sent, are read
    again.
    """

    def wrapper(take):
        def taken(self, node, state, part):
            if not part.error_code and 0 <= part.high_watermark < state.fetch_offset and not state.fetched:
                state.move(part.high_watermark)
            return take(self, node, state, part)

        return taken

    around(stack, Fetcher._take, wrapper)
