"""What a subscription remembers of its partitions."""

from math import inf

from fencepost.client.group.subscription import Rewinds
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.integers(0, 9), max_size=30))
def test_lowest_since_n_is_the_lowest_offset_sought_back_to_after_n_rewinds(offsets):
    rewinds = Rewinds()
    for offset in offsets:
        rewinds.add(offset)
    assert rewinds.count == len(offsets)
    for count in range(len(offsets) + 1):
        assert rewinds.lowest_since(count) == min(offsets[count:], default=inf)


def test_above_a_limit_the_oldest_rewinds_count_as_one_to_their_lowest_offset():
    rewinds = Rewinds()
    for offset in range(Rewinds.KEPT + 500):
        rewinds.add(offset)
    assert len(rewinds._lowest) == Rewinds.KEPT
    assert rewinds.lowest_since(300) == 0, "rewind 300 is one of those that are merged, the lowest of which went to 0"
    assert rewinds.lowest_since(1_400) == 1_400
