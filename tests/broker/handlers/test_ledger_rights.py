"""With an authorizer nobody decides, prepares or sees the transactions of others: a refusal changes nothing."""

from collections.abc import Iterator

import pytest
from acl_client import guarded
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.ledger import DescribeLedgerRequest, RemoveLedgerEntriesRequest
from guarded_broker import Guarded
from ledger_client import deciding, prepare
from simulated_broker import SimulatedBroker
from txn_client import Txn

OK = ErrorCode.NONE
NO_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.fixture
def world() -> Iterator[Guarded]:
    with SimulatedBroker(guarded(super_users="User:root", transaction_two_phase_commit_enable=True)) as broker:
        yield Guarded(broker)


def begun(world: Guarded, name: str) -> Txn:
    """Begin a transaction as user root, and write a record in it."""
    txn = Txn(world.broker, name, client=world.client)

    def begin() -> None:
        assert txn.init() == OK
        txn.write("t", b"v")

    world.as_user("root", begin)
    return txn


def prepared(world: Guarded, name: str, number: int = 1) -> Txn:
    txn = begun(world, name)
    assert world.as_user("root", lambda: prepare(txn, number).error_code) == OK
    return txn


def waiting(world: Guarded, user: str = "root") -> list[str]:
    """Return the ids of the prepared transactions that this user is shown."""
    answer = world.as_user(user, lambda: world.client.ask(DescribeLedgerRequest(keys=None)))
    return sorted(each.transactional_id for key in answer.keys for each in key.waiting)


def test_a_ledger_decision_needs_rights_on_the_key_and_on_each_transaction(world: Guarded) -> None:
    mine, others = prepared(world, "mine-1"), prepared(world, "others-1")
    request = deciding(mine, others)
    answer = world.as_user("alice", lambda: world.client.ask(request))
    assert (answer.error_code, answer.refused, answer.entry) == (NO_ID, [], None)
    world.have("allow User:alice WRITE TRANSACTIONAL_ID = sink", "allow User:alice WRITE TRANSACTIONAL_ID ^ mine-")
    answer = world.as_user("alice", lambda: world.client.ask(request))
    assert answer.error_code == NO_ID
    assert [(each.transactional_id, each.error_code) for each in answer.refused] == [("others-1", NO_ID)]
    assert waiting(world) == ["mine-1", "others-1"]
    world.have("allow User:alice WRITE TRANSACTIONAL_ID ^ others-")
    assert world.as_user("alice", lambda: world.client.ask(request)).error_code == OK
    assert waiting(world) == []


def test_write_on_a_ledger_key_allows_to_abort_all_transactions_prepared_for_it(world: Guarded) -> None:
    """Preparing a transaction under a key needs the right to write that key, so its owner has agreed to this."""
    mine = prepared(world, "mine-1")
    prepared(world, "others-1")
    world.have("allow User:alice WRITE TRANSACTIONAL_ID = sink", "allow User:alice WRITE TRANSACTIONAL_ID ^ mine-")
    answer = world.as_user("alice", lambda: world.client.ask(deciding(mine)))
    assert (answer.error_code, answer.aborted) == (OK, 1)
    assert waiting(world) == []


def test_prepare_needs_write_on_id_and_key_and_two_phase_commit_without_a_timeout(world: Guarded) -> None:
    txn = begun(world, "mine-1")

    def ask(timeout_ms: int = 1000) -> int:
        return int(world.as_user("alice", lambda: prepare(txn, timeout_ms=timeout_ms).error_code))

    assert ask() == NO_ID
    world.have("allow User:alice WRITE TRANSACTIONAL_ID = mine-1")
    assert ask() == NO_ID
    world.have("allow User:alice WRITE TRANSACTIONAL_ID = sink")
    assert ask(timeout_ms=-1) == NO_ID
    assert waiting(world) == []
    world.have("allow User:alice TWO_PHASE_COMMIT TRANSACTIONAL_ID = mine-1")
    assert ask(timeout_ms=-1) == OK
    assert waiting(world) == ["mine-1"]


