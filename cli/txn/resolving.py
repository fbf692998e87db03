"""`fencepost txn resolve`: ends transactions that producers left waiting for a database, once or repeatedly.

The rule: what was printed has been done. A transaction that cannot be ended now does not stop the others; the exit code
reports it.
"""

import asyncio
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ..arguments.connecting import Target
from ..arguments.opening import opened
from ..output.failures import CONFLICT, TIMED_OUT, Failure
from ..output.tables import duration

if TYPE_CHECKING:
    from ...client.sql.resolving import Resolved

_AWAY = "it has to be the file or the server that the producers use, and this user has to be allowed to write it"
_CONTRADICTS = (
    "one of the two was restored from a backup: docs/how-to/database.md; if the database was, --adopt ends it"
)
_UNDECIDED = "run this again when database and broker answer; --watch does"


@dataclass(frozen=True)
class Resolving:
    """One call of the command. url: of the database. dry_run: nothing is changed. adopt: end them also if the
    database is older than the broker. older_ms: transactions that have waited for less are left alone. terminate:
    database sessions that hold a row are ended.
    """

    to: Target
    url: str
    dry_run: bool
    adopt: bool
    older_ms: int
    terminate: bool

    async def look(self) -> "list[Resolved]":
        """End the transactions that wait for the database. Returns the result for each. Raises KafkaError; Failure
        if the database cannot be opened.
        """
        from ...client.config_names import settings_from
        from ...client.settings import AdminSettings
        from ...client.sql.resolving import resolve_by

        settings = settings_from(AdminSettings, self.to.config())
        async with opened(self.url, _AWAY) as db:
            return await resolve_by(settings, db, self.dry_run, self.adopt, self.older_ms, self.terminate)

    def finish(self, found: "list[Resolved]") -> None:
        """Print the result for each transaction. Raises Failure if one could not be ended."""
        for each in found:
            self._show(each)
        if not found:
            self.to.output.remark("no transaction waits for this database")
        for result, hint, code in (("diverged", _CONTRADICTS, CONFLICT), ("undecided", _UNDECIDED, TIMED_OUT)):
            those = [each for each in found if each.result == result]
            if those:
                raise Failure(f"{len(those)} of {len(found)} {result}: {those[0].reason}", hint, code)

    async def watch(self, every_ms: int) -> None:
        """End the waiting transactions, again and again until cancelled. An error or a result that does not change
        is shown only once.
        """
        from ...client.errors import RetriableError
        from ..output.refusals import refusal

        shown: set[tuple[str, int, str]] = set()
        trouble = ""
        while True:
            try:
                found = await self.look()
            except (RetriableError, Failure) as error:
                failure = error if isinstance(error, Failure) else refusal(error, self.to.bootstrap)
                if failure.message != trouble:
                    failure.show()
                trouble = failure.message
            else:
                trouble = ""
                for each in found:
                    if (each.transactional_id, each.number, each.result) not in shown:
                        self._show(each)
                shown = {(each.transactional_id, each.number, each.result) for each in found}
            await asyncio.sleep(every_ms / 1000)

    def _show(self, each: "Resolved") -> None:
        """Print the result for a transaction."""
        waited = duration(each.waited_ms)
        if each.result in ("undecided", "diverged"):
            text = f"{each.result}, waits for {waited}: {each.reason}"
        elif self.dry_run:
            text = f"would be {each.result}, waits for {waited}"
        else:
            text = f"{each.result}, had waited for {waited}"
        self.to.output.result(
            f"{each.transactional_id} number {each.number}: {text}", {**asdict(each), "dry_run": self.dry_run}
        )
