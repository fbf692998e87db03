"""The options of a login: which client properties they become, where a password comes from, and what is refused."""

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from fencepost.cli import main
from fencepost.cli.arguments import login
from fencepost.cli.arguments.connecting import Target
from fencepost.cli.arguments.login import login_properties, password_from_stdin, properties_of
from fencepost.cli.output.failures import Failure
from fencepost.cli.output.tables import Output
from login_client import add_users
from served_broker import ServedBroker

BY_USER = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "alice",
    "sasl.password": "hush",
}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (login.PASSWORD_VARIABLE, login.USER_VARIABLE, login.CONFIG_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def type_in(monkeypatch: pytest.MonkeyPatch, content: bytes) -> io.BytesIO:
    """Replace standard input by a stream with this content, which is no terminal. Returns the stream."""
    stream = io.BytesIO(content)
    monkeypatch.setattr(login.sys, "stdin", SimpleNamespace(buffer=stream, isatty=lambda: False))
    return stream


@pytest.mark.parametrize(
    ("options", "properties"),
    [
        ({}, {}),
        ({"login_user": "alice"}, BY_USER),
        ({"login_user": "alice", "login_mechanism": "plain"}, {**BY_USER, "sasl.mechanism": "PLAIN"}),
        ({"login_user": "alice", "login_tls": True}, {**BY_USER, "security.protocol": "SASL_SSL"}),
        (
            {"login_user": "alice", "login_ca": "ca.pem"},
            {**BY_USER, "security.protocol": "SASL_SSL", "ssl.ca.location": "ca.pem"},
        ),
        ({"login_tls": True}, {"security.protocol": "SSL"}),
        (
            {"login_ca": "ca.pem", "login_cert": "me.pem", "login_key": "key.pem"},
            {
                "security.protocol": "SSL",
                "ssl.ca.location": "ca.pem",
                "ssl.certificate.location": "me.pem",
                "ssl.key.location": "key.pem",
            },
        ),
    ],
)
def test_connection_options_become_client_properties(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], properties: dict[str, str]
) -> None:
    monkeypatch.setenv(login.PASSWORD_VARIABLE, "hush")
    assert login_properties(**options) == properties


def test_a_properties_file_is_read_like_javas_and_command_line_options_override_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# of the team\n\n! also a comment\nsecurity.protocol = sasl_ssl\nsasl.mechanism=SCRAM-SHA-512\n"
        'sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule \\\n  required username="bob" \\\n'
        '  password="p=1";\nssl.truststore.location=ca.pem\nbootstrap.servers=k:9093\n'
    )
    found = properties_of(str(file))
    assert found["sasl.jaas.config"].endswith('required username="bob" password="p=1";')
    assert (found["security.protocol"], found["bootstrap.servers"]) == ("sasl_ssl", "k:9093")
    assert login_properties(login_config=str(file)) == {**found, "security.protocol": "SASL_SSL"}
    monkeypatch.setenv(login.PASSWORD_VARIABLE, "hush")
    other = login_properties(login_config=str(file), login_user="alice")
    assert other["sasl.mechanism"] == "SCRAM-SHA-512"
    assert (other["sasl.username"], other["sasl.password"], other["security.protocol"]) == ("alice", "hush", "SASL_SSL")
    assert "sasl.jaas.config" not in other


def test_a_password_comes_from_stdin_the_environment_or_the_file_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("sasl.password=of the file\nsecurity.protocol=SASL_PLAINTEXT\n")
    asked = {"login_user": "alice", "login_config": str(file)}
    type_in(monkeypatch, b"of stdin\n")
    assert login_properties(**asked)["sasl.password"] == "of the file"
    monkeypatch.setenv(login.PASSWORD_VARIABLE, "of the environment")
    assert login_properties(**asked)["sasl.password"] == "of the environment"
    assert login_properties(**asked, login_password_stdin=True)["sasl.password"] == "of stdin"


