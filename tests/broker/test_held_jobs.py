"""Whatever a worker does may take 20 seconds: what passes it loses nothing, shows nothing twice, breaks nothing.

Each kind of job is held, before, within and after what it does to files, while records and segments go, topics go and
come again under their names, checkpoints follow each other, and the broker is stopped, killed and unplugged. Then what
readers see is compared with what was acknowledged.
"""

import itertools
import os
import random
from unittest import mock

import pytest
from broker_lives import EARLIEST, kill, offset_at, small, unplug
from fencepost.broker.upkeep import coordinator_snapshots, housekeeping
from fencepost.protocol.batches import walk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.configs import IncrementalAlterConfigsRequest
from fencepost.protocol.messages.fetch import FetchRequest
from fencepost.protocol.messages.topics import DeleteRecordsRequest, DeleteTopicsRequest
from fencepost.protocol.records import records
from held_jobs import AFTER, BEFORE, held
from long_runs import share_of
from produce_requests import EARLY_MS, answers, bytes_of, create, fetch, fetched, idempotent, list_offsets, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from txn_client import Txn

pytestmark = [pytest.mark.slow, pytest.mark.sampled]

NAMED = 12  # the newest version of Fetch that names topics
SAMPLE = int(os.environ.get("HELD", share_of(3)))  # combinations for each kind of job; 0: all
SEED = int(os.environ.get("SEED", "1"))
HELD_S = 20
TOPICS = "t", "c"
PLAIN, OPEN, COMMITTED, ABORTED = "plain", "open", "committed", "aborted"
CONFIGS = {"segment_ms": 2_000, "index_interval_bytes": 0, "segment_index_bytes": 40}
COMPACTED = {"cleanup_policy": "compact,delete", "min_cleanable_dirty_ratio": 0.01, "delete_retention_ms": 1_000}
SETTINGS = small(
    log_checkpoint_interval_ms=400,
    log_retention_check_interval_ms=500,
    log_cleaner_backoff_ms=500,
    log_roll_ms=2_000,
    log_cleaner_min_cleanable_ratio=0.01,
    log_cleaner_delete_retention_ms=1_000,
    transaction_state_log_num_partitions=1,
    offsets_topic_num_partitions=1,
)
CONSTANTS = [(housekeeping, "FLUSH_AFTER_MS", 200), (coordinator_snapshots, "AFTER_BYTES", 1_000)]


@pytest.fixture(autouse=True)
def in_a_hurry():
    with mock.patch.object(*CONSTANTS[0]), mock.patch.object(*CONSTANTS[1]):
        yield


