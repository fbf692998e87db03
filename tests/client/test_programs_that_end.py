"""Programs that end, or go on, without closing their clients: what is lost is said, and nothing else is lost.

Each is a process of its own with a real broker. Its producer keeps records back for a minute, so that only the end of
the producer can send them.
"""

import signal
import subprocess
import sys
import textwrap

import pytest
from fencepost.client import sync
from fencepost.testing.served import ObservedBroker
from long_runs import first_only

pytestmark = pytest.mark.slow

HEAD = """
import asyncio, gc, os, signal, sys, time
import fencepost as fp
from fencepost import sync
SERVERS, TOPIC = sys.argv[1:]
SETTINGS = {"enable_auto_commit": True, "auto_offset_reset": "earliest"}
kept = []
"""
ASYNC = """
async def main():
    producer = fp.Producer(SERVERS, linger_ms=60_000)
    await producer.start()
    for n in range(100):
        await producer.send(TOPIC, b"%d" % n)
    END
asyncio.run(main())
"""
SYNC = """
producer = sync.Producer(SERVERS, linger_ms=60_000)
producer.start()
for n in range(100):
    producer.send(TOPIC, b"%d" % n)
END
"""
KEPT = "kept.append(producer)"  # by a global name, so that it is there until the interpreter ends
INTERRUPT = "os.kill(os.getpid(), signal.SIGINT); time.sleep(5)"
TERMINATE = "os.kill(os.getpid(), signal.SIGTERM); time.sleep(5)"
HANDLED = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9)); " + TERMINATE


@pytest.fixture(scope="module")
def broker():
    with ObservedBroker() as broker:
        yield broker


@pytest.fixture
def topic(request):
    return f"t-{abs(hash(request.node.name))}"


def run(broker, topic, program, end="pass"):
    """Run the program, with `end` for its last line END, in a process of its own. Returns exit code and stderr."""
    text = HEAD + textwrap.dedent(program).replace("END", end)
    ended = subprocess.run(
        [sys.executable, "-c", text, broker.bootstrap_servers, topic],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a suite in the background ignores it
    )
    return ended.returncode, ended.stderr


@pytest.mark.parametrize(
    ("program", "end", "code"),
    first_only(
        [
            (ASYNC, "del producer; await asyncio.sleep(1)", 0),
            (SYNC, HANDLED, 9),
            (SYNC, "pass", 0),
            (SYNC, "raise RuntimeError('a mistake')", 1),
            (ASYNC, "pass", 0),
            (ASYNC, INTERRUPT, -signal.SIGINT),
            (SYNC, "del producer", 0),
            (SYNC, "sys.exit(7)", 7),
            (SYNC, INTERRUPT, -signal.SIGINT),
        ],
        2,
    ),
)
def test_an_ending_program_sends_its_buffered_records(broker, topic, program, end, code):
    exit_code, said = run(broker, topic, program, end)
    assert exit_code == code, said
    assert len(broker.records(topic)) == 100, said
    assert "dropped" not in said


@pytest.mark.parametrize(
    ("program", "end", "code"),
    first_only(
        [
            (ASYNC, KEPT, 0),
            (ASYNC, "await producer.close(timeout_ms=0)", 0),
            (ASYNC, "raise RuntimeError('a mistake')", 1),
            (ASYNC, HANDLED, 9),
        ],
        2,
    ),
)
def test_a_program_that_cannot_send_its_records_any_more_says_how_many(broker, topic, program, end, code):
    exit_code, said = run(broker, topic, program, end)
    assert exit_code == code, said
    assert len(broker.records(topic)) == 0
    assert said.count("dropped 100 records") == 1, said
    assert "they were not written" in said


WORKER = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
from fencepost import sync
SERVERS, TOPIC, METHOD, KIND = sys.argv[1:]
kept = []

def send(n):
    if not kept:
        kept.append(sync.Producer(SERVERS, linger_ms=60_000))
        kept[0].start()
    kept[0].send(TOPIC, b"%d" % n)

def send_all():
    for n in range(100):
        send(n)

