"""The steps of a sink in random runs with kills: no row is lost or written twice; and what each rule prevents."""

import contextlib
from collections import Counter, defaultdict

import pytest
from fake_ledger import PREFIX, FakeBroker, RealBroker
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.messages.ledger import DescribeLedgerRequest, LedgerEntry, RemoveLedgerEntriesRequest
from fencepost.spark.sink.left_open import failed_with, open_steps
from fencepost.spark.sink.protocol import (
    BatchRefusedError,
    SinkBatch,
    SinkConflictError,
    TaskDone,
    commit_steps,
    same_decision,
    task_steps,
    written_for,
)
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sink_world import LIMITS, Checkpoint, World, run

RUNS, REAL_RUNS = 2_000, 40
SEEDS = st.integers(0, 2**40)


def random_runs(count):
    return settings(
        max_examples=count,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def wrong(world, checkpoints):
    """Compare the rows that readers see with those of the finished batches, and return the faults, as words."""
    found = [row.rpartition(b"@") for row in world.broker.visible()]
    counts = Counter(row for row, _, _ in found)
    planned = [row for one in checkpoints for number in one.done for row in one.plans[number]]
    faults = set()
    if any(count > 1 for count in counts.values()):
        faults.add("duplicated")
    if set(planned) - set(counts):
        faults.add("lost")
    if set(counts) - set(planned):
        faults.add("unplanned")
    attempts = defaultdict(set)
    for row, _, attempt in found:
        attempts[row.rpartition(b"/")[0]].add(attempt)
    if any(len(each) > 1 for each in attempts.values()):
        faults.add("mixed")
    return faults


def left_waiting(world):
    (key,) = world.broker.ask(DescribeLedgerRequest(keys=[world.sink])).keys
    return list(key.waiting)


def lives(broker, seed, shortcut="", name="s"):
    """Run a query with random kills, and return the faults that it has at the end, as words (see wrong(), too).

    shortcut: the rule of the protocol that is left out.
    """
    world = World(broker, seed, shortcut, name)
    checkpoint = Checkpoint("q")
    faults = set()
    if not run(world, checkpoint):
        faults.add("stuck")
    if left_waiting(world):
        faults.add("left waiting")
    run(world, checkpoint, 4)  # a fourth batch: it ends what killed tasks left open
    if not broker.is_quiet():
        faults.add("left open")
    return faults | wrong(world, [checkpoint])


@random_runs(RUNS)
@given(SEEDS)
def test_a_query_killed_at_any_step_of_the_sink_protocol_loses_and_repeats_no_row(seed):
    assert not lives(FakeBroker(), seed)


@pytest.mark.parametrize("count", [REAL_RUNS, pytest.param(RUNS, marks=pytest.mark.long)])
def test_random_kills_of_sink_tasks_and_drivers_lose_and_repeat_no_row_on_a_broker(count):
    broker = RealBroker()

    @random_runs(count)
    @given(SEEDS)
    def each(seed):
        broker.next_run()
        assert not lives(broker, seed, name=f"s{broker.runs}")

    with broker.broker:
        each()


# ---- what each rule is for ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shortcut", "breaks"),
    [
        ("commit inside write", {"duplicated", "mixed"}),
        ("no ledger", {"duplicated", "mixed", "left waiting", "left open"}),
        ("number not checked", {"duplicated", "mixed", "left open"}),
    ],
)
def test_leaving_out_one_rule_of_the_sink_protocol_breaks_the_guarantees_listed_here(shortcut, breaks):
    found = set().union(*(lives(FakeBroker(), seed, shortcut) for seed in range(200)))
    assert found == breaks


def test_readers_stay_blocked_if_a_decision_does_not_abort_other_attempts():
    class Lazy(FakeBroker):
        def _end_others(self, asked):
            pass

    assert "left waiting" in set().union(*(lives(Lazy(), seed, "what is open is left") for seed in range(100)))


def test_without_the_drivers_abort_open_transactions_of_killed_tasks_stay_open():
    found = set().union(*(lives(FakeBroker(), seed, "what is open is left") for seed in range(100)))
    assert found == {"left open"}


MAX_AT_ONCE = 7  # transactions; a batch has six at most, if none becomes old


def test_random_kills_of_drivers_leave_no_query_stuck_at_the_limit_of_a_decision():
    """The broker limits how many transactions one decision may end, and killed drivers leave prepared ones behind."""
    assert not set().union(*(lives(FakeBroker(MAX_AT_ONCE), seed) for seed in range(300)))