def test_a_held_transaction_is_named_only_to_users_who_may_describe_it(world: Guarded) -> None:
    """To prepare with a hold, a user needs the same rights as to prepare without one."""
    txn = begun(world, "mine-1")

    def ask(timeout_ms: int = 1_000_000) -> int:
        return int(world.as_user("alice", lambda: prepare(txn, timeout_ms=timeout_ms, hold=True).error_code))

    world.have("allow User:alice WRITE TRANSACTIONAL_ID = sink")
    assert ask() == NO_ID
    world.have("allow User:alice WRITE TRANSACTIONAL_ID = mine-1")
    assert ask(timeout_ms=-1) == NO_ID  # without a timeout it needs the right TWO_PHASE_COMMIT too
    assert ask() == OK
    world.have("allow User:bob WRITE TRANSACTIONAL_ID = sink")
    answer = world.as_user("bob", lambda: world.client.ask(deciding(committed=False)))
    assert (answer.error_code, answer.refused) == (ErrorCode.INVALID_TXN_STATE, [])
    assert "are held" in answer.error_message
    world.have("allow User:bob DESCRIBE TRANSACTIONAL_ID = mine-1")
    answer = world.as_user("bob", lambda: world.client.ask(deciding(committed=False)))
    assert [each.transactional_id for each in answer.refused] == ["mine-1"]
    assert waiting(world) == ["mine-1"]


def test_describe_ledger_shows_only_entries_that_the_user_may_describe(world: Guarded) -> None:
    prepared(world, "mine-1")
    prepared(world, "others-1")
    world.have("allow User:alice DESCRIBE TRANSACTIONAL_ID ^ mine-")
    assert waiting(world, "alice") == []
    world.have("allow User:alice DESCRIBE TRANSACTIONAL_ID = sink")
    assert waiting(world, "alice") == ["mine-1"]

    def named(*keys: str) -> list[int]:
        answer = world.as_user("alice", lambda: world.client.ask(DescribeLedgerRequest(keys=list(keys))))
        return [key.error_code for key in answer.keys]

    assert named("sink", "none") == [OK, NO_ID]
    assert named("others", "none") == [NO_ID, NO_ID], "the answer does not tell whether the key exists"


def test_a_ledger_key_with_only_hidden_transactions_seems_not_to_exist(world: Guarded) -> None:
    prepared(world, "others-1")
    world.have("allow User:alice DESCRIBE TRANSACTIONAL_ID = sink", "allow User:alice DESCRIBE TRANSACTIONAL_ID = none")

    def described(keys: list[str] | None) -> list[int]:
        answer = world.as_user("alice", lambda: world.client.ask(DescribeLedgerRequest(keys=keys)))
        return [key.error_code for key in answer.keys]

    assert described(["sink", "none"]) == [ErrorCode.RESOURCE_NOT_FOUND] * 2
    assert described(None) == []


def test_deleting_ledger_entries_needs_alter_on_the_cluster(world: Guarded) -> None:
    mine = prepared(world, "mine-1")
    assert world.as_user("root", lambda: world.client.ask(deciding(mine))).error_code == OK
    world.have("allow User:alice ALL TRANSACTIONAL_ID = *")
    request = RemoveLedgerEntriesRequest(keys=["sink"])

    def removed() -> list[int]:
        return [key.error_code for key in world.as_user("alice", lambda: world.client.ask(request)).keys]

    assert removed() == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    world.have("allow User:alice ALTER CLUSTER = kafka-cluster")
    assert removed() == [OK]


def test_init_producer_id_without_rights_on_the_id_fences_no_producer(world: Guarded) -> None:
    txn = begun(world, "mine-1")
    thief = Txn(world.broker, "mine-1", client=world.client)
    assert world.as_user("alice", thief.init) == NO_ID
    assert world.as_user("root", lambda: [txn.send("t", b"w"), txn.commit()]) == [OK, OK]