def test_password_from_stdin_reads_the_first_line_and_leaves_the_other_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = type_in(monkeypatch, b"hush\r\nrecord 1\nrecord 2\n")
    assert password_from_stdin() == "hush"
    assert stream.read() == b"record 1\nrecord 2\n"


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"login_user": "alice"}, "no terminal to ask"),
        ({"login_password_stdin": True}, "--password-stdin is given, but no user"),
        ({"login_mechanism": "PLAIN"}, "--sasl is given, but no user"),
        ({"login_config": "/none/there"}, "/none/there: No such file"),
    ],
)
def test_a_missing_user_or_password_exits_with_2_and_a_hint(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], cause: str
) -> None:
    type_in(monkeypatch, b"")
    with pytest.raises(Failure, match=cause) as raised:
        login_properties(**options)
    assert (raised.value.exit_code, bool(raised.value.hint)) == (2, True)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("security.protocol=SSL\nhush-hush\n", "line 2 is not NAME=VALUE"),
        ("=hush-hush\n", "line 1 is not NAME=VALUE"),
        ("acks=hush-hush\n", "line 1: acks is not about the connection"),
        ("sasl.password=a\\\nhush-hush\\\n\nb", "line 4 is not NAME=VALUE"),
    ],
)
def test_a_malformed_properties_file_is_reported_with_its_line_and_no_secret(
    tmp_path: Path, text: str, cause: str
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    with pytest.raises(Failure, match=cause) as raised:
        properties_of(str(file))
    assert "hush" not in str(raised.value) + raised.value.hint


def test_the_repr_of_a_commands_target_does_not_contain_its_password() -> None:
    assert "hush" not in repr(Target("h:1", (("sasl.password", "hush"),), 1, Output()))


# ---- against a broker that asks who connects ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker() -> Iterator[ServedBroker]:
    with ServedBroker(
        listeners=("SASL_PLAINTEXT://127.0.0.1:0",),
        sasl_enabled_mechanisms=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        connection_failed_authentication_delay_ms=0,
    ) as served:
        served.inside(add_users)
        yield served


class Shell:
    def __init__(self, broker: ServedBroker, **variables: str) -> None:
        self._env = {"FENCEPOST_BOOTSTRAP": f"127.0.0.1:{broker.port}", **variables}

    def run(self, line: str, given: bytes = b"") -> tuple[int, str, str]:
        result = CliRunner(env=self._env).invoke(main, line.split(), input=given)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("mechanism", ["", "--sasl PLAIN", "--sasl scram-sha-512"])
def test_commands_log_in_with_a_user_and_password(broker: ServedBroker, mechanism: str) -> None:
    shell = Shell(broker)
    assert shell.run(f"topic list --user alice --password-stdin {mechanism}", b"alice-pw\n")[0] == 0
    assert Shell(broker, FENCEPOST_PASSWORD="bob-pw", FENCEPOST_USER="bob").run(f"topic list {mechanism}")[0] == 0


@pytest.mark.slow
def test_every_command_logs_in_and_input_follows_the_password(broker: ServedBroker) -> None:
    """The first line of standard input is the password, what follows is the command's input."""
    shell = Shell(broker)
    login = "--user alice --password-stdin"
    assert shell.run(f"topic create orders {login}", b"alice-pw\n")[1] == "orders created\n"
    command = [
        sys.executable,
        "-m",
        "fencepost",
        *f"produce orders --txn t1 -b 127.0.0.1:{broker.port} {login}".split(),
    ]
    done = subprocess.run(command, input=b"alice-pw\none\ntwo\n", capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"committed 2 records in 1 transaction\n"), done.stderr
    assert shell.run(f"consume orders --from start -e {login}", b"alice-pw\n")[1] == "one\ntwo\n"
    for line in ("group list", "txn list", "health", "user list", "txn why-blocked", "group seek g -t orders --to 1"):
        assert shell.run(f"{line} {login}", b"alice-pw\n")[0] == 0, line
    code, reported, _ = shell.run(f"doctor {login}", b"alice-pw\n")
    assert (code, "alice-pw" in reported) == (0, False)


def test_a_wrong_password_is_reported_in_one_line_of_cause_and_one_of_hint(broker: ServedBroker) -> None:
    for name, mechanism in [("alice", "PLAIN"), ("alice", "SCRAM-SHA-256"), ("nobody", "SCRAM-SHA-512")]:
        code, _, error = Shell(broker).run(f"topic list --user {name} --password-stdin --sasl {mechanism}", b"hush-x\n")
        cause, hint = error.splitlines()
        assert code == 6
        assert "does not accept the user name and password" in cause
        assert hint == "hint: check --user, its password and --sasl"
    code, _, reported = Shell(broker).run("topic list --user alice --password-stdin --sasl SCRAM-SHA-1", b"hush-x\n")
    assert (code, "SCRAM-SHA-1" in reported, "hush-x" in reported) == (2, True, False)


def test_a_command_without_a_user_on_a_broker_with_logins_exits_with_4_and_a_hint(broker: ServedBroker) -> None:
    code, _, reported = Shell(broker).run("topic list --timeout 3s")
    assert code == 4
    assert reported.splitlines()[1] == "hint: if the broker asks for a login, --user NAME logs in"