if __name__ == "__main__":
    context = multiprocessing.get_context(METHOD)
    if KIND == "Process":
        worker = context.Process(target=send_all)
        worker.start()
        worker.join()
        sys.exit(worker.exitcode)
    elif KIND == "Pool":
        with context.Pool(1) as pool:
            pool.map(send, range(100))
            pool.close()
            pool.join()
    else:
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            list(pool.map(send, range(100)))
"""


@pytest.mark.parametrize("kind", first_only(["ProcessPoolExecutor", "Process", "Pool"]))
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_worker_of_multiprocessing_sends_its_records_at_its_end(broker, topic, tmp_path, method, kind):
    program = tmp_path / "program.py"  # a file, which forkserver and spawn import
    program.write_text(WORKER)
    command = [sys.executable, program, broker.bootstrap_servers, topic, method, kind]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(broker.records(topic)) == 100


def test_a_worker_of_multiprocessing_leaves_the_clients_of_its_parent_alone(broker, topic):
    program = """
        import multiprocessing
        producer = sync.Producer(SERVERS, linger_ms=60_000)
        producer.start()
        producer.send(TOPIC, b"0")
        worker = multiprocessing.get_context("fork").Process(target=print)
        worker.start()
        worker.join()
        producer.send(TOPIC, b"1")
    """
    assert run(broker, topic, program) == (0, "")
    assert [record.value for record in broker.records(topic)] == [b"0", b"1"]


CONSUMER = """
def main():
    consumer = sync.Consumer(SERVERS, topics=[TOPIC], group_id=TOPIC, **SETTINGS)
    consumer.start()
    for n in range(3):
        assert consumer.getone().value == b"%d" % n
    END
main()
"""
ASYNC_CONSUMER = """
async def main():
    consumer = fp.Consumer(SERVERS, topics=[TOPIC], group_id=TOPIC, **SETTINGS)
    await consumer.start()
    for n in range(3):
        assert (await consumer.getone()).value == b"%d" % n
    END
asyncio.run(main())
"""


def committed(broker, topic):
    return {offset.offset for offset in broker.committed(topic).values()}


@pytest.fixture
def numbers(broker, topic):
    with sync.Producer(broker.bootstrap_servers) as producer:
        for n in range(10):
            producer.send(topic, b"%d" % n)
    return topic


@pytest.mark.parametrize(
    ("program", "end", "code", "offset"),
    first_only(
        [
            (CONSUMER, "raise RuntimeError('a mistake')", 1, 2),
            (ASYNC_CONSUMER, "await consumer.close()", 0, 3),
            (CONSUMER, "kept.append(consumer)", 0, 2),
            (ASYNC_CONSUMER, INTERRUPT, -signal.SIGINT, 2),
            (CONSUMER, "pass", 0, 2),
            (CONSUMER, "sys.exit(7)", 7, 2),
            (ASYNC_CONSUMER, "pass", 0, 2),
        ],
        2,
    ),
)
def test_an_unclosed_consumer_at_exit_commits_all_but_the_record_returned_last(
    broker, numbers, program, end, code, offset
):
    exit_code, said = run(broker, numbers, program, end)
    assert exit_code == code, said
    assert committed(broker, numbers) == {offset}, said
    assert ("from offset 2" in said) == (offset == 2), said


@pytest.mark.parametrize(
    ("end", "code"), first_only([("kept.append(consumer)", 0), ("raise RuntimeError('a mistake')", 1)])
)
def test_a_consumer_whose_loop_has_ended_logs_records_to_be_read_again(broker, numbers, end, code):
    exit_code, said = run(broker, numbers, ASYNC_CONSUMER, end)
    assert exit_code == code, said
    assert committed(broker, numbers) == set(), said
    assert f"group {numbers}: the consumer was never closed" in said
    assert f"read again: {numbers}-0 from offset 0" in said


TRANSACTION = """
producer = sync.Producer(SERVERS, transactional_id=TOPIC)
producer.start()
producer.begin_transaction()
producer.send(TOPIC, b"v")
END
"""
ASYNC_TRANSACTION = """
async def main():
    producer = fp.Producer(SERVERS, transactional_id=TOPIC)
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait(TOPIC, b"v")
    END
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("program", "end", "code", "is_open"),
    first_only(
        [
            (TRANSACTION, "pass", 0, False),
            (ASYNC_TRANSACTION, KEPT, 0, True),
            (TRANSACTION, "sys.exit(7)", 7, False),
            (ASYNC_TRANSACTION, "pass", 0, False),
            (ASYNC_TRANSACTION, "raise RuntimeError('a mistake')", 1, True),
        ],
        2,
    ),
)
def test_a_transaction_left_open_at_exit_is_logged(broker, topic, program, end, code, is_open):
    exit_code, said = run(broker, topic, program, end)
    assert exit_code == code, said
    assert f"transaction '{topic}'" in said
    states = [seen.state for seen in broker.transactions() if seen.transactional_id == topic]
    assert states == ["Ongoing" if is_open else "CompleteAbort"], said
    assert broker.records(topic) == []


@pytest.mark.parametrize("program", [SYNC, CONSUMER])
def test_a_signal_without_a_handler_ends_a_program_without_a_send_or_commit(broker, numbers, program):
    exit_code, said = run(broker, numbers, program, TERMINATE)
    assert exit_code == -signal.SIGTERM, said
    assert len(broker.records(numbers)) == 10
    assert committed(broker, numbers) == set()


def test_a_program_with_an_unclosed_admin_client_exits_with_0(broker, topic):
    program = """
        admin = sync.Admin(SERVERS)
        admin.start()
        admin.list_topics()
    """
    assert run(broker, topic, program)[0] == 0
