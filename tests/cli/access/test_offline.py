"""`--data-dir`: users and rules in the directory of a broker that is down; that of a running broker is refused."""

from pathlib import Path

import pytest
from broker_process import broker_process
from click.testing import CliRunner
from fencepost.cli import main


class Shell:
    def __init__(self) -> None:
        self.code, self.err = 0, ""

    def run(self, line: str, given: bytes | None = None) -> str:
        result = CliRunner().invoke(main, line.split(), input=given)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        self.code, self.err = result.exit_code, result.stderr
        return result.stdout


def test_users_and_acls_created_offline_exist_at_the_first_start(tmp_path: Path) -> None:
    """They can be removed offline, too, after a kill; no file of the directory has the password."""
    directory, shell = tmp_path / "data", Shell()
    assert shell.run(f"user add alice --password-stdin --data-dir {directory}", b"hush-hush-hush\n").startswith(
        "alice added"
    )
    output = shell.run(f"acl add --allow alice --producer --topic orders --data-dir {directory}")
    assert len(output.splitlines()) == 3
    assert shell.run(f"user list --data-dir {directory} -q").splitlines()[1].split()[0] == "alice"
    with broker_process(str(directory)) as broker:
        assert shell.run(f"user list -b {broker.bootstrap} -o json").startswith('{"user": "alice"')
        shell.run(f"user add bob --password-stdin -b {broker.bootstrap}", b"other\n")
        broker.kill()
    assert [line.split()[0] for line in shell.run(f"user list --data-dir {directory}").splitlines()] == [
        "USER",
        "alice",
        "bob",
    ]
    assert shell.run(f"user rm alice --data-dir {directory}") == "alice removed\n"
    shell.run(f"acl rm --allow alice --data-dir {directory}")
    assert shell.err == "3 rules removed\n"
    held = b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())
    assert b"bob" in held
    assert b"hush-hush" not in held


def test_user_add_in_the_directory_of_a_running_broker_exits_with_1_and_a_hint(tmp_path: Path) -> None:
    directory, shell = tmp_path / "data", Shell()
    with broker_process(str(directory)) as broker:
        shell.run(f"user add alice --password-stdin --data-dir {directory}", b"secret\n")
        cause, hint = shell.err.splitlines()
        assert shell.code == 1
        assert cause == f"error: {directory} is in use by process {broker.process.pid}"
        assert "-b HOST:PORT instead of --data-dir" in hint
        assert shell.run(f"user list -b {broker.bootstrap} -o json") == ""


@pytest.mark.parametrize(
    ("line", "code", "cause"),
    [
        ("user list --data-dir {}/none", 3, "there is no such directory"),
        ("user rm a --data-dir {}/none", 3, "there is no such directory"),
        ("acl list --data-dir {}/none", 3, "there is no such directory"),
        ("acl list --data-dir {} -b 127.0.0.1:1", 2, "-b and --data-dir cannot be used together"),
        ("acl list --data-dir=", 2, "--data-dir is empty"),
    ],
)
def test_wrong_data_dir_options_print_cause_and_hint_and_create_nothing(
    tmp_path: Path, line: str, code: int, cause: str
) -> None:
    shell = Shell()
    shell.run(line.format(tmp_path))
    assert shell.code == code
    assert cause in shell.err.splitlines()[0]
    assert shell.err.splitlines()[1].startswith("hint: ")
    assert list(tmp_path.iterdir()) == []


def test_user_list_on_a_damaged_directory_exits_with_1_and_changes_nothing(tmp_path: Path) -> None:
    directory, shell = tmp_path / "data", Shell()
    shell.run(f"user add alice --password-stdin --data-dir {directory}", b"secret\n")
    for path in directory.glob("checkpoint-*"):
        path.write_bytes(bytes([0xFF]) * path.stat().st_size)
    before = contents(directory)
    shell.run(f"user list --data-dir {directory}")
    assert shell.code == 1
    assert "checkpoint" in shell.err.splitlines()[0]
    assert shell.err.splitlines()[1].startswith("hint: ")
    assert contents(directory) == before


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path): path.read_bytes() for path in files}
