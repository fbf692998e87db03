"""Ask a running Apache Kafka, and write its answers below the commands of the scenarios.

    python -m oracle.record HOST:PORT [--broker plain] [--check] [FILE …]

Only scenarios for brokers started as brokers/<name>.properties says are asked. `--check` writes nothing and says what
would change. What stands below a `differs:` line is never touched.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

from .commands import perform
from .notation import Scenario, read, with_answers
from .runner import run

SCENARIOS = Path(__file__).parent.parent / "scenarios"


def main() -> int:
    arguments = _arguments()
    host, _, port = arguments.kafka.rpartition(":")
    changed = failed = asked = 0
    for path in arguments.files or sorted(SCENARIOS.rglob("*.txt")):
        answers: dict[int, list[str]] = {}
        for scenario in read(path):
            if scenario.broker != arguments.broker or (arguments.only and arguments.only not in scenario.name):
                continue
            asked += 1
            try:
                answers |= _answers(scenario, host, int(port))
            except Exception as error:
                failed += 1
                print(
                    f"{path.name}:{scenario.line + 1}: {scenario.name}: {type(error).__name__}: {error}",
                    file=sys.stderr,
                )
        changed += _write(path, with_answers(path, answers), check=arguments.check)
    verb = "differ" if arguments.check else "changed"
    print(f"{asked} scenarios asked, {failed} could not be run, {changed} files {verb}")
    return 1 if failed or (arguments.check and changed) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kafka", metavar="HOST:PORT")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--broker", default="plain", help="which scenarios: those for this kind of broker")
    parser.add_argument("--only", help="only scenarios with this in their name")
    parser.add_argument("--check", action="store_true", help="write nothing, show what would change")
    return parser.parse_args()


def _answers(scenario: Scenario, host: str, port: int) -> dict[int, list[str]]:
    return {step.line: answer for step, answer in run(scenario, host, port, perform) if answer is not None}


def _write(path: Path, text: str, *, check: bool) -> bool:
    before = path.read_text()
    if before == text:
        return False
    if check:
        print("".join(difflib.unified_diff(before.splitlines(True), text.splitlines(True), str(path), "now", n=2)))
    else:
        path.write_text(text)
    return True


if __name__ == "__main__":
    sys.exit(main())
