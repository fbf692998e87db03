"""Our assignors beside Kafka's own, in a JVM, on the same bytes: the same assignment, member by member."""

import random
import subprocess
from collections.abc import Iterator

import pytest
from fencepost.client.assignors.assignment import LastAssignment
from fencepost.client.assignors.assignors import assignors_of
from fencepost.client.assignors.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from fencepost.client.values import TopicPartition
from java_clients import OPTIONS, SOURCE, jars_or_skip

NAMES = ["range", "roundrobin", "sticky", "cooperative-sticky"]
GENERATION = 5


class Java:
    def __init__(self, jvm: subprocess.Popen) -> None:
        self._jvm = jvm

    def __call__(self, *question: str) -> str:
        self._jvm.stdin.write("|".join(question) + "\n")
        self._jvm.stdin.flush()
        return self._jvm.stdout.readline().strip()


@pytest.fixture(scope="module")
def java(tmp_path_factory) -> Iterator[Java]:
    jars, classes = jars_or_skip(), tmp_path_factory.mktemp("classes")
    compiled = ["javac", "-nowarn", "-cp", jars, "-d", str(classes), str(SOURCE.parent / "Assignors.java")]
    subprocess.run(compiled, check=True, capture_output=True)
    options = [*OPTIONS[:-1], "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    command = ["java", *options, "-cp", f"{classes}:{jars}", "Assignors"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as jvm:
        yield Java(jvm)
        jvm.stdin.close()


def group(chance: random.Random, name: str) -> tuple[dict[str, int], dict[str, Subscription]]:
    """Return random topics and members. Some members had partitions, some of these in older generations or claimed
    twice.
    """
    topics = {f"t{number}": chance.choice([0, 1, 1, 2, 3, 5, 8]) for number in range(chance.randint(1, 5))}
    topics["t0"] = chance.choice([1, 2, 3, 7, 20])
    free = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
    chance.shuffle(free)
    alike, members = chance.random() < 0.5, {}
    for number in range(chance.randint(1, chance.choice([4, 8, 20]))):
        wanted = sorted(topics) if alike else chance.sample(sorted(topics), chance.randint(1, len(topics)))
        count = chance.choice([0, 0, 1, 2, 3, 5, 8])
        owned, free = free[:count], free[count:]
        if chance.random() < 0.1:
            owned += [TopicPartition(topic, 0) for topic in topics if topics[topic]]
        generation = chance.choice([5, 5, 5, 4, 3, -1]) if number else GENERATION
        if generation != GENERATION:  # Kafka gives such members back what they no longer want; we do not
            owned = [place for place in owned if place.topic in wanted]
        had = tuple(dict.fromkeys(owned))
        given = assignors_of([name])[0].user_data(LastAssignment(had, generation))
        instance = f"i{chance.randint(0, 99)}-{number}" if chance.random() < 0.3 else None
        kept = had if name == "cooperative-sticky" else ()
        member = f"member-{number}-{chance.getrandbits(64):x}"
        members[member] = Subscription(tuple(wanted), given, tuple(sorted(kept)), generation, None, instance)
    return topics, members


def read(answer: str) -> dict[str, set[TopicPartition]]:
    by_member = (each.split(";") for each in answer.split(" "))
    return {member: set(decode_assignment(bytes.fromhex(content)).partitions) for member, content in by_member}


@pytest.mark.parametrize("name", NAMES)
def test_the_sdks_assignors_assign_random_groups_the_same_partitions_as_javas(java, name):
    for seed in range(300):
        topics, members = group(random.Random(seed), name)
        given = " ".join(f"{m};{s.group_instance_id or ''};{encode_subscription(s).hex()}" for m, s in members.items())
        answer = java("assign", name, " ".join(f"{topic}:{count}" for topic, count in topics.items()), given)
        ours = assignors_of([name])[0].assign(topics, members)
        assert read(answer) == {member: set(places) for member, places in ours.items()}, f"seed {seed}"


def test_the_sdks_encoded_subscriptions_have_the_same_bytes_as_javas(java):
    owned = (TopicPartition("a", 0), TopicPartition("a", 3), TopicPartition("b", 1))
    for rack in (None, "r1"):
        written = encode_subscription(Subscription(("a", "b", "c"), b"\x01\x02", owned, 9, rack)).hex()
        assert java("again", written) == written


@pytest.mark.parametrize("name", NAMES)
def test_the_user_data_of_the_sdks_assignors_has_the_same_bytes_as_javas(java, name):
    places = (TopicPartition("t", 4), TopicPartition("t", 1))
    ours = assignors_of([name])[0].user_data(LastAssignment(places, 12))
    theirs = java("said", name, encode_assignment(Assignment(places)).hex(), "12", "t")
    assert theirs == ("none" if ours is None else ours.hex())