class Story:
    """A broker, the records that it acknowledged, and checks of what readers see."""

    def __init__(self):
        self.broker = SimulatedBroker(SETTINGS)
        self.acknowledged = {topic: {} for topic in TOPICS}  # offset → [state, key, value]
        self.starts = dict.fromkeys(TOPICS, 0)
        self.written = 0
        self.last = {}  # by topic: the newest batch of the idempotent producer, and its offset
        self.client = self.request = self.fetched_of = self.answered_before = None
        self.make()
        self.connect()
        for _ in range(12):
            self.write()
            self.broker.wait(0.4)
        self.broker.wait(3)

    def make(self):
        self.broker.ask(create("t", **CONFIGS))
        self.broker.ask(create("c", **CONFIGS | COMPACTED))
        self.sequences = dict.fromkeys(TOPICS, 0)

    def connect(self):
        self.txn = Txn(self.broker, "x", 2)
        assert self.txn.init() == ErrorCode.NONE

    # ---- what clients do -----------------------------------------------------------------------------------

    def write(self):
        """Write to each topic: a batch of an idempotent producer, and a transaction, every second of which is
        committed.
        """
        self.written += 1
        key, commit = b"k%d" % (self.written % 3), self.written % 2 == 0
        for topic in TOPICS:
            value = b"%s %d" % (topic.encode(), self.written)
            made = idempotent(self.sequences[topic], key=key, value=value, timestamp=EARLY_MS + self.written)
            ((code, offset),) = answers(self.broker.ask(produce(topic, made), NAMED))
            assert code == ErrorCode.NONE, code
            self.sequences[topic] += 1
            self.last[topic] = made, offset
            self.acknowledged[topic][offset] = [PLAIN, key, value]
        offsets = []
        for topic in TOPICS:
            value = b"%s txn %d" % (topic.encode(), self.written)
            offset = self._in_transaction(topic, b"x" + key, value)
            self.acknowledged[topic][offset] = [OPEN, b"x" + key, value]
            offsets.append((topic, offset))
        assert self.txn.end(commit) == ErrorCode.NONE
        for topic, offset in offsets:
            self.acknowledged[topic][offset][0] = COMMITTED if commit else ABORTED

    def _in_transaction(self, topic, key, value):
        txn = self.txn
        sequence = txn.sequences[topic, 0]
        txn.sequences[topic, 0] += 1
        made = idempotent(
            sequence, producer_id=txn.producer_id, epoch=txn.epoch, key=key, value=value, transactional=True
        )
        ((code, offset),) = answers(txn.client.ask(produce(topic, made, transactional_id="x"), NAMED))
        assert code == ErrorCode.NONE, code
        return offset

    def forget_files(self):
        files = self.broker.broker.store.open_files
        for path in list(files._entries):
            files.forget(path)
        files.indexes.clear()
        self.broker.disk.is_cold = lambda path: True

    def forget_indexes(self):
        """Read the topic, then drop from memory the indexes of its segments, except that of the first."""
        log = self.broker.broker.topics.by_name["t"].partitions[0].log
        self._seen("t", log.segments[0].base_offset, committed=True)
        for state in log.segments[1:]:
            self.broker.broker.store.open_files.indexes.drop(f"{log.directory}/{state.stem}")

    def look(self, kind):
        """Remember what is answered now to the request that will be held."""
        if kind in REQUESTS:
            self.answered_before = self.broker.ask(REQUESTS[kind], version_of(REQUESTS[kind]))

    def begin(self, kind):
        """If a request makes the job, send that request, after dropping from memory what it reads. judge_answer() looks
        at the answer.
        """
        request = REQUESTS.get(kind)
        if request is not None:
            (self.forget_indexes if kind == "AbortedLookup.run" else self.forget_files)()
            self.client = SimulatedClient(self.broker)
            self.request = request
            self.client.send(request, version_of(request))
            self.fetched_of = [self.acknowledged["t"]]

    # ---- while a job is held -------------------------------------------------------------------------------

    def nothing(self):
        pass

    def delete_records(self):
        topics = []
        for topic in TOPICS:
            offset = max(0, max(self.acknowledged[topic]) - 3)
            part = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=offset)
            topics.append(DeleteRecordsRequest.Topic(name=topic, partitions=[part]))
            self.starts[topic] = offset
        response = self.broker.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1_000))
        assert all(not topic.partitions[0].error_code for topic in response.topics)

    def retention(self):
        resource = IncrementalAlterConfigsRequest.Resource
        config = resource.Config(name="retention.bytes", config_operation=0, value="300")
        asked = [resource(resource_type=2, resource_name=topic, configs=[config]) for topic in TOPICS]
        response = self.broker.ask(IncrementalAlterConfigsRequest(resources=asked))
        assert all(not one.error_code for one in response.responses)

    def recreation(self):
        topics = [DeleteTopicsRequest.Topic(name=topic) for topic in TOPICS]
        response = self.broker.ask(DeleteTopicsRequest(topics=topics, timeout_ms=1_000))
        assert all(not one.error_code for one in response.responses)
        self.acknowledged = {topic: {} for topic in TOPICS}
        if self.fetched_of:
            self.fetched_of.append(self.acknowledged["t"])
        self.starts = dict.fromkeys(TOPICS, 0)
        self.txn.sequences.clear()
        self.make()

    def twice(self):
        self.recreation()
        self.write()
        self.delete_records()
        self.broker.wait(2)
        self.recreation()

    # ---- what readers see ---------------------------------------------------------------------------------

    def check(self):
        broker = self.broker
        assert broker.broker.halted is None
        assert not list(broker.broker.metrics.failures)
        assert not [log.offline for log in broker.broker.store.logs.values() if log.offline]
        for topic in TOPICS:
            begin = offset_at(broker, topic, EARLIEST)
            assert begin >= self.starts[topic], f"{topic} begins at {begin}, {self.starts[topic]} were given up"
            self.starts[topic] = begin
            there = {at: one for at, one in self.acknowledged[topic].items() if at >= begin}
            decided = {at: one for at, one in there.items() if one[0] in (PLAIN, COMMITTED)}
            self._compare(topic, self._seen(topic, begin, committed=False), there)
            self._compare(topic, self._seen(topic, begin, committed=True), decided)
            made, offset = self.last[topic]
            assert answers(broker.ask(produce(topic, made), NAMED)) == [(ErrorCode.NONE, offset)], "a retry"

    def _compare(self, topic, seen, expected):
        wrong = {at: found for at, found in seen.items() if at not in expected or expected[at][1:] != found}
        assert not wrong, (topic, wrong)
        if topic == "c":
            newest = {key: at for at, (state, key, _) in expected.items() if state in (PLAIN, COMMITTED)}
            expected = newest.values()
        missing = [at for at in expected if at not in seen]
        assert not missing, (topic, missing)

    def _seen(self, topic, offset, *, committed):
        """Read a topic from this offset on. Returns {offset: [key, value]}, without records below the log start."""
        found, end = {}, offset_at(self.broker, topic, -1)
        while offset < end:
            part = fetched(self.broker.ask(fetch(topic, offset, committed=committed), NAMED))
            assert part.error_code == ErrorCode.NONE, (topic, offset, part.error_code)
            more, following = visible(part)
            if following is None:
                break
            found |= more
            offset = following
        return {at: each for at, each in found.items() if at >= self.starts[topic]}

    def judge_answer(self):
        """Check the answer to the held request, if there was one: it shows no aborted record and skips none, and is
        right for the topic as it was before or after it was made again.
        """
        if self.client is None:
            return
        response = self.client.receive()
        if not isinstance(self.request, FetchRequest):
            now = self.broker.ask(self.request, version_of(self.request))
            assert response in (self.answered_before, now), (response, self.answered_before, now)
            return
        part = fetched(response)
        if part.error_code:
            assert part.error_code in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        found, following = visible(part)
        committed = bool(self.request.isolation_level)
        first = self.request.topics[0].partitions[0].fetch_offset
        fitting = []
        for model in self.fetched_of:
            expected = {
                at: one[1:]
                for at, one in model.items()
                if first <= at < (following or 0) and (not committed or one[0] in (PLAIN, COMMITTED))
            }
            fitting.append(found == expected)
        assert any(fitting), (found, self.fetched_of)


