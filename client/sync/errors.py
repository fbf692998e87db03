"""The one error with an awaitable method, in a blocking form."""
# pyright: reportIncompatibleMethodOverride=false
# A user of a blocking client cannot await, so `resolve` blocks instead of being a coroutine function.

from collections.abc import Callable

from ...protocol.errors import ErrorCode
from ..errors import CommitOutcomeUnknownError as AsyncCommitOutcomeUnknownError
from ..errors import Outcome


class CommitOutcomeUnknownError(AsyncCommitOutcomeUnknownError):
    """A commit got no response: it may have been carried out or not. `err.resolve()` finds out."""

    default_hint = "err.resolve() before repeating the work"

    def __init__(
        self,
        detail: str = "",
        *,
        code: ErrorCode | None = None,
        hint: str = "",
        ask: "Callable[[], Outcome] | None" = None,
    ) -> None:
        super().__init__(detail, code=code, hint=hint)
        self._ask = ask

    def resolve(self) -> Outcome:  # type: ignore[override]
        """Wait for the outcome of the commit and return it; "unknown" if it cannot be found out any more."""
        return "unknown" if self._ask is None else self._ask()
