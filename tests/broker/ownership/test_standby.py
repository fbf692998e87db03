"""A broker that fetches the checkpoints of an owner while it waits, and takes over when the owner is gone."""

import asyncio
import errno
from collections import Counter
from collections.abc import Callable

import pytest
from fencepost.broker.config.options import InvalidOption
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.listeners.listeners import Listeners
from fencepost.broker.ownership import candidate
from fencepost.broker.ownership.alive import LOOKS_A_LEASE
from fencepost.broker.ownership.other_nodes import OtherNodes
from fencepost.broker.ownership.owner import InStore
from fencepost.broker.ownership.standby import Standby
from fencepost.effects.disk import DiskFull
from fencepost.effects.objects import Refused
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.net import SimulatedNet
from fencepost.effects.simulated.objects import Faults, SimulatedObjects
from fencepost.protocol.batches import walk
from fencepost.protocol.errors import ErrorCode
from fencepost.storage.objects import format as form
from fencepost.storage.objects.creating import create_seal
from fencepost.storage.objects.errors import Overtaken
from fencepost.storage.objects.fence import Place
from fencepost.storage.objects.kept import KeptRounds, ReadingAhead
from fencepost.storage.recovery import open_store
from owner_driver import Owning, pause
from produce_requests import answers, batch, bytes_of, create, fetch, fetched, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

LEASE_S = BrokerSettings.store_lease_ms / 1000
SETTINGS = BrokerSettings(node_id=2, offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1)


def serve(objects: SimulatedObjects, disk: SimulatedDisk | None = None, *, is_standby: bool = True) -> SimulatedBroker:
    in_store = InStore(objects, lambda seconds: None, is_standby=is_standby)
    return SimulatedBroker(SETTINGS, disk=disk, in_store=in_store)


def batches(broker: SimulatedBroker) -> int:
    """Return how many batches a consumer reads."""
    return len(list(walk(memoryview(bytes_of(fetched(SimulatedClient(broker).ask(fetch("t"), 11)))))))


def begin(objects: SimulatedObjects) -> SimulatedDisk:
    """Let an owner create a topic with one batch of two records, and die. Returns its disk."""
    first = serve(objects.client())
    first.ask(create("t"))
    assert answers(first.ask(produce("t", batch(2)), 11)) == [(ErrorCode.NONE, 0)]
    first.wait(60)
    first.abandon()
    return first.disk.after_process_crash()


class OwnerAtWork:
    """An owner that sends a record whenever another client looks at a round, and sometimes takes a point."""

    def __init__(self, objects: SimulatedObjects, disk: SimulatedDisk, looks: int, *, hands_over: bool = False) -> None:
        self.sent = 0
        self.hands_over = hands_over
        self.left = looks
        self._owner = Owning(objects.client(), disk, identity=form.read_identity(objects.content[form.IDENTITY_NAME]))
        self._is_busy = False

    def look(self, call: str, name: str) -> None:
        if not self.left or self._is_busy or not (call == "read" and name.startswith(form.JOURNAL)):
            return
        self._is_busy = True
        self.left -= 1
        self._owner.send("t", b"one more")
        self.sent += 1
        if self.left % 10 == 5:
            self._owner.point()
        if self.hands_over and not self.left:
            create_seal(self._owner.objects, self._owner.store.journal.end(), pause)
        self._is_busy = False


def test_a_standby_reads_no_part_of_a_checkpoint_once_it_takes_over():
    objects = SimulatedObjects()
    owner = OwnerAtWork(objects, begin(objects), looks=43)
    seen = objects.client()
    seen.before_each = owner.look
    second = serve(seen)
    assert batches(second) == 1 + owner.sent == 44
    claimed = next(n for n, (call, name) in enumerate(seen.calls) if call == "create" and name.startswith(form.CLAIMS))
    parts = [n for n, (call, name) in enumerate(seen.calls) if call == "read" and name.startswith("0/parts/")]
    assert parts
    assert max(parts) < claimed
    assert answers(second.ask(produce("t", batch(1)), 11)) == [(ErrorCode.NONE, 45)]
    second.stop()


def test_a_standby_reads_each_new_round_of_an_owner_once():
    objects = SimulatedObjects()
    owner = OwnerAtWork(objects, begin(objects), looks=30)
    seen, reads = objects.client(), Counter[str]()
    seen.before_each, read = owner.look, seen.read

    def count(name: str, start: int = 0, length: int | None = None) -> bytes:
        content = read(name, start, length)  # raises Missing for a round that is asked for before it is there
        reads[name] += form.claim_name(3) not in objects.content  # it takes over with this claim, and may read again
        return content

    seen.read = count
    second = serve(seen)
    rounds = [form.place_name(Place(2, number)) for number in range(10, 30)]
    assert [reads[name] for name in rounds] == [1] * len(rounds)
    second.stop()


