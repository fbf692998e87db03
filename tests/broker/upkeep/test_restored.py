"""A directory restored from a backup: no client goes on with what it got from the broker that went on without it."""

import os

import pytest
import share_group_requests as share_groups
from backed_up import restored_beside, restored_copy
from broker_lives import small
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from fencepost.storage.backup.restore import mark_path
from group_client import alone, beating, joining, state_of
from ledger_client import decide, prepare, waiting
from long_runs import share_of
from named_requests import highest, opened, write
from produce_requests import create
from simulated_broker import SimulatedBroker
from txn_client import Txn, begun, offset_of, stable, state, values
from txn_oracle import Acknowledged, Ended, Given, Script, check
from txn_scripts import SCRIPTS

pytestmark = pytest.mark.sampled

REFUSED = ErrorCode.INVALID_PRODUCER_ID_MAPPING  # the transactional id has another producer id now
FEW = {"transaction_state_log_num_partitions": 2, "offsets_topic_num_partitions": 2}


def settings(**more):
    return small(group_initial_rebalance_delay_ms=0, **FEW | more)


@pytest.fixture
def origin():
    with SimulatedBroker(settings(), disk=SimulatedDisk()) as broker:
        broker.ask(create("a", 2))
        yield broker


def restored(origin, **more):
    """Make a backup of the broker now, and start another broker on the directory restored from it."""
    disk = restored_copy(origin.disk, origin.settings.log_dir)
    return SimulatedBroker(settings(**more), disk=disk, seed=7)


def given_producer_id(broker):
    return broker.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)).producer_id


def taking_over(txn, broker):
    """Return a producer that goes on at the second broker with the id and epoch that it has from the first."""
    other = Txn(broker, txn.name, txn.version)
    other.goes_on_as(txn.producer_id, txn.epoch)
    return other


def test_a_restored_broker_gives_no_producer_id_given_since_the_backup(origin):
    copy = restored(origin)
    later = [given_producer_id(origin) for _ in range(3)]
    with copy:
        assert given_producer_id(copy) > max(later) + 1_000_000_000
        assert begun(copy).producer_id > max(later) + 1_000_000_000


def test_a_restored_named_producer_is_fenced_until_opened_again(origin):
    """Its next epoch is far above all that the original may have given since the backup."""
    epoch = opened(origin, "sensor", a=2)
    write(origin, "sensor", epoch, 1, topic="a")
    with restored(origin) as copy:
        later = opened(origin, "after the backup", a=2)
        write(origin, "sensor", epoch, 2, topic="a")
        assert write(copy, "sensor", epoch, 3, topic="a").error_code == ErrorCode.PRODUCER_FENCED
        again = opened(copy, "sensor", a=2)
        assert again > later + 1_000_000_000
        assert opened(copy, "after the backup", a=2) > later + 1_000_000_000
        assert highest(copy, "sensor", again, "a") == {0: 1}
        assert write(copy, "sensor", again, 2, topic="a").error_code == 0
        assert values(copy, "a") == [b"1", b"2"]


@pytest.mark.parametrize("version", [1, 2])
def test_a_restored_open_transaction_is_aborted_and_its_producer_fenced(origin, version):
    """The next producer of the id can commit."""
    txn = begun(origin, version)
    txn.write("a", b"open")
    with restored(origin) as copy:
        zombie = taking_over(txn, copy)
        assert values(copy, "a") == []
        assert stable(copy, "a") == 2  # the record, and the marker that aborted it
        assert zombie.send("a", b"more", sequence=1) == REFUSED
        assert zombie.commit() == REFUSED
        assert values(copy, "a") == []
        successor = begun(copy, version)
        successor.write("a", b"again")
        assert successor.commit() == 0
        assert values(copy, "a") == [b"again"]


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_begun_after_the_backup_cannot_be_committed(origin, version):
    """With protocol version 1 producer id and epoch did not change since the commit in the backup, so the new commit
    would succeed as a retry of that one.
    """
    txn = begun(origin, version)
    txn.write("a", b"one")
    assert txn.commit() == 0
    copy = restored(origin)
    txn.write("a", b"lost")
    with copy:
        assert taking_over(txn, copy).commit() == REFUSED
        assert values(copy, "a") == [b"one"]


def test_no_producer_id_and_epoch_issued_since_the_backup_is_issued_again(origin):
    txn = begun(origin)
    copy = restored(origin)
    pairs = {(txn.producer_id, txn.epoch)}
    for _ in range(5):
        assert txn.init() == 0
        pairs.add((txn.producer_id, txn.epoch))
    with copy:
        other = Txn(copy, txn.name)
        for _ in range(5):
            assert other.init() == 0
            assert (other.producer_id, other.epoch) not in pairs


