"""What happens in a simulation: topics, clients, faults for some seconds; then healing, an end, and a last look."""

import asyncio
from contextlib import nullcontext
from typing import Any

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import Marker, read_marker, records
from produce_requests import create, fetch, fetched, list_offsets
from simulation.assigned_clients import KEEPERS, AssignedMover, Keeper
from simulation.backups import backup_of
from simulation.cleaned import CLEANUPS, KeyedIncarnation, KeyedProducer, configs_of
from simulation.consumer_rules import EARLIEST, LATEST
from simulation.faults import Faults
from simulation.followers import Followers
from simulation.group_clients import GROUP, PLAIN_GROUP, Mover, PlainCommitter, stand_of
from simulation.guarded import guarded_clients_of
from simulation.guarded_members import GuardedGroup
from simulation.heavy_requests import Asker
from simulation.history import EMPTIED, Dump, Entry, Listed, Place, name_of
from simulation.lines import Caller, Unanswered
from simulation.machines import StoredWorld
from simulation.newcomers import NewIds, NewMembers, NewProducers
from simulation.operators import Operator
from simulation.pipelines import Pipeliner, PipeliningIncarnation
from simulation.plain_clients import PlainProducer, Reader, batches_in, earliest, value_in
from simulation.queues import QueueKeeper, has_queue, queue_clients_of
from simulation.recreation import Recreator, Stayer
from simulation.resets import Resetter, has_resets, quick_state_logs
from simulation.restores import restores_of
from simulation.sdk_clients import MAX_MESSAGE_BYTES, SdkIncarnation, SdkProducer
from simulation.sdk_habits import SDK_SINGLES, SdkAhead, SdkPair, SdkPauser, SdkRestless, SdkSeveral, SdkSingle
from simulation.sdk_named import named_clients_of
from simulation.sdk_pools import SdkPool
from simulation.sdk_queues import sdk_queue_clients_of
from simulation.sdk_readers import SDK_GROUP, SDK_WORKERS, SdkMover, SdkReader, SdkWorker
from simulation.sink_clients import SinkDriver
from simulation.store_faults import StoreFaults
from simulation.strangers import Hoarder, Outsider, has_strangers
from simulation.trimming import Once, Trimmer
from simulation.txn_clients import Incarnation, Supervisor
from simulation.vanishing import Vanisher
from simulation.wide_queues import wide_members_of
from simulation.working import work_under
from simulation.world import NEWER, World

TOPICS = {
    "in": 2,
    "left": 1,
    "right": 2,
    "out": 2,
    "sdk-in": 2,
    "sdk-out": 2,
    "trim": 2,
    "aged": 1,
    "heavy": 1,
    "keys": 1,
}
PLACES: list[Place] = [(topic, number) for topic, count in TOPICS.items() for number in range(count)]
INPUTS, WRITTEN, OUTPUTS, SDK_INPUTS, TRIMMED = PLACES[:2], PLACES[2:5], PLACES[5:7], PLACES[7:9], PLACES[11:13]
RETAINED, COMPACTED = PLACES[13:15], PLACES[15:]
COMMITTED_ONLY = "out"  # its readers see whole transactions, whatever they ask for


async def play(world: World, seconds: float) -> dict[str, int]:
    """Run a whole simulation. Returns which faults struck how often, and what was met."""
    with quick_state_logs() if has_queue(world) else nullcontext():
        return await _play(world, seconds)


async def _play(world: World, seconds: float) -> dict[str, int]:
    await world.start()
    await _make_topics(world)
    is_stored = isinstance(world, StoredWorld)
    faults = StoreFaults(world) if is_stored else Faults(world)
    backup = None if is_stored or world.only_queues else backup_of(world)
    restores = restores_of(world, seconds) if isinstance(world, StoredWorld) else None
    await work_under(faults, world, clients_of(world), seconds)
    for look_at in world.looks_before_the_end:
        await look_at()
    if restores is not None:
        await restores.look(look)
    if backup is not None:
        await backup.lose_disk(look)
    elif world.rng("end").random() < 0.5:
        await world.restart(power=True)
    await look(world)
    return faults.struck | world.met


