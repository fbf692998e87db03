"""Whatever users ask and however rules change: the fast paths answer what the handlers would have answered."""

from typing import Any

import pytest
from acl_client import guarded
from guarded_broker import Guarded
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import share_of
from produce_requests import answers, batch, create, idempotent, produce
from simulated_broker import SimulatedBroker
from txn_client import Txn

USERS = st.sampled_from(["alice", "bob"])
TOPICS = st.sampled_from(["t", "t", "u", "none"])
RULES = st.builds(
    "{} User:{} WRITE {}".format,
    st.sampled_from(["allow", "allow", "deny"]),
    st.sampled_from(["alice", "alice", "bob", "*"]),
    st.sampled_from(["TOPIC = t", "TOPIC = *", "TOPIC ^ u", "TRANSACTIONAL_ID = x"]),
)
STEPS = st.one_of(
    st.tuples(st.just("write"), USERS, TOPICS),
    st.tuples(st.just("write_in_transaction"), USERS, TOPICS),
    st.tuples(st.just("add"), USERS, TOPICS),
    st.tuples(st.just("end"), USERS, st.booleans()),
    st.tuples(st.just("add_and_end"), USERS, USERS),
    st.tuples(st.just("allow"), RULES),
    st.tuples(st.just("forget"), st.sampled_from(["alice", "bob", "*"])),
)
EVERYTHING = ["allow User:alice WRITE TOPIC = *", "allow User:alice WRITE TRANSACTIONAL_ID = *"]


class Script:
    """Steps on one broker: users write, end or add to the one transaction of `x`, whoever has begun it, and ACLs
    change.
    """

    def __init__(self, broker: SimulatedBroker, *, fast: bool) -> None:
        self.world = Guarded(broker)
        self.world.as_user("root", lambda: broker.ask(create("u")))
        if not fast:
            broker.broker._serve.__self__.fast_paths.clear()  # type: ignore[attr-defined]
        self.world.have(*EVERYTHING)
        self.txn = Txn(broker, client=self.world.client)
        self.world.as_user("root", self.txn.init)
        self.sequences = {"t": 0, "u": 0, "none": 0}

    def write(self, user: str, topic: str) -> Any:
        return answers(self._ask(user, produce(topic, batch()), 11))

    def write_in_transaction(self, user: str, topic: str) -> Any:
        pair = {"producer_id": self.txn.producer_id, "epoch": self.txn.epoch}
        made = idempotent(self.sequences[topic], transactional=True, **pair)
        got = answers(self._ask(user, produce(topic, made, transactional_id="x"), 11))
        self.sequences[topic] += got[0][0] == 0
        return got

    def add(self, user: str, topic: str) -> Any:
        return self.world.as_user(user, lambda: self.txn.add(topic, 0))

    def end(self, user: str, commit: bool) -> Any:
        return self.world.as_user(user, lambda: self.txn.end(commit, version=3))

    def add_and_end(self, one: str, other: str) -> Any:
        return self.add(one, "t"), self.end(other, True)

    def allow(self, rule: str) -> None:
        self.world.have(rule)

    def forget(self, user: str) -> None:
        self.world.have_no_more(user)

    def _ask(self, user: str, request: Any, version: int) -> Any:
        return self.world.as_user(user, lambda: self.world.client.ask(request, version))


def outcome(steps: list[Any], *, fast: bool) -> tuple[list[Any], Any]:
    """Run the steps. Returns (the answers, all records that were written)."""
    with SimulatedBroker(guarded(super_users="User:root")) as broker:
        script = Script(broker, fast=fast)
        return [getattr(script, name)(*more) for name, *more in steps], script.world.written()


@pytest.mark.slow
@settings(max_examples=share_of(60), deadline=None)
@given(st.lists(STEPS, min_size=6, max_size=14))
def test_users_with_any_rights_get_the_same_answers_with_and_without_fast_paths(steps: list[Any]) -> None:
    assert outcome(steps, fast=True) == outcome(steps, fast=False)