@pytest.mark.parametrize("is_standby", [True, False])
def test_a_takeover_reads_each_round_once_and_a_standby_reads_most_before_its_claim(is_standby):
    objects = SimulatedObjects()
    owner = serve(objects.client())
    owner.ask(create("t"))
    for _ in range(30):
        owner.ask(produce("t", batch(1)), 11)
    seen = objects.client()
    owner.abandon()
    second = serve(seen, is_standby=is_standby)
    claimed = seen.calls.index(("create", form.claim_name(2)))
    *rounds, _seal = [name for name in objects.content if name.startswith("0/journal/0000000001")]
    assert len(rounds) > 30  # each produce request took one at least
    # A broker that waits asks again and again for the round after the last one, whose name the seal has later.
    reads = [(n, name) for n, (call, name) in enumerate(seen.calls) if call == "read" and name in rounds]
    after = [name for n, name in reads if n > claimed]
    assert (len(after) < 10) == is_standby  # a standby has read most rounds before
    # Reading each round twice would exceed these bounds.
    assert len(reads) < 1.5 * len(rounds)
    assert len(after) < 1.5 * len(rounds)
    assert batches(second) == 30
    second.stop()


def test_a_standby_takes_over_without_waiting_a_lease_once_the_owner_hands_over():
    objects = SimulatedObjects()
    owner = OwnerAtWork(objects, begin(objects), looks=23, hands_over=True)
    seen = objects.client()
    seen.before_each = owner.look
    second = serve(seen)
    assert batches(second) == 1 + owner.sent == 24
    assert second.loop.time() < 4  # a lease is 6 s
    second.stop()


def test_a_standby_makes_five_calls_from_the_owners_seal_to_its_own_first_round():
    """Each call takes some 30 ms at a real store, and until that round is there nobody serves."""
    objects = SimulatedObjects()
    owner = OwnerAtWork(objects, begin(objects), looks=23, hands_over=True)
    seen = objects.client()
    seen.before_each = owner.look
    second = serve(seen)
    claim, first_round = ("create", form.claim_name(3)), ("create", form.place_name(Place(3, 0)))
    begins = max(n for n, (_, name) in enumerate(seen.calls) if name.startswith("0/journal/0000000002/")) + 1
    made = seen.calls[begins : seen.calls.index(first_round) + 1]
    point = [each for each in made if each[1].startswith(("0/points/", "0/parts/"))]
    assert point[0][0] == "read"
    assert [each for each in made if each not in point] == [
        ("list", form.CLAIMS),
        claim,
        ("list", form.JOURNAL),
        first_round,
    ]
    second.stop()


