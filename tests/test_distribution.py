"""What `make dist` publishes is looked into before anybody installs it."""

import tarfile
from pathlib import Path

import distribution


def test_a_wheel_or_sdist_with_test_files_is_refused_and_the_files_are_named(tmp_path, capsys):
    sdist = tmp_path / "fencepost-1.tar.gz"
    for name in ("fencepost-1/broker/broker.py", "fencepost-1/tests/test_tidy.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.touch()
    with tarfile.open(sdist, "w:gz") as archive:
        archive.add(tmp_path / "fencepost-1", "fencepost-1")
    assert distribution.main([str(sdist)]) == 1
    assert "does not belong there: tests/test_tidy.py" in capsys.readouterr().out
    assert distribution.foreign_in(
        Path("x.whl"), ["fencepost/a.py", "tests/b.py", "fencepost-1.dist-info/METADATA"]
    ) == ["tests/b.py"]