def test_if_drivers_did_not_end_earlier_attempts_first_some_queries_would_get_stuck():
    found = set().union(*(lives(FakeBroker(MAX_AT_ONCE), seed, "earlier attempts are left") for seed in range(300)))
    assert "stuck" in found


def test_if_the_broker_refused_repeated_decisions_some_queries_would_never_commit():
    class Strict(FakeBroker):
        def ask(self, request):
            answer = super().ask(request)
            if getattr(answer, "already_decided", False):
                return type(answer)(error_code=ErrorCode.LEDGER_CONFLICT)
            return answer

    stuck = [seed for seed in range(200) if "stuck" in lives_or_failed(Strict(), seed)]
    assert stuck


def lives_or_failed(broker, seed):
    try:
        return lives(broker, seed)
    except KafkaError:
        return {"stuck"}


def attempt_of(world, batch, rows, partition=0, task=0):
    """Run a task to its end, and return its message to the driver."""
    actor = world.start(task_steps(batch, partition, task, [rows], LIMITS, lambda: world.broker.now_ms))
    step = actor.step
    while True:
        try:
            step = actor.steps.send(world.perform(step, actor))
        except StopIteration as end:
            return end.value


def decided(world, steps):
    """Carry out the driver's steps at the broker, and return their result."""
    answer = None
    while True:
        try:
            answer = world.broker.ask(steps.send(answer))
        except StopIteration as end:
            return end.value


def aborted(world, messages, number=4):
    """Abort batch `number` of the sink as the driver does when Spark calls abort(). Return the broker's answers."""
    found = decided(world, open_steps(PREFIX, "s", failed_with(messages, number)))
    return [world.broker.end(each, False) for each in found]


def two_attempts():
    return SinkBatch("s", 4, "q", "one"), SinkBatch("s", 4, "q", "two")


def calm():
    world = World(FakeBroker(), 1)
    world.budget = 0
    return world


def test_an_abort_with_messages_of_one_attempt_leaves_another_attempt_committable():
    world, (one, two) = calm(), two_attempts()
    ours = attempt_of(world, one, [b"r@1"])
    theirs = attempt_of(world, two, [b"r@2"])
    assert len(aborted(world, [theirs, None])) == 1
    assert decided(world, commit_steps([ours], b"d")).rows == 1


def test_an_abort_without_commit_messages_makes_the_commit_of_another_attempt_fail():
    world, (one, two) = calm(), two_attempts()
    ours = attempt_of(world, one, [b"r@1"])
    attempt_of(world, two, [b"r@2"])
    assert len(aborted(world, [None])) == 2
    with pytest.raises(BatchRefusedError, match=r"s\.4\.one\.0\.0\.0: it has already ended"):
        decided(world, commit_steps([ours], b"d"))


def test_two_copies_of_a_task_with_one_transactional_id_make_the_commit_refused():
    world, (one, _) = calm(), two_attempts()
    ours = attempt_of(world, one, [b"r@1"], task=7)
    attempt_of(world, one, [b"r@2"], task=7)
    with pytest.raises(BatchRefusedError):
        decided(world, commit_steps([ours], b"d"))


def test_a_task_that_prepares_after_its_batch_was_committed_is_aborted_at_once():
    world, (one, _) = calm(), two_attempts()
    ours = attempt_of(world, one, [b"r@1"], task=1)
    assert not decided(world, commit_steps([ours], b"d")).already
    attempt_of(world, one, [b"r@2"], task=2)
    assert not left_waiting(world)
    assert world.broker.visible() == [b"r@1"]


def test_a_second_attempt_at_a_committed_batch_writes_nothing_and_succeeds():
    world, (one, two) = calm(), two_attempts()
    decided(world, commit_steps([attempt_of(world, one, [b"r@1"])], b"d"))
    assert decided(world, commit_steps([attempt_of(world, two, [b"r@2"])], b"d")).already
    assert world.broker.visible() == [b"r@1"]


def test_a_late_attempt_is_refused_if_the_batchs_ledger_entry_was_removed():
    world, (one, two) = calm(), two_attempts()
    decided(world, commit_steps([attempt_of(world, one, [b"r@1"])], b"d"))
    late = attempt_of(world, two, [b"r@2"])  # refused, as the batch is decided
    world.broker.ask(RemoveLedgerEntriesRequest(keys=["s"]))
    with pytest.raises(BatchRefusedError):
        decided(world, commit_steps([late], b"d"))


