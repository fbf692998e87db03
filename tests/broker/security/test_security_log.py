"""The security log: the same rules after a restart, a power cut and compaction; and no start without all of it."""

import logging

import pytest
from acl_client import creating, deleting, described, guarded, rule
from broker_lives import slow, small, unplug
from fencepost.broker.config.security_settings import STANDARD_AUTHORIZER
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.security import security_log
from fencepost.broker.security.acl_records import DamagedAclRecord, NewerAclRecord, acl_added, acl_removed
from fencepost.broker.security.credentials import Mechanism, credential_from, credential_removed, credential_set
from fencepost.broker.security.security_log import NewerSecurityLog, SecurityLogDamaged
from fencepost.broker.security.security_state import UnknownRecord
from fencepost.broker.topics.catalogue import security_log_made
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.storage.layout import CATALOGUE_LOG_ID
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

ALLOW, DENY = "allow User:alice READ TOPIC = orders", "deny User:* ALL GROUP ^ o @10.0.0.1"
OTHER = "allow User:bob WRITE TRANSACTIONAL_ID = *"
FOLDER = "/d/logs/__security-0.1"


def folders(broker: SimulatedBroker) -> list[str]:
    return [log.directory for log in broker.broker.store.logs.values() if log.topic == "__security"]


def test_the_security_log_is_created_with_the_first_acl() -> None:
    """Describing or deleting ACLs does not create it. It is a log and no topic."""
    with SimulatedBroker(guarded(log_dir="/d")) as broker:
        assert described(broker) == []
        broker.ask(creating())
        broker.ask(deleting({}))
        assert folders(broker) == []
        for text in (ALLOW, DENY):
            broker.ask(creating(text))
        assert folders(broker) == [FOLDER]
        assert broker.broker.topics.catalogue.security_log == 1
        assert not broker.broker.topics.by_name, "it is no topic"
        with broker.again() as restarted:
            restarted.ask(creating(OTHER))
            assert folders(restarted) == [FOLDER]


def test_all_acls_of_a_request_are_written_in_one_journal_entry() -> None:
    with SimulatedBroker(guarded()) as broker:
        store = broker.broker.store
        broker.ask(creating(OTHER))
        before = store.last_unit
        broker.ask(creating(ALLOW, DENY, OTHER, ALLOW))
        assert store.last_unit == before + 1
        broker.ask(creating(ALLOW, DENY))
        assert store.last_unit == before + 1, "they are there"
        broker.ask(deleting({"principal_filter": "User:alice"}, {"principal_filter": "User:*"}))
        assert store.last_unit == before + 2


@pytest.mark.slow
@pytest.mark.parametrize("flushed", [False, True])
def test_acls_survive_a_restart_and_a_power_cut(flushed: bool) -> None:
    broker = SimulatedBroker(guarded())
    broker.ask(creating(ALLOW, DENY, OTHER))
    if flushed:
        broker.wait(60)
    broker.ask(deleting({"principal_filter": "User:bob"}))
    with broker.after_power_cut() as unplugged:
        assert described(unplugged) == [ALLOW, DENY]
        unplugged.ask(creating(OTHER))
        with unplugged.again() as restarted:
            assert described(restarted) == [ALLOW, OTHER, DENY]
            assert restarted.broker.store.logs[1].settings.compacts


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["interval", "os"])
def test_answered_acl_changes_survive_a_power_cut_in_modes_interval_and_os(mode: str) -> None:
    with SimulatedBroker(guarded(durability_mode=mode, durability_interval_ms=60_000)) as broker:
        broker.ask(creating(ALLOW, DENY))
        broker.ask(deleting({"principal_filter": "User:alice"}))
        with broker.after_power_cut() as unplugged:
            assert described(unplugged) == [DENY]


def test_a_new_acl_is_not_answered_before_it_is_durable() -> None:
    """Neither its creation nor a description of it is answered before; the same holds for a removal."""
    disk = SimulatedDisk()
    delays = slow(disk, journal=0.001)
    settings = small(authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:ANONYMOUS")
    with SimulatedBroker(settings, disk=disk) as broker:
        broker.ask(creating(OTHER))
        delays["journal"] = 1.0
        for request in (creating(ALLOW), creating(ALLOW), deleting({"principal_filter": "User:bob"}), deleting({})):
            client = SimulatedClient(broker)
            client.send(request)
            assert client.quiet(0.1)
        left = unplug(broker)
    with SimulatedBroker(settings, disk=left, seed=9) as after:
        assert described(after) == [OTHER]


@pytest.mark.slow
def test_compaction_shrinks_the_security_log_and_keeps_its_acls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security_log, "SEGMENT_BYTES", 8_000)
    with SimulatedBroker(guarded(log_cleaner_backoff_ms=100)) as broker:
        broker.ask(creating(ALLOW, DENY))
        for _ in range(100):
            broker.ask(creating(OTHER))
            broker.ask(deleting({"principal_filter": "User:bob"}))
        log = broker.broker.store.logs[1]
        whole = log.size_bytes
        broker.wait(120)
        assert log.size_bytes < whole / 1.5
        with broker.after_power_cut() as unplugged:
            assert described(unplugged) == [ALLOW, DENY]


def test_users_and_acls_are_kept_in_the_same_log() -> None:
    credential = credential_from(Mechanism.SHA_512, b"s" * 64, b"salt", 4096)
    with SimulatedBroker() as broker:
        log = broker.broker.security_log
        log.commit([credential_set("alice", credential), credential_set("bob", credential), acl_added(rule(ALLOW))])
        log.commit([credential_removed("bob", Mechanism.SHA_512)])
        broker.wait(0.1)
        with broker.after_power_cut() as unplugged:
            state = unplugged.broker.security_log.state
            assert list(state.users.names) == ["alice"]
            assert list(state.users.of("alice")) == [credential]
            assert list(state.authorizer) == [rule(ALLOW)]


