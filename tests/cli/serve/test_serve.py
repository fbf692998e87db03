"""`fencepost serve` as a process: how it starts, what it says, how it ends, and what it says when it cannot start."""

import contextlib
import errno
import gc
import os
import resource
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from broker_process import free_port
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from fencepost.cli import main
from fencepost.protocol.messages.cluster import ApiVersionsRequest, MetadataRequest
from fencepost.protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from fencepost.storage import checkpoints, layout, store_checkpoint
from long_runs import first_only
from this_machine import has_ipv6
from wire_client import Closed, WireClient

READY_S = 20
UNOPENABLE_SERVE = Path(__file__).parents[2] / "support" / "brokers" / "unopenable_serve.py"


class Serve:
    """The command with these arguments, in a directory."""

    def __init__(
        self, cwd: Path, arguments: Sequence[str], environment: dict[str, str], file_limit: int, program: Sequence[str]
    ) -> None:
        limits = (file_limit, file_limit)
        self.process = subprocess.Popen(
            [sys.executable, *program, "serve", *arguments],
            cwd=cwd,
            env={**os.environ, **environment},
            preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits)) if file_limit else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.expected: list[str] = []

    def ready(self) -> list[tuple[str, int]]:
        """Wait for the line that begins with "ready", and return the addresses in it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.expected.append(line.rstrip("\n"))
            if line.startswith("ready"):
                addresses = (text.rpartition(":") for text in line.split()[1:])
                return [(host.strip("[]"), int(port)) for host, _, port in addresses]
        raise AssertionError(f"never ready: {self.expected} {self.process.stderr and self.process.stderr.read()}")

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(READY_S)

    def refusal(self) -> tuple[int, str, str]:
        """Wait for the end of a broker that does not start, and return its exit code, cause and hint."""
        out, err = self.process.communicate(timeout=READY_S)
        assert "ready" not in out
        assert "Traceback" not in err
        lines = [line for line in err.splitlines() if not line.startswith("warning:")]
        assert len(lines) == 2, lines
        assert lines[0].startswith("error: ")
        assert lines[1].startswith("hint: ")
        return self.process.returncode, lines[0][7:], lines[1][6:]


class Runner:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.started: list[Serve] = []

    def __call__(
        self,
        *arguments: str,
        environment: dict[str, str] | None = None,
        file_limit: int = 0,
        program: Sequence[str] = ("-m", "fencepost"),
    ) -> Serve:
        self.started.append(Serve(self.directory, arguments, environment or {}, file_limit, program))
        return self.started[-1]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Runner]:
    runner = Runner(tmp_path)
    yield runner
    for one in runner.started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()
        for stream in (one.process.stdout, one.process.stderr):
            if stream is not None:
                stream.close()


def ask_versions(address: tuple[str, int]) -> int:
    with WireClient(*address) as client:
        return int(client.call(ApiVersionsRequest()).error_code)


def test_serve_prints_its_address_and_a_restart_keeps_the_topics(serve: Runner) -> None:
    first = serve("--listen", "127.0.0.1:0")
    ((host, port),) = first.ready()
    assert (host, ask_versions((host, port))) == ("127.0.0.1", 0)
    producer = Producer({"bootstrap.servers": f"{host}:{port}", "enable.idempotence": True})
    producer.produce("a", b"kept")
    assert producer.flush(10) == 0
    verdict = CliRunner().invoke(main, ["log", "verify", str(serve.directory / ".fencepost")])  # while it runs
    assert verdict.output.startswith("sound: "), verdict.output
    assert first.end() == 0
    assert (serve.directory / ".fencepost" / ".gitignore").read_text() == "*\n"
    ((host, port),) = serve("--listen", "127.0.0.1:0").ready()
    topics = AdminClient({"bootstrap.servers": f"{host}:{port}"}).list_topics(timeout=10).topics
    assert list(topics) == ["a"]


@pytest.mark.parametrize(
    ("listen", "hosts"), [("[::1]:0", {"::1"}), ("localhost:0", {"127.0.0.1", "::1"}), ("0.0.0.0:0", {"0.0.0.0"})]
)
def test_serve_listens_at_the_given_addresses(serve: Runner, listen: str, hosts: set[str]) -> None:
    if ":" in "".join(hosts) and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    addresses = serve("--listen", listen, "--ephemeral", "--insecure").ready()
    assert {host for host, _ in addresses} == hosts
    assert len({port for _, port in addresses}) == 1
    for host, port in addresses:
        reached = "127.0.0.1" if host == "0.0.0.0" else host
        with WireClient(reached, port) as client:
            (broker,) = client.call(MetadataRequest(topics=[])).brokers
        assert (broker.host, broker.port) == ("localhost" if listen == "localhost:0" else reached, port)


def test_a_metadata_response_has_the_host_and_port_of_the_option_advertise(serve: Runner) -> None:
    ((_, port),) = serve("--listen", "127.0.0.1:0", "--advertise", "kafka.example:19092", "--ephemeral").ready()
    with WireClient("127.0.0.1", port) as client:
        (broker,) = client.call(MetadataRequest(topics=[])).brokers
    assert (broker.host, broker.port) == ("kafka.example", 19092)


def test_serve_ephemeral_leaves_no_files(serve: Runner, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    one = serve("--listen", "127.0.0.1:0", "--ephemeral", environment={"TMPDIR": str(scratch)})
    one.ready()
    assert [path.name[:10] for path in scratch.iterdir()] == ["fencepost-"]
    assert one.end(signal.SIGINT) == 0
    assert list(scratch.iterdir()) == []
    assert not (tmp_path / ".fencepost").exists()


def test_settings_come_from_flags_then_environment_then_file(serve: Runner, tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text('node.id = 11\n"durability.mode" = "interval"\nprocess.roles = "broker"\n')
    one = serve(
        "--config", "f.toml", "-X", "node.id=13", "--data-dir", "d",
        environment={"FENCEPOST_NODE_ID": "12", "FENCEPOST_LISTEN": "127.0.0.1:0"},
    )  # fmt: skip
    ((host, port),) = one.ready()
    with WireClient(host, port) as client:
        assert [broker.node_id for broker in client.call(MetadataRequest(topics=[])).brokers] == [13]
    assert any(line.startswith("durability interval") and "power cut" in line for line in one.expected)
    assert one.end() == 0
    assert one.process.stderr is not None
    assert "names that only Kafka needs are ignored: process.roles" in one.process.stderr.read()


def test_serve_with_ignore_dynamic_ignores_settings_changed_at_runtime(serve: Runner) -> None:
    configs = [IncrementalAlterConfigsRequest.Resource.Config(name="max.connections", config_operation=0, value="10")]
    resource = IncrementalAlterConfigsRequest.Resource(resource_type=4, resource_name="1", configs=configs)
    asked = DescribeConfigsRequest.Resource(resource_type=4, resource_name="1", configuration_keys=["max.connections"])
    values = []
    for more in ([], [], ["--ignore-dynamic"]):
        one = serve("--listen", "127.0.0.1:0", "--data-dir", "d", *more)
        ((host, port),) = one.ready()
        with WireClient(host, port) as client:
            if not values:
                client.call(IncrementalAlterConfigsRequest(resources=[resource]))
            (result,) = client.call(DescribeConfigsRequest(resources=[asked])).results
            values.append(result.configs[0].value)
        assert one.end() == 0
    assert values == ["10", "10", "10000"]
    assert one.process.stderr is not None
    assert "ignored by this start: max.connections=10" in one.process.stderr.read()


def test_a_second_signal_ends_serve_at_once(serve: Runner) -> None:
    one = serve("--listen", "127.0.0.1:0", "--ephemeral")
    one.ready()
    one.process.send_signal(signal.SIGSTOP)
    one.process.send_signal(signal.SIGTERM)
    one.process.send_signal(signal.SIGINT)
    one.process.send_signal(signal.SIGCONT)
    # Both signals wait when the process goes on, and Python may handle either of them as the second.
    assert one.process.wait(READY_S) in (128 + signal.SIGTERM, 128 + signal.SIGINT)


def test_a_failed_write_halts_serve_with_code_70_and_closes_every_connection(serve: Runner) -> None:
    limit = 1536 << 10  # bytes: the journal's first file fits, its second, which is created in advance, does not
    one = serve("--listen", "127.0.0.1:0", "--data-dir", "d", file_limit=limit)
    assert one.process.stdout is not None
    assert one.process.stderr is not None
    for line in one.process.stdout:  # until it ends; on a slow machine it halts before it is ready
        if line.startswith("ready"):
            host, _, port = line.split()[1].rpartition(":")
            with contextlib.suppress(OSError, Closed), WireClient(host, int(port)) as client:
                while True:
                    client.call(ApiVersionsRequest())
    assert one.process.wait(READY_S) == 70
    *_, cause, hint = one.process.stderr.read().splitlines()
    assert cause.startswith("error: the broker halted: [Errno 27]")
    assert hint.startswith("hint: nothing was acknowledged since")


# ---- what a person reads when it does not start --------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "cause", "hint"),
    [
        (["-X", "num.partitons=3"], 2, "unknown setting num.partitons (flag)", "did you mean num.partitions?"),
        (["-X", "num.partitions=0"], 2, "Value must be at least 1", "Partitions of a topic"),
        (["-X", "num.partitions"], 2, "-X num.partitions has no value", "-X num.partitions=VALUE"),
        (["-X", "=3"], 2, "-X =3 has no name", "-X NAME=VALUE"),
        (["--durability", "maybe"], 2, "String must be one of: fsync, interval, os", "What an acknowledgement waits"),
        (["--listen", "::1:9092"], 2, "is not HOST:PORT", "Addresses to listen on"),
        (["--config", "nope.toml"], 2, "nope.toml: No such file", "--config must be a readable TOML file"),
        (["--config", "bad.toml"], 2, "bad.toml: ", "write TOML"),
        (["--config", "twice.toml"], 2, "log.retention.ms is given twice (twice.toml)", "retention.ms"),
        (["--listen", ""], 2, "--listen is empty", "default"),
        (["--data-dir", ""], 2, "--data-dir is empty", "default"),
        (["--advertise", "h:0"], 2, "clients cannot connect to port 0", "clients get to connect"),
        (["--ephemeral", "--data-dir", "d"], 2, "cannot be used together", "removed at the end"),
        (["--standby"], 2, "--standby is given without --store", "--store URL"),
        (["--store", "file:///s", "--backup", "file:///b"], 2, "--backup cannot follow a journal", "fencepost restore"),
        (["-X", "ssl.provider=x"], 2, "asks for protection", "settings_page lists every setting"),
    ],
)
def test_wrong_serve_usage_prints_a_cause_and_a_hint(
    arguments: Sequence[str], code: int, cause: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.toml").write_text("a = = 1")
    (tmp_path / "twice.toml").write_text('"log.retention.ms" = 1\n[log.retention]\nms = 2\n')
    found = CliRunner().invoke(main, ["serve", *arguments])
    assert gc.isenabled()  # while serve starts, garbage collection is off
    assert found.exit_code == code
    first, second = found.stderr.splitlines()
    assert first.startswith("error: ")
    assert cause in first
    assert second.startswith("hint: ")
    assert hint in second
    assert sorted(tmp_path.iterdir()) == [tmp_path / "bad.toml", tmp_path / "twice.toml"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_serve_exits_with_1_and_a_hint_if_its_standard_output_cannot_be_written(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fencepost", "serve", "--listen", "127.0.0.1:0", "--ephemeral"]
    with open("/dev/full", "w") as full:
        found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=READY_S, cwd=tmp_path)
    assert found.returncode == 1
    cause, hint = found.stderr.splitlines()
    assert cause == "error: standard output cannot be written: No space left on device"
    assert hint.startswith("hint: ")


def wait_until_it_serves(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + READY_S
    while True:
        try:
            assert ask_versions(("127.0.0.1", port)) == 0
            return
        except OSError:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.mark.parametrize("closed", first_only([[0, 1, 2], [1], [2]]), ids=str)
def test_serve_starts_and_stops_with_its_standard_files_closed(closed: list[int], tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "fencepost", "serve", "--listen", f"127.0.0.1:{port}", "--data-dir", "data"]
    shell = f"exec {shlex.join(command)} " + " ".join(f"{number}>&-" for number in closed)
    with subprocess.Popen(["/bin/sh", "-c", shell], cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
        wait_until_it_serves(port, process)
        for _ in range(3):  # none of these connections gets the number of a standard file, which may not be closed
            assert ask_versions(("127.0.0.1", port)) == 0
        process.terminate()
        assert process.wait(READY_S) == 0


def test_serve_does_not_replace_a_file_that_a_library_opened_as_number_1(tmp_path: Path) -> None:
    """With standard output closed, libffi opens a file of its own as number 1 when ctypes is imported, before any code
    of fencepost runs.
    """
    library = tmp_path / "library"
    library.write_bytes(b"")
    script = f"""
