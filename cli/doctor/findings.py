"""The results of `doctor`: one line for each check, printed at once."""

from dataclasses import dataclass, field

from ..arguments.connecting import Target
from ..output.writing import Cell, show

OK, WARNING, FAILURE = "ok", "warning", "failed"
_MARKS = {OK: Cell("✔", "green"), WARNING: Cell("!", "yellow"), FAILURE: Cell("✘", "red")}


class Stop(Exception):
    """Raised after a failed check that the following checks depend on."""


@dataclass(slots=True)
class Findings:
    """The results so far."""

    to: Target
    all: list[dict[str, str]] = field(default_factory=list)

    def add(self, check: str, state: str, text: str, hint: str = "") -> None:
        """Record and print one finding. hint: what to do about it, printed below."""
        self.all.append({"check": check, "state": state, "text": text, "hint": hint})
        if self.to.output.json:
            self.to.output.object(self.all[-1])
            return
        if self.to.output.quiet and state == OK:
            return
        show(_MARKS[state], f" {check:<12} {text}")
        if hint:
            show(Cell(f"  {'':12} {hint}", dim=True))

    def fail(self, check: str, text: str, hint: str) -> None:
        """Add a failed check. Raises Stop: the following checks need this one."""
        self.add(check, FAILURE, text, hint)
        raise Stop

    @property
    def bad(self) -> bool:
        return any(each["state"] == FAILURE for each in self.all)

    @property
    def has_trouble(self) -> bool:
        return any(each["state"] != OK for each in self.all)
