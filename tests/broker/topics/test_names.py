"""Names of topics: Kafka's rules, in Kafka's words."""

import pytest
from fencepost.broker.topics.names import check_collision, check_name, unify
from fencepost.protocol.errors import ErrorCode, KafkaError

CHARACTERS = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a b", f"'a b' {CHARACTERS}"),
        ("é", f"'é' {CHARACTERS}"),
        ("a/../b", f"'a/../b' {CHARACTERS}"),
        ("a\0b", f"'a\0b' {CHARACTERS}"),
        ("a\n", f"'a\n' {CHARACTERS}"),
        ("٣", f"'٣' {CHARACTERS}"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
        ("x" * 300, f"the length of '{'x' * 300}' is longer than the max allowed length 249"),
    ],
)
def test_a_topic_name_that_kafka_refuses_is_refused_with_kafkas_error_text(name: str, reason: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_name(name)
    assert refused.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refused.value.detail == f"Topic name is invalid: {reason}"


@pytest.mark.parametrize("name", ["a", "...", "-", "_", "A.b_C-9", "x" * 249, "__consumer_offsets"])
def test_topic_names_that_kafka_accepts_are_accepted(name: str) -> None:
    check_name(name)


def test_a_topic_name_that_differs_only_in_dots_or_underscores_is_refused() -> None:
    assert unify("a.b_c") == unify("a_b.c")
    with pytest.raises(KafkaError, match=r"Topic 'a_b\.c' collides with existing topic: a\.b_c") as refused:
        check_collision("a_b.c", ["a.b_c"])
    assert refused.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    check_collision("a.b", [])
