"""A member that subscribes to a pattern whose topics are not known yet."""

import re

from group_members import ALL, Member, run


def test_subscribing_to_a_pattern_after_a_poll_without_topics_joins_the_group():
    async def scenario(broker):
        a = await Member(broker, topics=()).start()
        a.subscription.subscribe((), re.compile("t"))
        assert await a.poll() == ALL
        await a.group.unsubscribe()
        await a.group.poll(a.group._clock.monotonic_ms())
        assert not a.group.needs_poll
        a.subscription.subscribe((), re.compile("t"))
        assert a.group.needs_poll
        assert await a.poll() == ALL
        assert not a.group.needs_poll
        await a.close()

    run(scenario)
