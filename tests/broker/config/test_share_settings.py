"""The broker's settings of share groups: their bounds, and what has to hold between them, with Kafka's error texts."""

import pytest
from fencepost.broker.config.options import InvalidOption
from fencepost.broker.config.settings import BrokerSettings, Source


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"record.lock.duration.ms": "999"}, "Value must be at least 1000"),
        ({"record.lock.duration.ms": "3600001"}, "Value must be no more than 3600000"),
        ({"record.lock.duration.ms": "60001"}, "max.record.lock.duration.ms must be greater than or equal to "),
        ({"record.lock.duration.ms": "14999"}, "record.lock.duration.ms must be greater than or equal to "),
        ({"max.delivery.count.limit": "26"}, "Value must be no more than 25"),
        ({"delivery.count.limit": "11", "max.delivery.count.limit": "25"}, "Value must be no more than 10"),
        ({"delivery.count.limit": "2", "min.delivery.count.limit": "3"}, "delivery.count.limit must be greater than"),
        ({"max.partition.max.record.locks": "10001"}, "Value must be no more than 10000"),
        ({"partition.max.record.locks": "4001"}, "max.partition.max.record.locks must be greater than or equal to "),
        ({"max.size": "1001"}, "Value must be no more than 1000"),
        ({"max.share.sessions": "199"}, "group.share.max.share.sessions must be greater than or equal to group.share"),
        ({"session.timeout.ms": "44999"}, "group.share.session.timeout.ms must be greater than or equal to "),
        (
            {"heartbeat.interval.ms": "45000", "max.heartbeat.interval.ms": "45000"},
            "group.share.heartbeat.interval.ms must be less than group.share.session.timeout.ms",
        ),
        ({"assignors": ""}, "group.share.assignors must contain exactly one assignor, but found 0"),
        ({"assignors": "range"}, "String must be one of: simple"),
    ],
)
def test_contradictory_share_settings_and_values_outside_the_bounds_are_refused(
    given: dict[str, str], refusal: str
) -> None:
    with pytest.raises(InvalidOption) as refused:
        BrokerSettings.of({Source.STATIC_BROKER: {f"group.share.{name}": text for name, text in given.items()}})
    assert refusal in str(refused.value)


def test_share_settings_up_to_the_hard_bounds_are_accepted() -> None:
    wide = {
        "max.record.lock.duration.ms": "3600000",
        "record.lock.duration.ms": "3600000",
        "max.delivery.count.limit": "25",
        "max.partition.max.record.locks": "10000",
        "partition.max.record.locks": "10000",
        "max.size": "1000",
    }
    settings = BrokerSettings.of({Source.STATIC_BROKER: {f"group.share.{name}": text for name, text in wide.items()}})
    assert settings.group_share_partition_max_record_locks == 10_000
    assert settings.group_share_max_delivery_count_limit == 25
