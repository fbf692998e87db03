"""`fencepost mirror --from … --to …`: runs one task until a signal, with a line of progress now and then.

The rule: after a signal the task ends cleanly: its open transaction is aborted and it leaves the group, so that other
tasks can go on at once.
"""

import asyncio
import re
import uuid
from typing import TYPE_CHECKING, Any

from ..output.extras import require
from ..output.failures import CONFLICT, Failure
from ..output.tables import duration
from ..output.writing import show
from .sides import Both, check_expression

if TYPE_CHECKING:
    from ...client.mirror.task import MirrorTask


def run_mirror(to: Both, topics: str, every_ms: int, metrics: str | None) -> None:
    """Mirror the topics whose whole names match. Raises Failure once none of them can go on.

    metrics: HOST:PORT of a page with the task's metrics; None for no page.
    """
    check_expression("--topics", topics, "orders.*")
    if metrics is not None:
        require("--metrics", "prometheus_client")

    async def work() -> "MirrorTask":
        """Run one task and show its progress until it ends. Returns the task."""
        from ...client.mirror.task import MirrorTask

        await _look_first(to, topics)
        task = MirrorTask(
            to.source.config(),
            to.target.config(),
            mirror=to.name,
            topics=topics,
            task=uuid.uuid4().hex[:12],
            tell=lambda line: _tell(to, line),
        )
        if metrics is not None:
            from .exporting import export

            export(task, metrics)
        showing = asyncio.ensure_future(_show(to, task, every_ms))
        try:
            await task.run()
        finally:
            showing.cancel()
            _show_facts(to, facts_of(task))
        return task

    stopped = to.target.run(work).counts.stopped
    raise Failure(
        f"no topic can go on: {', '.join(sorted(stopped))}",
        "each has a line above that says why; nothing was skipped",
        CONFLICT,
    )


async def _look_first(to: Both, topics: str) -> None:
    """Look at both clusters, and print what will be a problem for the mirror. Raises Failure if it cannot run."""
    from ...client.config_names import part_for, settings_from
    from ...client.mirror.describing import look
    from ...client.mirror.names import is_own
    from ...client.mirror.preflight import TRANSACTION_TIMEOUT_MS
    from ...client.settings import ProducerSettings

    config = {"transaction.timeout.ms": TRANSACTION_TIMEOUT_MS} | part_for(ProducerSettings, to.target.config())
    timeout_ms = settings_from(ProducerSettings, config).transaction_timeout_ms

    async with to.admins() as (source, target):
        names = [each for each in await source.list_topics() if re.fullmatch(topics, each) and not is_own(each)]
        found = await look(source, target, names, to.name, timeout_ms=timeout_ms)
    fatal = [each for each in found if each.is_fatal]
    for each in [each for each in found if not each.is_fatal] + fatal[:-1]:
        _tell(to, f"{'error' if each.is_fatal else 'note'}: {each.text}")
        _tell(to, f"hint: {each.hint}")
    if fatal:
        raise Failure(fatal[-1].text, fatal[-1].hint, CONFLICT)


def facts_of(task: "MirrorTask") -> dict[str, Any]:
    """Return the state of a task as a JSON object: its Counts, its progress, the number of its partitions, and what it
    waits for.
    """
    counts, lags = task.counts, task.lags
    return {
        "records": counts.records,
        "bytes": counts.bytes,
        **task.progress.facts(),
        "partitions": len(lags),
        "cycles": counts.cycles,
        "divided": counts.divided,
        "doubts": counts.doubts,
        "waiting": counts.waits_for,
        "stopped": {topic: error.text for topic, error in counts.stopped.items()},
    }


def _tell(to: Both, line: str) -> None:
    """Print a line of the task on the error stream, except with -o json, whose objects say the same."""
    if not to.output.json:
        show(line, err=True)


async def _show(to: Both, task: "MirrorTask", every_ms: int) -> None:
    """Print the progress every every_ms milliseconds, until cancelled."""
    while True:
        await asyncio.sleep(every_ms / 1000)
        task.note_progress()
        _show_facts(to, facts_of(task))


def _show_facts(to: Both, facts: dict[str, Any]) -> None:
    left = "" if facts["left_s"] is None else f", {duration(1000 * facts['left_s'])} left" if facts["lag"] else ""
    lag = "lag not known yet" if facts["lag"] is None else f"lag {facts['lag']:,}{left}"
    text = (
        f"{facts['records']:,} records, {facts['records_per_s']:,}/s, {facts['bytes_per_s'] / 1e6:,.1f} MB/s, {lag}"
        f" in {facts['partitions']} partitions"
    )
    to.output.result(text, facts)
