"""The settings of consumer groups: the bounds around each default, and the error and hint for a value outside them."""

import pytest
from fencepost.broker.config.options import InvalidOption
from fencepost.broker.config.settings import BrokerSettings, Source


def of(**given: int) -> BrokerSettings:
    """Return settings of a broker; the argument a_b sets group.consumer.a.b.ms."""
    texts = {f"group.consumer.{name.replace('_', '.')}.ms": str(value) for name, value in given.items()}
    return BrokerSettings.of({Source.STATIC_BROKER: texts})


# Each text is the error with which Kafka 4.3.1 ends if it is started with these values.
@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"session_timeout": 44_999}, "session.timeout.ms must be greater than or equal to {}min.session.timeout.ms"),
        ({"session_timeout": 60_001}, "session.timeout.ms must be less than or equal to {}max.session.timeout.ms"),
        (
            {"min_session_timeout": 60_001},
            "max.session.timeout.ms must be greater than or equal to {}min.session.timeout.ms",
        ),
        (
            {"heartbeat_interval": 4_999},
            "heartbeat.interval.ms must be greater than or equal to {}min.heartbeat.interval.ms",
        ),
        (
            {"heartbeat_interval": 15_001},
            "heartbeat.interval.ms must be less than or equal to {}max.heartbeat.interval.ms",
        ),
        (
            {"max_heartbeat_interval": 4_999},
            "max.heartbeat.interval.ms must be greater than or equal to {}min.heartbeat.interval.ms",
        ),
        (
            {"heartbeat_interval": 45_000, "max_heartbeat_interval": 45_000},
            "heartbeat.interval.ms must be less than {}session.timeout.ms",
        ),
        (
            {"assignment_interval": 15_001},
            "assignment.interval.ms must be less than or equal to {}max.assignment.interval.ms",
        ),
        (
            {"min_assignment_interval": 1_001},
            "assignment.interval.ms must be greater than or equal to {}min.assignment.interval.ms",
        ),
        (
            {"min_assignment_interval": 15_001},
            "max.assignment.interval.ms must be greater than or equal to {}min.assignment.interval.ms",
        ),
        (
            {"session_timeout": 1, "heartbeat_interval": 1},  # of two that are wrong, the one that Kafka looks at first
            "heartbeat.interval.ms must be greater than or equal to {}min.heartbeat.interval.ms",
        ),
    ],
)
def test_a_group_default_outside_its_bounds_is_refused_with_kafkas_error_text(
    given: dict[str, int], refusal: str
) -> None:
    with pytest.raises(InvalidOption) as refused:
        of(**given)
    assert str(refused.value) == "group.consumer." + refusal.format("group.consumer.")


def test_the_hint_about_a_group_default_outside_its_bound_shows_value_and_bound() -> None:
    with pytest.raises(InvalidOption) as refused:
        of(session_timeout=10_000)
    assert refused.value.hint == (
        "group.consumer.session.timeout.ms is 10000, group.consumer.min.session.timeout.ms is 45000: set both"
    )


def test_a_group_default_equal_to_its_bound_is_accepted() -> None:
    settings = of(session_timeout=10, min_session_timeout=10, heartbeat_interval=9, min_heartbeat_interval=9)
    assert (settings.group_consumer_session_timeout_ms, settings.group_consumer_heartbeat_interval_ms) == (10, 9)
    assert of(session_timeout=60_000, heartbeat_interval=15_000, assignment_interval=15_000)


def test_a_dynamic_change_of_a_group_setting_outside_its_bounds_is_refused() -> None:
    settings = of(max_assignment_interval=2_000)
    name = "group.consumer.assignment.interval.ms"
    changed = settings.with_layer(Source.DYNAMIC_DEFAULT_BROKER, {name: "2000"})
    assert changed.group_consumer_assignment_interval_ms == 2_000
    with pytest.raises(InvalidOption, match=r"must be less than or equal to group\.consumer\.max\.assignment"):
        settings.with_layer(Source.DYNAMIC_DEFAULT_BROKER, {name: "2001"})
