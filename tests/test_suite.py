"""`make test`: each folder of tests in a process of its own, a few at a time."""

import suite


def part(name, script):
    return suite.Part(name, ["sh", "-c", script])


def test_each_test_file_is_in_exactly_one_part_of_the_suite():
    paths = [path for _, paths in suite.parts() for path in paths]
    for file in suite.TESTS.rglob("test_*.py"):
        assert sum(str(file) == path or str(file).startswith(f"{path}/") for path in paths) == 1, file


def test_the_suite_runs_so_many_parts_at_once_and_one_more_beside_them(tmp_path, capfd):
    """The first of the queue ends once the second has begun, the second once the one beside has."""
    wait = f"until test -e {tmp_path}/%s; do sleep 0.01; done; echo '1 passed [100%%]'"
    queue = [
        part("one", wait % "two"),
        part("two", f"touch {tmp_path}/two; " + wait % "beside"),
        part("three", "echo SKIPPED for want of a disk; exit 5"),
    ]
    assert suite.run(2, queue, [part("beside", f"touch {tmp_path}/beside; echo so")]) == 0
    said = capfd.readouterr().out
    assert all(f", {name}: " in said for name in ("one", "two", "three", "beside"))
    assert "SKIPPED for want of a disk" in said
    assert "4 of 4, " in said


def test_the_suite_fails_and_prints_the_whole_output_of_a_part_that_failed(capfd):
    queue = [part("good", "echo unseen; echo 2 passed"), part("bad", "echo cause; echo FAILED tests/x; exit 1")]
    assert suite.run(1, [*queue, part("last", "echo 3 passed")], []) == 1
    said = capfd.readouterr().out
    assert "unseen" not in said
    assert "cause" in said
    assert said.endswith("failed: bad\nFAILED tests/x\n")
    assert "last: 3 passed" in said


def test_the_command_line_of_the_suite_gives_each_part_its_paths(monkeypatch):
    seen = []
    monkeypatch.setattr(suite, "run", lambda at_once, queue, beside: seen.append((at_once, queue, beside)) or 0)
    assert suite.main(["3", "pytest", "-q", ":::", "pytest", "-m", "jvm"]) == 0
    ((at_once, queue, (beside,)),) = seen
    assert (at_once, beside.command) == (3, ["pytest", "-m", "jvm"])
    assert [each.name for each in queue] == [name for name, _ in suite.parts()]
    assert queue[0].command[:2] == ["pytest", "-q"]
    assert queue[0].command[2].endswith("tests/client/sql")
    assert queue[1].command[2].endswith("tests/client/admin")