class Reservations:
    """What brokers do with their ports before they serve. happened: in order; `claims` are of the store `seen`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seen: SimulatedObjects) -> None:
        self.happened: list[str] = []

        async def reserve(net: SimulatedNet, host: str, port: int, send_buffer_bytes: int = -1) -> None:
            self.happened.append(f"reserve {port}")

        monkeypatch.setattr(SimulatedNet, "reserve", reserve)
        monkeypatch.setattr(SimulatedNet, "release", lambda net: self.happened.append("release"))
        watched = seen.before_each

        def note_claims(call: str, name: str) -> None:
            watched(call, name)
            if call == "create" and name.startswith(form.CLAIMS):
                self.happened.append("claim")

        seen.before_each = note_claims


def test_clients_may_connect_to_a_standby_before_it_takes_over_from_a_hand_over(monkeypatch):
    objects = SimulatedObjects()
    owner = OwnerAtWork(objects, begin(objects), looks=23, hands_over=True)
    seen = objects.client()
    seen.before_each = owner.look
    reservations = Reservations(monkeypatch, seen)
    second = serve(seen)
    assert reservations.happened == ["release", f"reserve {SETTINGS.served_listeners[0].port}", "claim"]
    second.stop()


def test_clients_are_refused_by_a_standby_that_takes_over_from_a_silent_owner(monkeypatch):
    """That owner may only be cut off from the store, and go on soon."""
    objects = SimulatedObjects()
    begin(objects)
    seen = objects.client()
    seen.before_each = lambda call, name: None
    reservations = Reservations(monkeypatch, seen)
    second = serve(seen)
    assert reservations.happened == ["claim"]
    second.stop()


def test_clients_that_wait_for_a_standby_are_sent_away_when_another_is_faster(monkeypatch):
    objects = SimulatedObjects()
    owner = OwnerAtWork(objects, begin(objects), looks=23, hands_over=True)
    seen = objects.client()
    seen.before_each = owner.look
    reservations = Reservations(monkeypatch, seen)

    def overtaken_once(*given):
        monkeypatch.setattr(candidate, "open_store", open_store)
        raise Overtaken("epoch 2 was ended by epoch 3")

    monkeypatch.setattr(candidate, "open_store", overtaken_once)
    second = serve(seen)
    reserve = f"reserve {SETTINGS.served_listeners[0].port}"
    assert reservations.happened[:3] == ["release", reserve, "release"]
    assert reservations.happened[-1] == "claim"
    second.stop()


def test_clients_that_wait_are_sent_away_if_the_take_over_fails(monkeypatch):
    objects = SimulatedObjects()
    owner = OwnerAtWork(objects, begin(objects), looks=23, hands_over=True)
    seen = objects.client()
    seen.before_each = owner.look
    reservations = Reservations(monkeypatch, seen)

    def fail(*given):
        raise DiskFull("no room")

    monkeypatch.setattr(candidate, "open_store", fail)
    with pytest.raises(DiskFull):
        serve(seen)
    assert reservations.happened[-1] == "release"
    assert "claim" not in reservations.happened


def test_clients_that_wait_are_sent_away_if_the_start_fails_after_the_take_over(monkeypatch):
    objects = SimulatedObjects()
    owner = OwnerAtWork(objects, begin(objects), looks=23, hands_over=True)
    seen = objects.client()
    seen.before_each = owner.look
    reservations = Reservations(monkeypatch, seen)

    def fail(*given):
        raise Refused(form.claim_name(1), "the server answered 403", "give it the rights")

    monkeypatch.setattr(OtherNodes, "recall", fail)
    with pytest.raises(Refused):
        serve(seen)
    assert reservations.happened[-2:] == ["claim", "release"]


def test_clients_that_wait_are_sent_away_if_the_start_fails_before_it_listens(monkeypatch):
    objects = SimulatedObjects()
    owner = OwnerAtWork(objects, begin(objects), looks=23, hands_over=True)
    seen = objects.client()
    seen.before_each = owner.look
    reservations = Reservations(monkeypatch, seen)

    def fail(listeners: Listeners, security_log: object) -> None:
        raise InvalidOption("ssl.certfile: there is no such file")

    monkeypatch.setattr(Listeners, "admissions", fail)
    with pytest.raises(InvalidOption):
        serve(seen)
    assert reservations.happened[-2:] == ["claim", "release"]


def test_a_standby_whose_address_is_taken_when_an_owner_hands_over_tries_again(monkeypatch, caplog):
    """Another standby on this machine may have the address: it takes over, or ends soon."""
    objects = SimulatedObjects()
    owner = OwnerAtWork(objects, begin(objects), looks=23, hands_over=True)
    seen = objects.client()
    seen.before_each = owner.look
    reservations = Reservations(monkeypatch, seen)
    reserve, attempts = SimulatedNet.reserve, iter(range(3))

    async def taken_twice(net: SimulatedNet, host: str, port: int, send_buffer_bytes: int = -1) -> None:
        if next(attempts) < 2:
            raise OSError(errno.EADDRINUSE, "address already in use")
        await reserve(net, host, port, send_buffer_bytes)

    monkeypatch.setattr(SimulatedNet, "reserve", taken_twice)
    second = serve(seen)
    port = SETTINGS.served_listeners[0].port
    assert reservations.happened == ["release"] * 5 + [f"reserve {port}", "claim"]
    assert caplog.text.count(f"cannot listen at 127.0.0.1:{port} yet: [Errno {errno.EADDRINUSE}]") == 1
    second.stop()


def test_a_standby_whose_address_stays_taken_takes_over_when_nobody_else_does(monkeypatch):
    """Its start fails then, if the address is still taken, as that of any broker."""
    objects = SimulatedObjects()
    owner = OwnerAtWork(objects, begin(objects), looks=23, hands_over=True)
    seen = objects.client()
    seen.before_each = owner.look
    reservations = Reservations(monkeypatch, seen)

    async def taken(net: SimulatedNet, host: str, port: int, send_buffer_bytes: int = -1) -> None:
        reservations.happened.append("taken")
        raise OSError(errno.EADDRINUSE, "address already in use")

    monkeypatch.setattr(SimulatedNet, "reserve", taken)
    second = serve(seen)
    assert LOOKS_A_LEASE <= reservations.happened.count("taken") <= LOOKS_A_LEASE + 1
    assert reservations.happened[-1] == "claim"
    second.stop()


def test_a_standby_of_a_store_without_an_owner_takes_over_at_once():
    with serve(SimulatedObjects()) as broker:
        assert broker.loop.time() < 1


@pytest.mark.parametrize("seed", range(3))
def test_a_standby_has_each_acknowledged_record_once_with_any_store_errors(seed):
    objects = SimulatedObjects(seed, Faults(before=0.1, after=0.1, late=0.05, conflicts=0.1, reads=0.2, lists=0.2))
    disk = begin(objects)
    for _ in range(2):
        owner = OwnerAtWork(objects, disk, looks=25)
        seen = objects.client()
        seen.before_each = owner.look
        second = serve(seen)
        before = batches(second)
        assert answers(second.ask(produce("t", batch(1)), 11)) == [(ErrorCode.NONE, before + 1)]
        second.abandon()
        disk = second.disk.after_process_crash()
    assert before == 1 + 25 + 1 + 25


def when(objects: SimulatedObjects, call: str, prefix: str, happens: Callable[[], None]) -> None:
    """Let something happen once, at the first call of this kind."""

    def look(each: str, name: str) -> None:
        if each == call and name.startswith(prefix):
            objects.before_each = lambda call, name: None
            happens()

    objects.before_each = look


@pytest.mark.parametrize("at", [form.CLAIMS, form.JOURNAL], ids=["at its claim", "at its first seal"])
def test_the_slower_of_two_standbys_takes_over_a_lease_after_the_faster_one_is_gone(at):
    """The faster standby takes the lease just before the slower one's create, writes a batch, and is gone. The slower
    one waits a lease for the first owner and another for the faster standby, and has the batches of both.
    """
    objects = SimulatedObjects()
    disk = begin(objects)
    seen = objects.client()

    def faster_takes_the_lease_writes_and_is_gone() -> None:
        OwnerAtWork(objects, disk, looks=1).look("read", form.JOURNAL)

    when(seen, "create", at, faster_takes_the_lease_writes_and_is_gone)
    slower = serve(seen)
    assert slower.loop.time() >= 2 * LEASE_S
    assert batches(slower) == 2
    assert answers(slower.ask(produce("t", batch(1)), 11)) == [(ErrorCode.NONE, 3)]
    slower.stop()


class FullOnce:
    """A directory whose first update finds the disk full."""

    def __init__(self) -> None:
        self.updates = 0

    def update(self, newest: Place) -> None:
        self.updates += 1
        if self.updates == 1:
            raise DiskFull(28, "the disk is full")

    def close(self) -> None:
        """Do nothing: no lock is held."""


async def test_follow_raises_the_error_of_a_failed_fetch_and_begins_no_other():
    async def in_worker(job: Callable[[], None]) -> None:
        job()

    directory, ahead = FullOnce(), ReadingAhead(KeptRounds(SimulatedObjects()), pause, whole=False)
    standby = Standby(directory, ahead, in_worker)
    standby.follow(Place(1, 1))
    await asyncio.wait([standby._fetching])
    with pytest.raises(DiskFull):
        standby.follow(Place(1, 2))
    assert directory.updates == 1


def test_a_standby_whose_disk_is_full_raises_disk_full():
    objects = SimulatedObjects()
    begin(objects)
    disk = SimulatedDisk()
    seen = objects.client()
    when(seen, "read", "0/parts/", lambda: setattr(disk, "capacity_bytes", 0))
    with pytest.raises(DiskFull):
        serve(seen, disk)


@pytest.mark.parametrize("is_standby", [True, False], ids=["while it waits", "while it takes over"])
def test_a_broker_retries_while_the_store_refuses_reads_of_a_checkpoint(is_standby):
    objects = SimulatedObjects()
    begin(objects)
    seen = objects.client()
    refused = 0

    def refuse(call: str, name: str) -> None:
        nonlocal refused
        if name.startswith("0/parts/") and refused < 5:
            refused += 1
            raise Refused(name, "the server answered 403", "give it the rights")

    seen.before_each = refuse
    second = serve(seen, is_standby=is_standby)
    assert refused == 5
    assert batches(second) == 1
    second.stop()


def test_an_owner_repeats_a_checkpoint_that_its_store_refused():
    objects = SimulatedObjects()
    seen = objects.client()
    refused = 0

    def refuse(call: str, name: str) -> None:
        nonlocal refused
        if call == "create" and name.startswith("0/parts/") and refused < 1:
            refused += 1
            raise Refused(name, "the server answered 403", "give it the rights")

    seen.before_each = refuse
    with serve(seen) as owner:
        owner.ask(create("t"))
        owner.wait(90)
        assert refused == 1
        assert owner.broker.metrics.failures == []
        assert any(name.startswith("0/points/") for name in objects.content)