def clients_of(world: World) -> list[Any]:
    if world.only_queues:
        return [*queues_of(world), *followers_of(world)]
    clients: list[Any] = [PlainProducer(world, f"plain-{n}", PLACES[:3]) for n in range(2)]
    for number in range(4):
        clients.append(transactional(world, f"tx{number}", 1 + number % 2))
    clients += [moving(world, f"mv{number}", 1 + number % 2) for number in range(3)]
    clients += [keeping(world, f"keeper{number}") for number in range(3)]
    recreator = Recreator(world)
    clients += [recreator, *(staying(world, f"st{number}", 1 + number % 2, recreator) for number in range(2))]
    world.looks.append(lambda: recreator.place)
    clients.append(SinkDriver(world, WRITTEN))
    clients.append(Operator(world, PLACES[1:]))
    clients.append(Asker(world, "asker", PLACES[:5], GROUP))
    clients.append(PlainCommitter(world, "committer", PLACES[0]))
    clients += sdk_clients_of(world)
    clients.append(Pipeliner(world, "pipeliner", PLACES[:3], TRIMMED))
    clients.append(pipelining(world, "pt", 1 + world.seed % 2))
    clients.append(Trimmer(world, TRIMMED))
    clients.append(PlainProducer(world, "retained", RETAINED))
    clients.append(KeyedProducer(world, "keyed", COMPACTED))
    clients += [keyed(world, f"kt{number}", 1 + number % 2) for number in range(2)]
    clients += [once(world, f"on{number}", 1 + number % 2) for number in range(2)]
    clients += limited_clients_of(world)
    if world.is_guarded:
        clients += [*guarded_clients_of(world), *GuardedGroup(world).members]
    clients += followers_of(world)
    if has_strangers(world) and not isinstance(world, StoredWorld):
        clients += [Outsider(world), Hoarder(world)]
    clients += named_clients_of(world)
    if has_queue(world):
        clients += queues_of(world)
    for place in (*PLACES[:7], *PLACES[11:]):
        clients.append(Reader(world, f"committed-{place}", place, committed=True))
        clients.append(uncommitted(world, f"uncommitted-{place}", place))
    return clients


def followers_of(world: World) -> list[Any]:
    return [Followers(world)] if world.schedule.has_follower else []


def queues_of(world: World) -> list[Any]:
    """Return the clients of a share group: its members, scripted ones and those of the SDK, who writes for them, and
    who sets offsets.
    """
    keeper = QueueKeeper(world)
    clients = [*queue_clients_of(world, keeper), *sdk_queue_clients_of(world, keeper)]
    clients += wide_members_of(world, keeper)
    return [*clients, Resetter(world, keeper)] if has_resets(world) else clients


def uncommitted(world: World, name: str, place: Place) -> Reader:
    return Reader(world, name, place, committed=place[0] == COMMITTED_ONLY, asks=False)


def limited_clients_of(world: World) -> list[Any]:
    """Return clients that need room, which limits may refuse them, and one that takes room and vanishes."""
    vanisher = Vanisher(world, PLACES[2:5])
    world.looks_before_the_end.append(vanisher.look)
    return [
        vanisher,
        NewProducers(world, "new-producer", PLACES[:5]),
        NewIds(world, "new-id", PLACES[1:5]),
        NewMembers(world, "new-member", []),
    ]


def sdk_clients_of(world: World) -> list[Any]:
    def producing(number: int, tv: int) -> SdkProducer:
        return SdkProducer(world, "sdk-plain", number, [*SDK_INPUTS, WRITTEN[0]])

    clients = [Supervisor(world, "sdk-plain", 2, producing, (8.0, 25.0))]
    for each in range(2):
        clients.append(sdk_working(world, f"sdk-wk{each}"))
        clients.append(sdk_transactional(world, f"sdk-tx{each}", 1 + each))
        clients.append(sdk_reading(world, f"sdk-reader{each}", committed=each == 0))
        clients.append(sdk_single(world, f"sdk-one{each}"))
    clients += [sdk_moving(world, f"sdk-mv{each}", 1 + each % 2) for each in range(3)]
    clients.append(sdk_pausing(world, "sdk-pauser"))
    clients.append(sdk_pooling(world, "sdk-pool", 1 + world.seed % 2))
    return clients


def sdk_transactional(world: World, name: str, tv: int) -> Supervisor:
    def make(number: int, tv: int) -> SdkIncarnation:
        return SdkIncarnation(world, name, number, tv, [*SDK_INPUTS, *WRITTEN])

    return Supervisor(world, name, tv, make, (4.0, 20.0))


