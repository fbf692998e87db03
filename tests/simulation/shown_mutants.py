"""The bank of bugs, for what people are shown: each names the test file that catches it.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from fencepost.cli.output import writing
from fencepost.console.reading import records
from fencepost.storage.free_space import FreeSpace
from simulation.planting import _around, around, breaks, killed_by, replaced


@killed_by("tests/cli/output/test_writing.py")
@breaks("cli.md: so no name can send commands to your terminal")
def control_characters_reach_the_terminal(stack: ExitStack) -> None:
    replaced(stack, writing.visible, lambda text: text.replace("\n", writing.SHOWN_INSTEAD))


@killed_by("tests/cli/output/test_writing.py")
@breaks("cli.md: so no name can send commands to your terminal")
def a_line_end_in_a_name_begins_a_row(stack: ExitStack) -> None:
    def wrapper(visible: Any) -> Any:
        return lambda text: "\n".join(map(visible, text.split("\n")))

    around(stack, writing.visible, wrapper)


@killed_by("tests/storage/test_free_space.py")
@breaks("guarantees.md: the disk is nearly full")
def a_low_disk_is_not_logged(stack: ExitStack) -> None:
    replaced(stack, FreeSpace._say_low, lambda self: setattr(self, "low", True))


@killed_by("tests/storage/test_free_space.py")
@breaks("guarantees.md: the disk is nearly full")
def refusals_for_want_of_space_are_not_counted(stack: ExitStack) -> None:
    def wrapper(refuse: Any) -> Any:
        def refused(self: Any) -> str:
            before, why = self.refusals, refuse(self)
            self.refusals = before
            return str(why)

        return refused

    around(stack, FreeSpace.refuse, wrapper)


@killed_by("tests/console/reading/test_records.py")
@breaks("S-96")
def pages_of_read_committed_count_what_they_hide(stack: ExitStack) -> None:
    def wrapper(read_window: Any) -> Any:
        async def read(admin: Any, where: Any, start: int, limits: Any) -> Any:
            return await read_window(admin, where, start, replace(limits, hidden=frozenset()))

        return read

    _around(stack, records, "read_window", wrapper)
