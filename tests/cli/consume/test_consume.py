"""`fencepost consume`: which records it prints and how; with --explain, whether each is committed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from long_runs import first_only
from served_broker import ServedBroker
from terminal import FENCEPOST, Terminal


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with ServedBroker(group_initial_rebalance_delay_ms=0) as broker:
        yield Terminal(broker)


@pytest.fixture(scope="module")
def story(terminal: Terminal) -> Iterator[str]:
    """A topic: one plain record, two committed, two aborted, two open, one committed after them."""
    terminal.run("topic create story -p 2")
    terminal.plain("story", "plain")
    one = terminal.open_transaction("one", "story", "1", "2")
    one.commit_transaction()
    one.begin_transaction()
    for value in ("3", "4"):
        one.produce("story", value.encode(), partition=0, key=b"k")
    assert one.flush(10) == 0
    one.abort_transaction()
    two = terminal.open_transaction("two", "story", "5", "6")
    one.begin_transaction()
    one.produce("story", b"7", partition=0)
    one.commit_transaction()
    yield "story"
    two.abort_transaction()


def words(terminal: Terminal, line: str) -> list[list[str]]:
    return [each.split() for each in terminal.run(line).splitlines()]


# ---- what became of each -------------------------------------------------------------------------------------------


def test_consume_explain_marks_each_record_and_draws_a_line_at_the_lso(terminal: Terminal, story: str) -> None:
    output = words(terminal, f"consume {story}:0 --explain")
    signs = [line[0] for line in output]
    assert signs == ["·", "C", "C", "◆", "A", "A", "◆", "───", "story-0", "?", "?", "C", "◆"]
    assert output[7][1:6] == ["LSO", "7", "<", "HW", "11:"]
    assert " ".join(output[8]).startswith("story-0 is blocked at 7 (4 offsets wait) by transaction two of producer ")
    assert output[4][-2:] == ["k", "3"]
    assert (output[3][-1], output[6][-1]) == ("commit", "abort")


def test_consume_explain_as_json_says_of_each_record_whether_it_is_committed(terminal: Terminal, story: str) -> None:
    rows = terminal.objects(f"consume {story}:0 --explain")
    fates = [each["fate"] for each in rows]
    assert fates == [
        "plain", "committed", "committed", "marker", "aborted", "aborted", "marker",
        "open", "open", "committed", "marker",
    ]  # fmt: skip
    assert [each["offset"] for each in rows] == list(range(11))
    assert rows[3]["marker"] == "commit"


def test_consume_explain_obeys_the_options_for_start_and_number_of_records(terminal: Terminal, story: str) -> None:
    rows = terminal.objects(f"consume {story}:0 --explain --from 2 -n 3")
    assert [each["offset"] for each in rows if each["fate"] != "marker"] == [2, 4, 5]
    assert [each["offset"] for each in terminal.objects(f"consume {story}:0 --explain --from -1")] == [10]


def test_explain_prints_a_heading_per_partition_if_there_are_several(terminal: Terminal, story: str) -> None:
    output = terminal.run(f"consume {story} --explain").splitlines()
    assert output[0] == "story[0]: from 0 to 11, 4 not yet stable"
    assert output[-1] == "story[1]: from 0 to 0"


def test_explain_prints_no_control_characters_and_cuts_long_values(terminal: Terminal) -> None:
    terminal.run("topic create spoiling")
    terminal.plain("spoiling", "\x1b[2J\r\n", "x" * 1_000)
    out = terminal.run("consume spoiling --explain")
    assert "\x1b" not in out
    assert out.splitlines()[1].endswith("… (1,000 bytes)")


def test_consume_with_show_control_prints_commit_and_abort_markers(terminal: Terminal, story: str) -> None:
    committed = terminal.run(f"consume {story}:0 --show-control").splitlines()
    assert [line.partition(" producer")[0] for line in committed] == [
        "plain", "1", "2", "◆ commit story[0]@3", "◆ abort story[0]@6",
    ]  # fmt: skip
    everything = terminal.run(f"consume {story}:0 --show-control --isolation read_uncommitted").splitlines()
    assert [line for line in everything if not line.startswith("◆")] == ["plain", *"1234567"]


# ---- records -------------------------------------------------------------------------------------------------------


def test_consume_prints_one_value_per_line(terminal: Terminal, story: str) -> None:
    assert terminal.run(f"consume {story} --from start -n 3") == "plain\n1\n2\n"
    assert terminal.run(f"consume {story} -e") == "plain\n1\n2\n"
    uncommitted = terminal.run(f"consume {story} -e --isolation read_uncommitted")
    assert uncommitted.splitlines() == ["plain", *"1234567"]
    assert terminal.run(f"consume {story}:1 -e") == ""


def test_consume_starts_at_the_offset_time_or_end_that_the_option_from_gives(terminal: Terminal, story: str) -> None:
    uncommitted = f"consume {story} -e --isolation read_uncommitted"
    assert terminal.run(f"{uncommitted} --from 0:9").split() == ["7"]
    assert terminal.run(f"{uncommitted} --from -2").split() == ["7"]
    assert terminal.run(f"{uncommitted} --from @-1h -n 1").split() == ["plain"]
    assert terminal.run(f"{uncommitted} --from end") == ""


def test_a_format_selects_the_printed_fields(terminal: Terminal, story: str) -> None:
    assert terminal.run(rf"consume {story} -n 1 -f %t[%p]@%o=%s\n") == "story[0]@0=plain\n"
    (row,) = terminal.objects(f"consume {story} -n 1")
    assert (row["topic"], row["offset"], row["value"], row["key"]) == ("story", 0, "plain", None)


def test_consume_with_a_group_continues_after_the_records_printed_before(terminal: Terminal) -> None:
    terminal.run("topic create grouped")
    terminal.plain("grouped", *"abcdef")
    assert terminal.run("consume grouped -g readers -n 2").split() == ["a", "b"]
    assert terminal.objects("group describe readers")[0]["partitions"][0]["committed"] == 2
    assert terminal.run("consume grouped -g readers -n 3").split() == ["c", "d", "e"]
    assert terminal.run("consume grouped -g readers -e").split() == ["f"]


def test_a_member_of_the_consumer_protocol_continues_after_the_printed_records(terminal: Terminal) -> None:
    terminal.run("topic create handed")
    terminal.plain("handed", *"abc")
    newer = "consume handed -g newer --group-protocol consumer"
    assert terminal.run(f"{newer} -n 2").split() == ["a", "b"]
    assert terminal.objects("group describe newer")[0]["type"] == "consumer"
    assert terminal.run(f"{newer} -e").split() == ["c"]
    code, cause, hint = terminal.refused("consume handed --group-protocol consumer")
    assert (code, "members of a group" in cause, "-g GROUP" in hint) == (2, True, True)


def test_consume_without_a_group_commits_no_offsets(terminal: Terminal, story: str) -> None:
    before = terminal.objects("group list")
    terminal.run(f"consume {story} -e")
    assert terminal.objects("group list") == before


def test_consume_waits_for_new_records_until_ctrl_c(terminal: Terminal) -> None:
    terminal.run("topic create followed")
    command = [sys.executable, "-m", "fencepost", "consume", "followed", "-o", "json", "-b", terminal.bootstrap]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    for value in ("first", "second"):
        terminal.plain("followed", value)
        assert json.loads(process.stdout.readline())["value"] == value
    time.sleep(0.1)  # it polls again by now
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_consume_ends_silently_when_its_output_pipe_closes(terminal: Terminal) -> None:
    terminal.run("topic create endless")
    terminal.plain("endless", *map(str, range(10)))  # they fit the pipe: no write will ever fail
    line = f"{FENCEPOST} consume endless -b {terminal.bootstrap} | head -2"
    done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=60)
    assert (done.stdout, done.stderr) == (b"0\n1\n", b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this machine has no full device")
@pytest.mark.parametrize("more", first_only(["-e", "--explain", "-e -o json", "--show-control"], 2))
def test_consume_into_a_full_device_exits_with_1_and_names_the_cause(terminal: Terminal, story: str, more: str) -> None:
    line = f"{FENCEPOST} consume {story} {more} -b {terminal.bootstrap} > /dev/full"
    done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=60, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: input or output: No space left on device\nhint: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("line", "code"),
    [("consume nope", 3), ("consume story:9", 3), ("consume story -f %x", 2), ("consume story -g g --explain", 2),
     ("consume story -g g --from 3", 2), ("consume story:0 -g g", 2), ("consume story -b 127.0.0.1:1", 4),
     ("consume story -X isolation.level=sometimes -e", 2)],
)  # fmt: skip
def test_consume_with_wrong_arguments_exits_with_the_code_for_their_error(
    terminal: Terminal, story: str, line: str, code: int
) -> None:
    assert terminal.refused(line)[0] == code