def test_without_disk_space_acl_changes_get_kafka_storage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with SimulatedBroker(guarded()) as broker:
        broker.ask(creating(ALLOW))
        store = broker.broker.store
        before = store.last_unit
        monkeypatch.setattr(store, "admits", lambda *_, **__: False)
        with pytest.raises(KafkaError) as refused:
            broker.broker.security_log.commit([acl_removed(rule(ALLOW))])
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        results = [*broker.ask(creating(DENY, ALLOW)).results, *broker.ask(deleting({}, {})).filter_results]
        assert [each.error_code for each in results] == [ErrorCode.KAFKA_STORAGE_ERROR] * 4
        assert store.last_unit == before
        assert described(broker) == [ALLOW]


# ---- what does not start -------------------------------------------------------------------------------------


def stopped(*rules: str) -> SimulatedDisk:
    """Return a disk with these rules in segments, and without a journal."""
    broker = SimulatedBroker(guarded(log_dir="/d"))
    broker.ask(creating(*rules))
    broker.wait(60)
    disk = broker.disk
    broker.stop()
    return disk


def started(disk: SimulatedDisk) -> SimulatedBroker:
    return SimulatedBroker(guarded(log_dir="/d"), disk=disk)


@pytest.mark.slow
def test_the_broker_refuses_to_start_with_a_damaged_security_log() -> None:
    disk = stopped(ALLOW, DENY)
    (name,) = (name for name in disk.list(FOLDER) if name.endswith(".log"))
    file = disk.open(f"{FOLDER}/{name}")
    size = file.size()
    for position in (3, 20, 70, 100, size - 1):
        (byte,) = file.read(1, position)
        file.write([bytes([byte ^ 4])], position)
        with pytest.raises(SecurityLogDamaged, match=f"{FOLDER}: from offset 0 on: .*restore this folder from a copy"):
            started(disk)
        file.write([bytes([byte])], position)
    with started(disk) as mended:
        assert described(mended) == [ALLOW, DENY]
    file.close()


@pytest.mark.slow
def test_a_damaged_security_log_prevents_a_start_without_authorizer_too() -> None:
    disk = stopped(ALLOW)
    (name,) = (name for name in disk.list(FOLDER) if name.endswith(".log"))
    file = disk.open(f"{FOLDER}/{name}")
    file.truncate(file.size() - 1)
    file.close()
    with pytest.raises(SecurityLogDamaged):
        SimulatedBroker(BrokerSettings(log_dir="/d"), disk=disk)


def test_a_damaged_security_log_is_restored_from_a_copy_and_the_journal() -> None:
    broker = SimulatedBroker(guarded(log_dir="/d"))
    broker.ask(creating(ALLOW))
    broker.wait(60)
    broker.ask(creating(DENY))
    disk = broker.disk.after_process_crash()
    broker.abandon()
    (name,) = (name for name in disk.list(FOLDER) if name.endswith(".log"))
    file = disk.open(f"{FOLDER}/{name}")
    copy = file.read(file.size(), 0)
    file.write([b"?"], 70)
    for _ in range(2):
        with pytest.raises(SecurityLogDamaged, match="restore this folder from a copy"):
            started(disk)
    file.truncate(0)
    file.write([copy], 0)
    file.close()
    with started(disk) as mended:
        assert described(mended) == [ALLOW, DENY]


def test_a_missing_security_log_folder_prevents_the_start() -> None:
    disk = stopped(ALLOW, DENY)
    disk.remove_tree(FOLDER)
    with pytest.raises(SecurityLogDamaged, match=FOLDER):
        started(disk)


def test_a_security_log_known_only_to_the_catalogue_prevents_the_start() -> None:
    broker = SimulatedBroker(guarded(log_dir="/d"))
    broker.broker.topics.commit([security_log_made(77)], [])
    broker.wait(0.1)
    with pytest.raises(SecurityLogDamaged, match="names log 77"):
        broker.again()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("record", "applying", "kind"),
    [
        ((b"\x92\xa5other\x01", b""), UnknownRecord, NewerSecurityLog),
        ((acl_added(rule(ALLOW))[0], b"\x91\x01"), NewerAclRecord, NewerSecurityLog),
        ((acl_added(rule(ALLOW))[0], b"\x91\xa1x"), DamagedAclRecord, SecurityLogDamaged),
        ((b"\xc1", b""), DamagedAclRecord, SecurityLogDamaged),
    ],
)
def test_a_newer_or_damaged_security_record_prevents_the_start(
    record: tuple[bytes, bytes], applying: type[Exception], kind: type[Exception]
) -> None:
    broker = SimulatedBroker(guarded(log_dir="/d"))
    broker.ask(creating(ALLOW))
    with pytest.raises(applying):  # the record is written, and then refused when it is applied
        broker.broker.security_log.commit([record])
    broker.wait(0.1)
    with pytest.raises(kind, match=FOLDER):
        broker.again()


@pytest.mark.slow
def test_a_start_with_stored_acls_and_no_authorizer_logs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    disk = stopped(ALLOW, DENY)
    with caplog.at_level(logging.WARNING), SimulatedBroker(BrokerSettings(log_dir="/d"), disk=disk) as broker:
        assert "2 rules of access are kept and not enforced: set authorizer.class.name" in caplog.text
        assert broker.broker.store.logs[CATALOGUE_LOG_ID]
        disk = broker.disk
    with started(disk) as again:
        assert described(again) == [ALLOW, DENY]