import os, sys
taken = os.open({str(library)!r}, os.O_RDONLY)
assert taken == 1 and sys.stdout is None
from fencepost.cli.serve.serving import _open_standard_files
_open_standard_files()
print("ready", flush=True)
assert os.readlink("/proc/self/fd/1") == {str(library)!r}
"""
    shell = f"exec {shlex.join([sys.executable, '-c', script])} >&-"
    subprocess.run(["/bin/sh", "-c", shell], check=True)


def test_a_signal_during_the_start_ends_serve_without_a_traceback(serve: Runner) -> None:
    for wait_s in (0.05, 0.3, 0.6):
        one = serve("--listen", "127.0.0.1:0", "--ephemeral")
        time.sleep(wait_s)
        one.process.terminate()
        _, err = one.process.communicate(timeout=READY_S)
        # Before serve has set its signal handlers, the signal ends the process.
        assert one.process.returncode in (0, -signal.SIGTERM)
        assert "Traceback" not in err


def test_serve_names_a_listener_address_that_does_not_resolve(serve: Runner) -> None:
    code, cause, hint = serve("--listen", "no.such.host.invalid:0", "--insecure", "--ephemeral").refusal()
    assert code == 1
    assert cause.startswith("cannot listen on no.such.host.invalid:0")
    assert "--listen must be" in hint


def test_serve_names_a_listener_address_that_is_in_use(serve: Runner) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, cause, hint = serve("--listen", f"127.0.0.1:{port}", "--ephemeral").refusal()
    assert (code, cause) == (1, f"cannot listen on 127.0.0.1:{port}: address already in use")
    assert "another program uses this port" in hint


@pytest.mark.parametrize("blocked", first_only(["d", "d/logs", "d/journal", "d/journal-parts"], 2))
def test_serve_names_a_file_where_the_data_directory_or_one_in_it_should_be(blocked: str, serve: Runner) -> None:
    path = serve.directory / blocked
    path.parent.mkdir(exist_ok=True)
    path.touch()
    code, cause, hint = serve("--listen", "127.0.0.1:0", "--data-dir", "d").refusal()
    assert (code, cause.endswith(": not a directory")) == (1, True)
    assert hint == f"the broker needs a directory at {blocked}, not a file: move the file, or use another --data-dir"


def test_serve_names_a_directory_where_the_lock_file_should_be(serve: Runner) -> None:
    (serve.directory / "d" / "lock").mkdir(parents=True)
    code, cause, hint = serve("--listen", "127.0.0.1:0", "--data-dir", "d").refusal()
    assert (code, cause) == (1, "d/lock: is a directory")
    assert hint == "the broker needs a file at d/lock, not a directory: move the directory, or use another --data-dir"


def test_a_directory_that_another_broker_uses_is_named_with_its_process(serve: Runner) -> None:
    first = serve("--listen", "127.0.0.1:0", "--data-dir", "d")
    first.ready()
    code, cause, hint = serve("--listen", "127.0.0.1:0", "--data-dir", "d").refusal()
    assert (code, cause) == (1, f"d is in use by process {first.process.pid}")
    assert "--data-dir" in hint


def test_serve_on_a_directory_of_a_newer_version_fails_and_changes_no_file(serve: Runner) -> None:
    directory = serve.directory / "d"
    one = serve("--listen", "127.0.0.1:0", "--data-dir", "d")
    one.ready()
    one.end()
    _rewrite_newest_checkpoint(directory)
    before = sorted((path, path.read_bytes()) for path in directory.rglob("*") if path.is_file())
    code, cause, hint = serve("--listen", "127.0.0.1:0", "--data-dir", "d").refusal()
    assert code == 1
    assert "newer fencepost" in cause
    assert "nothing was changed" in hint
    assert sorted((path, path.read_bytes()) for path in directory.rglob("*") if path.is_file()) == before


def test_serve_on_a_damaged_journal_exits_with_1_and_names_the_file(serve: Runner) -> None:
    directory = serve.directory / "d"
    one = serve("--listen", "127.0.0.1:0", "--data-dir", "d")
    one.ready()
    one.end()
    journal = next((directory / "journal").iterdir())
    journal.write_bytes(b"\xff" * 8 + journal.read_bytes()[8:])
    code, cause, hint = serve("--listen", "127.0.0.1:0", "--data-dir", "d").refusal()
    assert code == 1
    assert str(journal.name) in cause
    assert "fencepost log verify d" in hint


@pytest.fixture
def served(serve: Runner) -> Path:
    """A data directory that a broker left after kill -9: topic a has a record in a segment, and one in the journal
    alone.
    """
    one = serve("--listen", "127.0.0.1:0", "--data-dir", "d", "-X", "log.checkpoint.interval.ms=100")
    ((host, port),) = one.ready()
    produce_one(host, port, b"in a segment")
    until = time.monotonic() + 20
    while not list((serve.directory / "d" / "logs").glob("a-0.*/*.log")) and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(0.5)  # by then a checkpoint names the segment
    produce_one(host, port, b"in the journal")
    one.end(signal.SIGKILL)
    return serve.directory / "d"


def produce_one(host: str, port: int, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": f"{host}:{port}", "acks": "all"})
    producer.produce("a", value)
    assert producer.flush(10) == 0


def values_of(host: str, port: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": f"{host}:{port}", "group.id": "g"})
    consumer.assign([TopicPartition("a", 0, 0)])
    try:
        return [message.value() for message in consumer.consume(2, timeout=10)]
    finally:
        consumer.close()


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.name != "lock"}


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.EMFILE, "ulimit -n"),
        pytest.param(errno.ENFILE, "fs.file-max", marks=pytest.mark.long),
        pytest.param(errno.ENOMEM, "more memory", marks=pytest.mark.long),
        pytest.param(errno.EACCES, "read and write access", marks=pytest.mark.long),
        pytest.param(errno.EIO, "-X storage.unreadable.partitions=offline", marks=pytest.mark.long),
    ],
)
def test_serve_exits_with_75_and_changes_nothing_if_a_file_cannot_be_opened(
    serve: Runner, served: Path, number: int, expected: str
) -> None:
    before = files_of(served)
    arguments = ("--listen", "127.0.0.1:0", "--data-dir", "d")
    refused = serve(*arguments, program=[str(UNOPENABLE_SERVE), "logs/a-0.", str(number)])
    code, cause, hint = refused.refusal()
    assert code == 75
    assert cause.startswith("d/logs/a-0.")
    assert os.strerror(number).lower() in cause.lower()
    assert expected in hint
    assert files_of(served) == before
    healthy = serve(*arguments)
    assert values_of(*healthy.ready()[0]) == [b"in a segment", b"in the journal"]
    assert not any("OFFLINE" in line for line in healthy.expected)


def test_serve_may_start_with_a_partition_offline_and_a_restart_brings_it_back(serve: Runner, served: Path) -> None:
    arguments = ("--listen", "127.0.0.1:0", "--data-dir", "d")
    program = [str(UNOPENABLE_SERVE), "logs/a-0.", str(errno.EIO)]
    without = serve(*arguments, "-X", "storage.unreadable.partitions=offline", program=program)
    without.ready()
    assert any("OFFLINE d/logs/a-0." in line for line in without.expected), without.expected
    assert without.end() == 0
    healthy = serve(*arguments)
    assert values_of(*healthy.ready()[0]) == [b"in a segment", b"in the journal"]


def _rewrite_newest_checkpoint(directory: Path) -> None:
    """Write the newest checkpoint again with a format version that is one higher than ours."""
    from fencepost.effects.disk import SystemDisk

    disk = SystemDisk()
    number = store_checkpoint.numbers(disk, str(directory))[0]
    path = layout.checkpoint_path(str(directory), number)
    payload = checkpoints.read_file(disk, path, store_checkpoint.KIND, store_checkpoint.VERSION)
    checkpoints.write_file(disk, path, store_checkpoint.KIND, store_checkpoint.VERSION + 1, payload)


def test_help_imports_no_heavy_module() -> None:
    script = (
        "import sys; from fencepost.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted(name for name in sys.modules if name in ('asyncio', 'uvloop', 'msgpack', 'rich', 'cramjam')))"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"
    assert "serve" in out
