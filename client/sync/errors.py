"""The error that the blocking clients raise in another form: what can be awaited elsewhere waits here."""
# pyright: reportIncompatibleMethodOverride=false
# A blocking client's user has nothing to await with, so `resolve` waits instead of being a coroutine function.

from collections.abc import Callable

from ...protocol.errors import ErrorCode
from ..errors import CommitOutcomeUnknownError as AsyncCommitOutcomeUnknownError
from ..errors import Outcome


class CommitOutcomeUnknownError(AsyncCommitOutcomeUnknownError):
    """A commit was sent and no answer came: it may have been carried out or not. `err.resolve()` finds out."""

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
        """What became of the commit; "unknown" where the broker can no longer tell. Waits for its answer."""
        return "unknown" if self._ask is None else self._ask()
