"""Our authorizer and Kafka's StandardAuthorizer agree: on recorded questions, and on many more where its jars are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "authorizer"))

from deciding import is_question, kafkas, ours, questions  # noqa: E402

LIBRARIES = os.environ.get("KAFKA_LIBS", "")
RULE_SETS = int(os.environ.get("RULE_SETS", "1500"))


def test_the_authorizer_gives_the_2100_recorded_decisions_of_kafkas_authorizer() -> None:
    text = (HERE / "authorizer" / "decisions.tsv").read_text()
    lines = [line.split("\t") for line in text.splitlines()]
    asked = [line for line in lines if is_question(line)]
    assert len(asked) == 2100
    assert {line[-1] for line in asked if line[0] != "filter"} == {"yes", "no"}
    answers = ours(line[:-1] if is_question(line) else line for line in lines)
    assert [line for line, answer in zip(asked, answers, strict=True) if line[-1] != answer] == []


@pytest.mark.skipif(not LIBRARIES, reason="no Kafka to compare with: KAFKA_LIBS=the folder of its jars")
@pytest.mark.parametrize("seed", [2, 3])
def test_the_authorizer_decides_random_acl_checks_as_kafkas_java_class_does(seed: int) -> None:
    lines = list(questions(seed, RULE_SETS, 100))
    asked = [line for line in lines if is_question(line)]
    compared = zip(asked, ours(lines), kafkas(lines, LIBRARIES), strict=True)
    assert [(line, mine, theirs) for line, mine, theirs in compared if mine != theirs] == []
