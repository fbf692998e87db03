"""The facts about machine and versions that a result file contains."""

import json
import subprocess
from pathlib import Path

import pytest
from fencepost.bench.peers import facts as module
from fencepost.bench.peers.facts import KEYS, UNKNOWN, facts, file_system

MOUNTS = """\
22 1 0:20 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /tmp rw shared:2 - tmpfs tmpfs rw
24 22 0:22 / /mnt/two\\040words rw - xfs /dev/vdb rw
25 23 0:23 / /tmp rw - overlay overlay rw
"""


def test_all_facts_about_the_machine_are_found_and_written_as_json(tmp_path: Path) -> None:
    found = facts(tmp_path, {"Kafka": "4.3.1"})
    assert tuple(found) == KEYS
    assert all(found.values())
    assert found["cores"] >= 1
    assert found["memory_gb"] > 0
    assert found["peers"]["Kafka"] == "4.3.1"
    assert "fencepost" in found["peers"]
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    ("directory", "kind"),
    [("/var/lib", "ext4"), ("/tmp/x", "overlay"), ("/mnt/two words/data", "xfs"), ("/tmpx", "ext4")],
)
def test_the_file_system_is_that_of_the_nearest_mount(directory: str, kind: str) -> None:
    assert file_system(Path(directory), MOUNTS) == kind


def test_the_file_system_is_unknown_if_the_mounts_cannot_be_read() -> None:
    assert file_system(Path("/var"), "") == UNKNOWN


def test_an_installed_package_does_not_report_the_commit_of_a_tree_around_it(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "theirs"]):
        subprocess.run([*git, *command], check=True)
    (tmp_path / "facts.py").touch()
    assert module._commit(tmp_path) == UNKNOWN
    assert module._commit(Path(module.__file__).resolve().parent) != UNKNOWN
