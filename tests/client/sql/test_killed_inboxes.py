"""Consumers with an inbox, as processes: killed, stopped until others have their partitions, joined and left.

Each record's effect is in the database once, in order. They stop for 3 s, three times their session; in the long runs
some stop for 20 s.
"""

import pytest
from inbox_crew import Crew, compare_under_faults

from fencepost import Broker

QUICK, LONG = 3, 100  # what happens to workers in one run


async def compare(tmp_path, url, protocol, seed, times, stops_s):
    """Compare the effects of inbox consumers with the records, after `times` faults. stops_s: for how long those that
    are stopped may stand still, in seconds.
    """
    settings = {"group_min_session_timeout_ms": 500, "group_consumer_min_session_timeout_ms": 500}
    settings |= {"group_consumer_session_timeout_ms": 1_000, "group_consumer_min_heartbeat_interval_ms": 100}
    settings |= {"group_consumer_heartbeat_interval_ms": 200, "group_initial_rebalance_delay_ms": 0}
    async with Broker(data_dir=tmp_path / "broker", **settings) as broker:
        bootstrap = broker.bootstrap_servers
        await compare_under_faults(Crew(bootstrap, protocol, url), bootstrap, url, seed, times, stops_s)


@pytest.mark.slow
async def test_inbox_consumers_killed_at_random_apply_each_record_once_in_sqlite(tmp_path):
    await compare(tmp_path, f"sqlite:///{tmp_path}/bills.db", "classic", 1, QUICK, [3])


@pytest.mark.slow
async def test_inbox_consumers_killed_at_random_apply_each_record_once_in_postgresql(tmp_path, postgres_url):
    await compare(tmp_path, postgres_url, "consumer", 2, QUICK, [3])


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_inbox_consumers_apply_each_record_once_through_a_hundred_faults(tmp_path, postgres_url, protocol):
    await compare(tmp_path, postgres_url, protocol, 3, LONG, [3, 3, 20])
