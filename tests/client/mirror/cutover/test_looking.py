"""What a cutover finds wrong with partitions that the mirror has copied."""

import pytest
from fencepost.client.admin.values import TopicDescription
from fencepost.client.mirror.cutover.looking import find_stopped
from fencepost.client.mirror.positions import Position
from fencepost.client.values import TopicPartition

A0 = TopicPartition("a", 0)
HERE, THERE, OTHER = b"h" * 16, b"t" * 16, b"o" * 16
POSITION = Position(5, HERE, None, THERE)


@pytest.mark.parametrize(
    ("topic_id", "span", "copies", "why"),
    [
        (HERE, (0, 5), {"a": THERE}, None),
        (OTHER, (0, 5), {"a": THERE}, "deleted and made again at the source"),
        (HERE, (0, 4), {"a": THERE}, "ends at 4"),
        (HERE, (6, 9), {"a": THERE}, "begins at 6"),
        (HERE, (0, 5), {}, "deleted at the target"),
        (HERE, (0, 5), {"a": OTHER}, "deleted at the target"),
    ],
)
def test_find_stopped_returns_why_source_or_target_is_not_what_was_copied(topic_id, span, copies, why):
    topics = {"a": TopicDescription("a", topic_id, False, ())}
    found = find_stopped({A0: POSITION}, topics, {A0: span[0]}, {A0: span[1]}, copies)
    assert list(found) == ([] if why is None else [A0])
    assert why is None or why in found[A0]