def test_a_restored_prepared_transaction_can_be_decided_and_fences_its_producer(origin):
    """The next producer id is far above all that the original may have given since the backup."""
    txn = begun(origin, 2)
    txn.write("a", b"prepared")
    assert prepare(txn).error_code == 0
    with restored(origin) as first, first.again() as copy:
        assert waiting(copy) == [("x", 1)]
        assert values(copy, "a") == []
        assert decide(copy, txn).error_code == 0
        assert values(copy, "a") == [b"prepared"]
        assert taking_over(txn, copy).send("a", b"zombie", sequence=1) == REFUSED
        successor = begun(copy, 2)
        assert successor.producer_id > txn.producer_id + 1_000_000_000


def test_offsets_of_a_restored_open_transaction_are_not_committed(origin):
    txn = begun(origin)
    txn.write_offset("a", 5)
    with restored(origin) as copy:
        assert offset_of(copy, "a", stable=True) == -1


def test_a_restored_share_group_keeps_its_offsets_and_its_members_rejoin(origin):
    assert share_groups.beat(origin, "m-1", 0, topics=("a",)).member_epoch == 2
    begun = share_groups.starts(origin, topic="a")
    with restored(origin) as copy:
        assert share_groups.beat(copy, "m-1", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert share_groups.beat(copy, "m-1", 0, topics=("a",)).member_epoch == 4
        assert share_groups.starts(copy, topic="a") == begun


def test_a_restored_group_is_empty_and_its_members_have_to_join_again(origin):
    member_id, generation = alone(origin)
    with restored(origin) as copy:
        assert state_of(copy) == "Empty"
        assert copy.ask(beating("g", member_id, generation)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert copy.ask(joining("g", member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        _, later = alone(copy)
        assert later > generation
    assert state_of(origin) == "Stable"


def test_a_restored_directory_gets_new_producer_ids_only_at_its_first_start(origin):
    """The first start gives new producer ids and removes the mark; the second start goes on with those ids."""
    txn = begun(origin)
    with restored(origin) as copy:
        assert not copy.disk.exists(mark_path(copy.settings.log_dir))
        assert begun(copy).producer_id > txn.producer_id
        pair = Txn(copy, "x")
        assert pair.init() == 0
        with copy.again() as again:
            other = Txn(again, "x")
            assert other.init() == 0
            assert (other.producer_id, other.epoch) == (pair.producer_id, pair.epoch + 1)


@pytest.mark.slow
def test_a_restored_directory_fences_producers_also_if_its_first_start_lost_power(origin):
    txn = begun(origin)
    txn.write("a", b"open")
    directory = origin.settings.log_dir
    disk = restored_copy(origin.disk, directory)
    before = len(disk.operations)
    states = set()
    SimulatedBroker(settings(), disk=disk, seed=7).abandon()
    for n in range(before, len(disk.operations) + 1, 7):
        image = disk.at(n)
        with SimulatedBroker(settings(), disk=image, seed=8) as copy:
            assert not image.exists(mark_path(directory))
            assert taking_over(txn, copy).commit() == REFUSED
            states.add(state(copy))
    # Empty if the first start had already aborted the transaction, so that the second found none.
    assert states == {"CompleteAbort", "Empty"}


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_backup_taken_during_a_transaction_has_the_whole_transaction_or_nothing(script):
    recorded = SimulatedDisk()
    stage = Script(recorded)
    script(stage)
    stage.over()
    count = int(os.environ.get("BACKUP_MOMENTS", share_of(4)))
    begin, end = stage.begins_at, len(recorded.operations)
    for each in range(count):
        first, pace = begin + (end - begin) * each // count, (1, 5, 25)[each % 3]
        try:
            image, ended = restored_beside(recorded, first, pace, stage.broker.settings.log_dir, seed=each)
            # What the broker told clients after the backup began need not be in it.
            facts = (Acknowledged, Ended, Given)
            for note in recorded.notes_at(first):
                image.note(note)
            for note in recorded.notes_at(ended)[len(recorded.notes_at(first)) :]:
                if not isinstance(note, facts):
                    image.note(note)
            check(image)
        except BaseException as error:
            error.add_note(f"{script.__name__}: begun at {first}, {pace} operations between two looks")
            raise
