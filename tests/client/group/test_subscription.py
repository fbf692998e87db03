"""What a subscription remembers of its partitions."""

from math import inf

from fencepost.client.group.subscription import Rewinds
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.integers(0, 9), max_size=30))
def test_rewinds_give_the_lowest_offset_since_any_earlier_rewind(offsets):
    rewinds = Rewinds()
    for offset in offsets:
        rewinds.add(offset)
    assert rewinds.count == len(offsets)
    for count in range(len(offsets) + 1):
        assert rewinds.lowest_since(count) == min(offsets[count:], default=inf)


def test_beyond_the_limit_older_rewinds_keep_only_their_lowest_offset():
    rewinds = Rewinds()
    for offset in range(Rewinds.KEPT + 500):
        rewinds.add(offset)
    assert len(rewinds._lowest) == Rewinds.KEPT
    assert rewinds.lowest_since(300) == 0
    assert rewinds.lowest_since(1_400) == 1_400