# ---- misuse raises an error --------------------------------------------------------------------------------------

TOPIC, OFFSETS = b"t" * 32, b"o" * 32


def committed_at_4(digest=TOPIC + OFFSETS):
    world = calm()
    decided(world, commit_steps([attempt_of(world, SinkBatch("s", 4, "q", "one"), [b"r@1"])], digest))
    return world


@pytest.mark.parametrize(
    ("batch", "digest", "says"),
    [
        (SinkBatch("s", 3, "q", "two"), TOPIC + OFFSETS, "the checkpoint was set back"),
        (SinkBatch("s", 4, "q", "two"), TOPIC + b"x" * 32, "other offsets"),
        (SinkBatch("s", 4, "q", "two"), b"u" * 32 + OFFSETS, "another topic"),
        (SinkBatch("s", 4, "other", "two"), TOPIC + OFFSETS, "its own sinkId"),
        (SinkBatch("s", 5, "other", "two"), TOPIC + OFFSETS, "its own sinkId"),
        (SinkBatch("s", 0, "other", "two"), TOPIC + OFFSETS, "its own sinkId"),
    ],
    ids=["set back", "other offsets", "other topic", "two queries", "a query that is ahead", "checkpoint deleted"],
)
def test_a_batch_that_contradicts_the_last_decision_raises_sink_conflict_error(batch, digest, says):
    world = committed_at_4()
    message = attempt_of(world, batch, [b"x@2"])
    with pytest.raises(SinkConflictError, match=says):
        decided(world, commit_steps([message], digest))
    aborted(world, [message], batch.number)
    assert world.broker.visible() == [b"r@1"]
    assert world.broker.is_quiet()


@pytest.mark.parametrize(
    ("messages", "number", "mark", "left"),
    [
        ([None], 4, "", []),
        ([None], 4, "m2", ["m1one"]),
        ([None], 3, "", ["m1one", "m2two"]),
        ([TaskDone(SinkBatch("s", 4, "q", "m1one"), 0, ()), None], 4, "m2", ["m2two"]),
    ],
    ids=["all", "another query", "a later batch", "a message"],
)
def test_an_abort_ends_only_attempts_named_by_its_messages_or_its_streams_mark(messages, number, mark, left):
    is_over = failed_with(messages, number, mark)
    assert [attempt for attempt in ("m1one", "m2two") if not is_over(4, attempt)] == left


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("once-a.4.m1.0.7.0", (4, "m1")),
        ("once-a.1.4.m1.0.7.0", None),
        ("once-ab.4.m1.0.7.0", None),
        ("once-a.x.m1.0.7.0", None),
        ("once-a.4.m1", None),
        ("other-a.4.m1.0.7.0", None),
    ],
    ids=["its own", "a longer name with a dot", "a longer name", "no number", "no task", "another prefix"],
)
def test_written_for_returns_batch_and_attempt_only_for_ids_of_its_prefix_and_sink(name, found):
    assert written_for(name, PREFIX, "a") == found


def test_written_for_without_a_sink_returns_batch_and_attempt_of_a_sink_with_dots():
    assert written_for("once-a.1.4.m1.0.7.0", PREFIX, None) == (4, "m1")


@pytest.mark.parametrize("digests", [(TOPIC, TOPIC + OFFSETS), (TOPIC + OFFSETS, TOPIC)])
def test_a_batch_counts_as_decided_though_one_run_could_not_read_its_offsets(digests):
    world = committed_at_4(digests[0])
    message = attempt_of(world, SinkBatch("s", 4, "q", "two"), [b"r@2"])
    assert decided(world, commit_steps([message], digests[1])).already


@pytest.mark.parametrize("shortcut", ["owner not checked", "digest not checked"])
def test_a_ledger_that_did_not_compare_owner_and_digest_would_lose_a_querys_batch(shortcut):
    for without in ("", shortcut):
        world = calm()
        world.shortcut = without
        first, second = Checkpoint("a"), Checkpoint("a" if "digest" in shortcut else "b")
        first.plans[0], second.plans[0] = [b"a/0/0"], [b"b/0/0"]
        assert run(world, first, 1)
        assert run(world, second, 1) is bool(without)
        assert wrong(world, [first, second]) == ({"lost"} if without else set())