def version_of(request):
    """Return the newest version of the request's API that names topics by name."""
    return NAMED if isinstance(request, FetchRequest) else 10


def visible(part):
    """Return ({offset: [key, value]} of the records that are not aborted, the offset to go on from or None)."""
    found, skipped, following = {}, set(), None
    aborted = {(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()}
    for one in walk(memoryview(bytes_of(part))):
        skipped |= {producer for producer, first in aborted if first <= one.last_offset}
        aborted = {entry for entry in aborted if entry[1] > one.last_offset}
        if one.is_control:
            skipped.discard(one.producer_id)
        elif not (one.is_transactional and one.producer_id in skipped):
            found |= {each.offset: [each.key, each.value] for each in records(one)}
        following = one.last_offset + 1
    return found, following


REQUESTS = {
    "ColdRead.run": fetch("t", 0),
    "ColdRead.run_committed": fetch("t", 0, committed=True),
    "AbortedLookup.run": fetch("t", 0, committed=True),
    "TimeLookup.run": list_offsets("t", EARLY_MS + 6),
    "LatestLookup.run": list_offsets("t", -3, committed=True),
}
OF_THEMSELVES = [
    "FlushRun.run",
    "CheckpointRun.run",
    "SnapshotJob.run",
    "Compaction.run_slice",
    "Removal.run",
    "CoordinatorSnapshots",
]
MOMENTS = [BEFORE, AFTER, 0, 1, 2, 3, 5, 8]
PASSERS = ["nothing", "delete_records", "retention", "recreation", "twice"]
ENDS = [None, "stopped", "killed", "unplugged"]
ALL = list(itertools.product((*REQUESTS, *OF_THEMSELVES), MOMENTS, PASSERS, ENDS))


def play(kind, moment, passer, end):
    """Hold a job of this kind while clients write and `passer` happens, then end the job or the broker, and check all
    records. Returns whether there was such a job.
    """
    story = Story()
    story.look(kind)
    with held(story.broker, kind, moment) as job:
        story.begin(kind)
        for _ in range(8):
            if job.is_held:
                break
            story.write()
            story.broker.wait(0.3)
        if not job.is_held:
            story.broker.abandon()
            return False
        getattr(story, passer)()
        for _ in range(HELD_S // 2):
            story.write()
            story.broker.wait(2)
        assert job.is_held
        if end == "stopped":
            story.broker.loop.call_later(1, job.release)
            story.client = None
        elif end in ("killed", "unplugged"):
            left = {"killed": kill, "unplugged": unplug}[end](story.broker)
            job.give_up()
        else:
            job.release()
            story.broker.wait(3)
            story.judge_answer()
        if end == "stopped":
            story.broker = story.broker.again()
        elif end is not None:
            story.broker = SimulatedBroker(SETTINGS, disk=left, seed=2)
    story.check()
    story.broker = story.broker.after_power_cut()
    story.check()
    story.connect()
    story.write()
    story.broker.wait(3)
    story.check()
    story.broker.stop()
    return True


@pytest.mark.parametrize("kind", [*REQUESTS, *OF_THEMSELVES])
def test_requests_during_a_delayed_background_job_lose_and_duplicate_no_record(kind):
    """Each kind of job is delayed by 20 s: before, within or after what it does to files."""
    combinations = [combination for combination in ALL if combination[0] == kind]
    random.Random(f"{SEED} {kind}").shuffle(combinations)
    met = 0
    for combination in combinations:
        if SAMPLE and met >= SAMPLE:
            break
        try:
            met += play(*combination)
        except BaseException as error:
            error.add_note(f"{combination}, seed {SEED}")
            raise
    print(f"{kind}: {met}")
    assert met >= SAMPLE