def sdk_pooling(world: World, name: str, tv: int) -> Supervisor:
    def make(number: int, tv: int) -> SdkPool:
        return SdkPool(world, name, number, tv, [*SDK_INPUTS, *WRITTEN])

    return Supervisor(world, name, tv, make, (6.0, 20.0))


def sdk_moving(world: World, name: str, tv: int) -> Supervisor:
    def make(number: int, tv: int) -> SdkMover:
        habits = (SdkMover, SdkAhead, SdkSeveral)
        kind = SdkPair if name.endswith("2") else world.rng(f"habit {name}#{number}").choice(habits)
        return kind(world, name, number, tv, SDK_INPUTS, "sdk-out")

    return Supervisor(world, name, tv, make, (8.0, 25.0))


def sdk_working(world: World, name: str) -> Supervisor:
    def make(number: int, tv: int) -> SdkWorker:
        kind = world.rng(f"habit {name}#{number}").choice((SdkWorker, SdkRestless))
        return kind(world, name, number, "right")

    return Supervisor(world, name, 2, make, (10.0, 30.0))


def sdk_single(world: World, name: str) -> Supervisor:
    def make(number: int, tv: int) -> SdkSingle:
        return SdkSingle(world, name, number, "right")

    return Supervisor(world, name, 2, make, (10.0, 30.0))


def sdk_pausing(world: World, name: str) -> Supervisor:
    def make(number: int, tv: int) -> SdkPauser:
        return SdkPauser(world, name, number, [*WRITTEN, *PLACES[7:11]], committed=True)

    return Supervisor(world, name, 2, make, (20.0, 30.0))


def sdk_reading(world: World, name: str, *, committed: bool) -> Supervisor:
    def make(number: int, tv: int) -> SdkReader:
        return SdkReader(world, name, number, [*WRITTEN, *PLACES[7:11]], committed)

    return Supervisor(world, name, 2, make, (20.0, 30.0))


def transactional(world: World, name: str, tv: int) -> Supervisor:
    places = PLACES[1:5]

    def make(number: int, tv: int) -> Incarnation:
        return Incarnation(world, name, number, tv, places)

    return Supervisor(world, name, tv, make)


def once(world: World, name: str, tv: int) -> Supervisor:
    def make(number: int, tv: int) -> Once:
        return Once(world, name, number, tv, [*TRIMMED, *RETAINED, *WRITTEN[:1]])

    return Supervisor(world, name, tv, make)


def keyed(world: World, name: str, tv: int) -> Supervisor:
    def make(number: int, tv: int) -> KeyedIncarnation:
        return KeyedIncarnation(world, name, number, tv, COMPACTED)

    return Supervisor(world, name, tv, make)


def pipelining(world: World, name: str, tv: int) -> Supervisor:
    def make(number: int, tv: int) -> PipeliningIncarnation:
        return PipeliningIncarnation(world, name, number, tv, PLACES[1:4])

    return Supervisor(world, name, tv, make)


def moving(world: World, name: str, tv: int) -> Supervisor:
    kind = AssignedMover if world.protocol_of(GROUP) == NEWER else Mover

    def make(number: int, tv: int) -> Mover:
        return kind(world, name, number, tv, INPUTS, OUTPUTS)

    return Supervisor(world, name, tv, make, (8.0, 25.0))


def keeping(world: World, name: str) -> Supervisor:
    def make(number: int, tv: int) -> Keeper:
        return Keeper(world, name, number, ("left", "right"))

    return Supervisor(world, name, 2, make, (10.0, 25.0))


def staying(world: World, name: str, tv: int, recreator: Recreator) -> Supervisor:
    def make(number: int, tv: int) -> Stayer:
        return Stayer(world, name, number, tv, PLACES[3:5], recreator)

    return Supervisor(world, name, tv, make)