def two_writes(seed, shortcut=""):
    world = World(FakeBroker(), seed, shortcut)
    checkpoint = Checkpoint("q")
    checkpoint.plans[0] = [b"q/0/0"]
    return run(world, checkpoint, 1, writes=2, turns=2_000), world


@random_runs(100)
@given(SEEDS)
def test_two_foreachbatch_writes_with_one_sink_id_always_stop_the_query(seed):
    is_done, world = two_writes(seed)
    assert not is_done
    assert any("written twice" in str(conflict) for conflict in world.conflicts)


def test_if_writes_with_one_sink_id_were_not_told_apart_the_second_would_be_lost():
    is_done, world = two_writes(1, "writes not told apart")
    assert is_done
    assert len(world.broker.visible()) == 1


def test_a_repeated_foreachbatch_write_finds_its_batch_already_decided():
    world = calm()
    for start, attempt in (("r1", "one"), ("r2", "two"), ("r2", "two")):
        batch = SinkBatch("s", 4, "q", attempt, start, is_shared=True)
        message = attempt_of(world, batch, [b"r@" + attempt.encode()])
        assert decided(world, commit_steps([message], b"d")).already is (start == "r2")


def test_after_30_runs_of_a_shared_sink_its_ledger_entry_has_at_most_256_bytes():
    world = calm()
    for number in range(30):
        batch = SinkBatch("s", number, "q", f"a{number}", "r", is_shared=True)
        decided(world, commit_steps([attempt_of(world, batch, [b"r@1"])], b"d"))
    assert len(world.broker.ledger["s#writes"].digest) <= 256


# ---- messages, and long tasks ------------------------------------------------------------------------------------


def test_a_batch_whose_tasks_have_no_rows_is_committed_without_a_transaction():
    world, (one, _) = calm(), two_attempts()
    message = next_value(task_steps(one, 0, 0, [], LIMITS, lambda: 0))
    assert message == TaskDone(one, 0, (), 0)
    assert not decided(world, commit_steps([message], b"d")).already


def next_value(steps):
    with pytest.raises(StopIteration) as end:
        next(steps)
    return end.value.value


def test_a_task_begins_a_new_transaction_after_a_third_of_the_timeout():
    world, (one, _) = calm(), two_attempts()

    def pieces():
        for index in range(4):
            yield [b"r%d@1" % index]
            world.broker.advance(LIMITS.timeout_ms // 6 + 1)

    actor = world.start(task_steps(one, 0, 0, pieces(), LIMITS, lambda: world.broker.now_ms))
    while not actor.ended:
        with contextlib.suppress(StopIteration):
            actor.step = actor.steps.send(world.perform(actor.step, actor))
            continue
        break
    # The rows came in four sixths of the timeout: two prepared transactions, both of batch 4.
    assert [waiting.number for waiting in left_waiting(world)] == [4, 4]


@pytest.mark.parametrize(
    "messages",
    [
        [TaskDone(SinkBatch("s", 4, "q", "one"), 0, ()), None],
        [TaskDone(SinkBatch("s", 4, "q", "one"), 0, ()), TaskDone(SinkBatch("s", 4, "q", "two"), 1, ())],
        [TaskDone(SinkBatch("s", 4, "q", "one"), 0, ()), TaskDone(SinkBatch("s", 4, "q", "one"), 0, ())],
    ],
    ids=["one is missing", "two attempts", "one task twice"],
)
def test_a_commit_is_refused_unless_it_has_one_message_of_each_task_of_one_attempt(messages):
    with pytest.raises(BatchRefusedError):
        next(commit_steps(messages, b"d"))


@pytest.mark.parametrize(
    "change",
    [{}, {"number": 5}, {"owner": "other"}, {"committed": False}, {"digest": TOPIC + b"x" * 32}],
    ids=["the same", "another batch", "another query", "an abort", "other offsets"],
)
def test_a_ledger_entry_is_the_same_decision_only_if_all_fields_match(change):
    decision = {"number": 4, "owner": "q", "digest": TOPIC + OFFSETS, "committed": True, "decided_ms": 0}
    entry = LedgerEntry(**(decision | change))
    assert same_decision(entry, SinkBatch("s", 4, "q", "two"), TOPIC + OFFSETS) is (not change)