async def _make_topics(world: World) -> None:
    caller = Caller(world, "admin")
    for topic, count in TOPICS.items():
        cleanup = CLEANUPS.get(topic)
        if cleanup is not None:
            world.history.invoke("admin", cleanup).ok()
        configs = world.schedule.topic_configs | {"max_message_bytes": MAX_MESSAGE_BYTES}
        if topic == COMMITTED_ONLY:
            configs["fencepost_isolation_level_min"] = "read_committed"
        request = create(topic, count, **configs_of(cleanup, configs))
        while True:
            try:
                answer = await caller.ask(request)
                break
            except Unanswered:  # of several brokers on a store the first owner may be overtaken by now
                await asyncio.sleep(0.1)
        made = answer.topics[0]
        if made.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:  # by a request that was not answered
            assert world.broker is not None
            world.topic_names[world.broker.topics.by_name[topic].topic_id] = topic
            continue
        assert made.error_code == ErrorCode.NONE, answer
        world.topic_names[made.topic_id] = topic


async def look(world: World) -> None:
    """Read everything with the last readers: from the beginning, as each kind of consumer; then logs, listed offsets
    and groups' offsets.
    """
    for place in PLACES:
        for reader in (uncommitted(world, f"final {place}", place), Reader(world, f"final {place}", place, True)):
            await _read_all(reader)
        await _dump(world, place)
        await _list_offsets(world, place)
    for place in world.looks:
        await _dump(world, place())
    stands = [(group, place) for place in INPUTS for group in (GROUP, PLAIN_GROUP)]
    stands += [(SDK_GROUP, place) for place in SDK_INPUTS]
    stands += [(group, place) for group in (SDK_WORKERS, SDK_SINGLES, KEEPERS) for place in WRITTEN[1:]]
    for group, place in stands:
        await stand_of(Caller(world, "final"), "final", group, place)


async def _read_all(reader: Reader) -> None:
    offset = 0
    for _ in range(10_000):
        seen = await reader.read(offset, client="final")
        if seen is None:
            offset = max(offset, reader.next_offset)
            await asyncio.sleep(0.1)
            continue
        end = seen.last_stable if reader.committed else seen.high_watermark
        if seen.next_offset >= end or seen.next_offset == offset:
            return
        offset = seen.next_offset
    raise AssertionError(f"{reader.place} cannot be read to its end")


async def _dump(world: World, place: Place) -> None:
    caller, op = Caller(world, "final"), world.history.invoke("final", Dump(place))
    entries: list[Entry] = []
    begins_above_0 = place in TRIMMED or place in RETAINED
    offset = await earliest(caller, place) if begins_above_0 else 0
    while True:
        try:
            request = fetch(name_of(place), offset, partition=place[1])
            request.raw = True
            part = fetched(await caller.ask(request, 12))
        except Unanswered:
            continue
        if part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and place not in PLACES:
            op.info()  # a request to delete it was late
            return
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and place in RETAINED:
            entries.clear()
            offset = await earliest(caller, place)
            continue
        assert part.error_code == 0, part
        batches = batches_in(part)
        entries += [_entry(batch) for batch in batches]
        if not batches:
            break
        offset = batches[-1].last_offset + 1
    op.ok(tuple(entries))


async def _list_offsets(world: World, place: Place) -> None:
    """Ask for both ends of a log, and for two times."""
    caller, rng = Caller(world, "final"), world.rng(f"times {place}")
    dumped = next(op.result for op, dump in reversed(list(world.history.of(Dump))) if dump.place == place)
    times = [rng.choice(dumped).timestamp + rng.choice((0, 1)) for _ in range(2)] if dumped else []
    for at in (EARLIEST, LATEST, *times):
        for committed in (False, True) if at < 0 else (False,):
            is_shown = committed or place[0] == COMMITTED_ONLY
            op = world.history.invoke("final", Listed(place, is_shown, at))
            request = list_offsets(name_of(place), at, partition=place[1], committed=committed)
            try:
                (topic,) = (await caller.ask(request)).topics
            except Unanswered:
                continue
            op.ok(topic.partitions[0].offset)


def _entry(batch: Any) -> Entry:
    producer = (batch.producer_id, batch.producer_epoch)
    if batch.is_control:
        marker = read_marker(batch)
        kind = EMPTIED if marker is None else "commit" if marker[0] is Marker.COMMIT else "abort"
        return Entry(batch.base_offset, producer, -1, True, (), kind, batch.max_timestamp)
    found = list(records(batch))
    values, offsets = tuple(value_in(one) for one in found), tuple(one.offset for one in found)
    return Entry(
        batch.base_offset,
        producer,
        batch.base_sequence,
        batch.is_transactional,
        values,
        "",
        batch.max_timestamp,
        offsets,
        batch.last_offset,
    )
