"""`fencepost doctor`: checks the connection to a broker step by step, as a client makes it.

Name resolution, connection, protocol, features; then the addresses that the broker advertises, the most common cause of
problems; then disk, topics, transactions, clock. The rule: it only reads from a broker. Each step is one line; a failed
one has a hint.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ..arguments.connecting import Target, connecting
from ..output.failures import FAILED, WRONG_USAGE, Failure
from ..output.tables import now_ms
from ..output.writing import Cell, show
from ..txn.blocking import blocked_facts, sentence
from .findings import FAILURE, OK, WARNING, Findings, Stop

if TYPE_CHECKING:
    from ...client.net.connection import Connection
    from ...client.net.topology import Node
    from ...client.settings import AdminSettings

_MAX_HELD = 10  # groups whose offsets are held: with many copying groups, there are always some
_MAX_SHARED = 10  # share partitions that lack memory
_CONNECT_MS = 3_000  # for one address: a slower one counts as unreachable

RELEASES = ((18, "4.1"), (17, "3.9"), (16, "3.7"), (15, "3.5"), (13, "3.1"), (12, "2.7"), (11, "2.3"), (10, "2.1"))
"""(version of Fetch, first Kafka release with it)"""


@click.command()
@click.argument("address", metavar="[HOST:PORT]", required=False)
@click.option("--store", metavar="URL", help="Instead: may brokers have their journal in this store? It is tried.")
@connecting
def doctor(to: Target, address: str | None, store: str | None) -> None:
    """Find out why a client cannot use a broker. Exit code 1: it cannot."""
    from dataclasses import replace

    if store is not None:
        from .stores import examine

        findings = Findings(to)
        examine(findings, store)
        if findings.bad:
            raise click.exceptions.Exit(FAILED)
        return
    to = replace(to, bootstrap=address or to.bootstrap)
    findings = Findings(to)

    async def work() -> None:
        """Run the checks; their results are added to `findings`. A check without which the others are useless ends
        it.
        """
        from contextlib import suppress

        with suppress(Stop):
            await _examine(findings)

    to.run(work)
    if findings.has_trouble and not to.output.json:
        show(Cell("docs/on-call.md has what to do, by what is seen", dim=True))
    if findings.bad:
        raise click.exceptions.Exit(FAILED)


async def _examine(findings: Findings) -> None:
    """Check name, connection, protocol, features, cluster and contents in turn. Raises Stop after a failure that
    makes later checks useless.
    """
    from ...client.errors import InvalidConfigurationError
    from ...client.net.environment import SYSTEM

    settings = _settings(findings.to)
    host, port = settings.bootstrap_servers[0]
    await _check_name(findings, host)
    await _check_reachable(findings, host, port)
    try:
        tls = settings.security.tls_context()
    except InvalidConfigurationError as error:
        findings.fail(
            "tls",
            str(error),
            "set -X ssl.ca.location=FILE to the certificate of the authority that signed the broker's",
        )
    connection = await _check_protocol(findings, settings, SYSTEM, tls)
    try:
        nodes = await _find_brokers(findings, connection, settings)
        good = [await _check_advertised(findings, node, (host, port)) for node in nodes]
    finally:
        connection.close()
    if not all(good):
        raise Stop
    await _check_contents(findings)


def _settings(to: Target) -> "AdminSettings":
    """Return the client settings of the command line. Raises Failure for a wrong one."""
    from ...client.config_names import settings_from
    from ...client.errors import KafkaError
    from ...client.settings import AdminSettings

    try:
        return settings_from(AdminSettings, to.config())
    except KafkaError as error:
        raise Failure(
            str(error), getattr(error, "hint", "") or "HOST:PORT must be a broker's address", WRONG_USAGE
        ) from None


# ---- from here to the broker ---------------------------------------------------------------------------------------


async def _check_name(findings: Findings, host: str) -> None:
    """Check that the host name resolves. Raises Stop if it does not."""
    from .probes import addresses

    found = await addresses(host)
    if not found:
        findings.fail("name", f"{host} does not resolve", "check its spelling, DNS and /etc/hosts")
    if found != [host]:
        findings.add("name", OK, f"{host} is {', '.join(found)}")


async def _check_reachable(findings: Findings, host: str, port: int) -> None:
    """Check that a TCP connection can be opened. Raises Stop if it cannot."""
    from .probes import connects

    took_ms, reason = await connects(host, port, _CONNECT_MS)
    if reason:
        hint = "is a broker running there? Is there a firewall or a container's port mapping in between?"
        findings.fail("connection", f"no connection to {host}:{port}: {reason}", hint)
    findings.add("connection", OK, f"TCP to {host}:{port} in {took_ms:.1f} ms")


async def _check_protocol(findings: Findings, settings: "AdminSettings", environment: Any, tls: Any) -> "Connection":
    """Open a Kafka connection, with TLS and login, and check the versions of APIs. Returns the connection. Raises
    Stop.
    """
    from ...client.errors import KafkaError
    from ...client.net.opening import open_connection
    from ...protocol.messages.cluster import ApiVersionsRequest
    from ...protocol.messages.fetch import FetchRequest
    from ..output.refusals import with_options

    try:
        connection = await open_connection(settings.bootstrap_servers[0], settings, environment, tls)
        version = connection.version_of(ApiVersionsRequest)
        request = ApiVersionsRequest(client_software_name="fencepost-doctor", client_software_version="1")
        response = await connection.send(request, version, timeout_ms=settings.request_timeout_ms)
    except KafkaError as error:
        hint = getattr(error, "hint", "") or "is it a Kafka listener, with the security.protocol that -X sets?"
        findings.fail("protocol", str(error), with_options(hint))
    known = {each.api_key: each.max_version for each in response.api_keys}
    fetch = known.get(FetchRequest.__schema__.api, -1)  # type: ignore[attr-defined]
    release = next((name for highest, name in RELEASES if fetch >= highest), None)
    speaks = f"as Kafka {release} or newer" if release else "as a Kafka older than 2.1"
    state = OK if release else WARNING
    hint = "" if release else "the SDK needs Kafka 2.1 or newer"
    findings.add("protocol", state, f"{len(known)} APIs, {speaks}", hint)
    _check_features(findings, response)
    return connection


def _check_features(findings: Findings, response: Any) -> None:
    """Check which version of transactions the broker has finalized."""
    finalized = {each.name: each.max_version_level for each in response.finalized_features}
    supported = {each.name: each.max_version for each in response.supported_features}
    level, possible = finalized.get("transaction.version", 0), supported.get("transaction.version", 0)
    rest = ", ".join(f"{name} {value}" for name, value in sorted(finalized.items()) if name != "transaction.version")
    text = f"transaction.version {level}" + (f", {rest}" if rest else "")
    if level >= 2:
        findings.add("features", OK, text)
    elif possible >= 2:
        hint = "kafka-features.sh upgrade --feature transaction.version=2 makes late requests of old epochs harmless"
        findings.add("features", WARNING, text, hint)
    else:
        findings.add("features", OK, f"{text}: transactions of the protocol before Kafka 4.0")


# ---- the addresses that the broker advertises ----------------------------------------------------------------------


async def _find_brokers(findings: Findings, connection: "Connection", settings: "AdminSettings") -> "list[Node]":
    """Ask for the brokers of the cluster. Returns them. Raises Stop without an answer."""
    from ...client.errors import KafkaError
    from ...client.net.topology import Node
    from ...effects.counts import count_text
    from ...protocol.messages.cluster import MetadataRequest

    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    try:
        version = connection.version_of(MetadataRequest)
        response = await connection.send(request, version, timeout_ms=settings.request_timeout_ms)
    except KafkaError as error:
        findings.fail("cluster", str(error), "the broker accepts connections but does not answer: see its log")
    nodes = [Node(each.node_id, each.host, each.port, each.rack) for each in response.brokers]
    if not nodes:
        findings.fail("cluster", "the broker's metadata lists no brokers", "it may still be starting")
    findings.add("cluster", OK, f"{count_text(len(nodes), 'broker')}, id {response.cluster_id or 'unknown'}")
    return nodes


async def _check_advertised(findings: Findings, node: "Node", bootstrap: tuple[str, int]) -> bool:
    """Check that an advertised address resolves and accepts connections from here. Returns whether it does."""
    from .probes import addresses, connects

    who, at = f"broker {node.node_id} advertises", f"{node.host}:{node.port}"
    hint = "clients connect to this address: set the broker's advertised.listeners to one that works from here"
    found = await addresses(node.host)
    if not found:
        findings.add("advertised", FAILURE, f"{who} {at}, which does not resolve from here", hint)
        return False
    took_ms, reason = await connects(node.host, node.port, _CONNECT_MS)
    if reason:
        if all(map(_is_loopback, found)) and not all(map(_is_loopback, await addresses(bootstrap[0]))):
            reason += "; that is this machine, not the broker's"
        findings.add("advertised", FAILURE, f"{who} {at}, to which there is no connection: {reason}", hint)
        return False
    findings.add("advertised", OK, f"{who} {at}, reached in {took_ms:.1f} ms")
    return True


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


# ---- topics, transactions, clock -----------------------------------------------------------------------------------


async def _check_contents(findings: Findings) -> None:
    """Check what the broker has: disk, topics, transactions, share groups, clock; each within the timeout."""
    import asyncio

    from ...client.errors import KafkaError

    to = findings.to
    async with to.admin() as admin:
        looks = (("disk", _disk), ("topics", _topics), ("transactions", _transactions), ("shares", _shares))
        for check, look in (*looks, ("clock", _clock)):
            try:
                async with asyncio.timeout(to.timeout_ms / 1000):
                    for state, text, hint in await look(admin):
                        findings.add(check, state, text, hint)
            except KafkaError as error:
                findings.add(check, WARNING, str(error), getattr(error, "hint", ""))
            except TimeoutError:
                findings.add(check, WARNING, "no answer in time", "--timeout gives it longer")


_Found = list[tuple[str, str, str]]


async def _disk(admin: Any) -> _Found:
    """Return findings about log directories that are low on space."""
    from ..space import low_text

    low = await admin.find_low_log_dirs()
    if not low:
        return [(OK, "there is room for what is written", "")]
    hint = "free some space, or lower retention.ms or retention.bytes of the largest topics; it goes on by itself"
    return [(FAILURE if each.floor_bytes is not None else WARNING, low_text(each), hint) for each in low]


async def _topics(admin: Any) -> _Found:
    """Return a finding about topics: their count, and partitions without a leader or with replicas behind."""
    from ...effects.counts import count_text

    topics = await admin.describe_topics()
    partitions = [(name, each) for name, found in topics.items() for each in found.partitions]
    without = [f"{name}-{each.partition}" for name, each in partitions if each.leader < 0]
    text = f"{count_text(len(topics), 'topic')}, {count_text(len(partitions), 'partition')}"
    if without:
        hint = "their brokers are down, or their logs damaged: look at the brokers' logs (docs/on-call.md)"
        return [(FAILURE, f"{text}; without a leader: {', '.join(_some(without))}", hint)]
    behind = [f"{name}-{each.partition}" for name, each in partitions if len(each.isr) < len(each.replicas)]
    if behind:
        return [(WARNING, f"{text}; replicas behind: {', '.join(_some(behind))}", "a broker is down or slow")]
    return [(OK, f"{text}, all with a leader", "")]


def _some(names: list[str], most: int = 5) -> Iterator[str]:
    """Yield the first names, and a text with how many more there are."""
    yield from names[:most]
    if len(names) > most:
        yield f"and {len(names) - most} more"


async def _transactions(admin: Any) -> _Found:
    """Return findings about transactions that block readers, that hold back offsets of groups, or that keep a share
    group from new records of a partition: it gets none while the first of those that it may have in flight at once (its
    window) waits for the transaction's end.
    """
    from ..txn.held import held_facts, held_sentence
    from ..txn.windows import full_windows, window_sentence

    blocked = [blocked_facts(each, now_ms()) for each in await admin.find_blockers()]
    found = [(facts, sentence(facts)) for facts in blocked]
    held = [held_facts(each, now_ms()) for each in await _held_offsets(admin)]
    found += [(facts, held_sentence(facts)) for facts in held]
    windows = await full_windows(admin)
    # Whether such a transaction hangs is not known here: it is late once it is older than its timeout.
    found += [({**facts["transactions"][0], "hangs": False}, window_sentence(facts)) for facts in windows[:_MAX_HELD]]
    if not found:
        return [(OK, "no partition is blocked by an open transaction, no group's offsets are held", "")]
    return [(WARNING if facts["hangs"] or _is_late(facts) else OK, text, "") for facts, text in found]


def _is_late(facts: dict[str, Any]) -> bool:
    return bool((facts["age_ms"] or 0) > (facts["timeout_ms"] or 0))


async def _held_offsets(admin: Any) -> list[Any]:
    """Return the committed offsets that open transactions have held back for longest, one for each group; none if
    this login may not see them.
    """
    from ...client.errors import AuthorizationError

    try:
        found: list[Any] = await admin.find_held_offsets()
    except AuthorizationError:
        return []
    return found[:_MAX_HELD]


async def _shares(admin: Any) -> _Found:
    """Return findings about share groups that get no new records for lack of memory; nothing if there are no share
    groups.
    """
    from ..txn.windows import lacks_memory, memory_sentence, share_positions

    positions = await share_positions(admin)
    found = lacks_memory(positions)
    if not found:
        return [(OK, "no share group lacks memory for its records", "")] if positions else []
    hint = "their members leave records between acknowledged ones: see which; or raise group.metadata.max.bytes"
    return [(WARNING, memory_sentence(each), hint) for each in found[:_MAX_SHARED]]


async def _clock(admin: Any) -> _Found:
    """Return findings about the clocks: the newest record in the coordinators' logs must have a time at or before
    this machine's.
    """
    from ...client.admin.offsets import MAX_TIMESTAMP

    topics = await admin.describe_topics()
    own = [tp for name in ("__consumer_offsets", "__transaction_state") if name in topics
           for tp in topics[name].led]  # fmt: skip
    newest = await admin.list_offsets(dict.fromkeys(own, MAX_TIMESTAMP)) if own else {}
    stamps = [each.timestamp_ms for each in newest.values() if each.timestamp_ms >= 0]
    if not stamps:
        return [(OK, "not checked: the coordinators have no records with a time yet", "")]
    ahead_s = (max(stamps) - now_ms()) / 1000
    if ahead_s > 1:
        hint = "ages of transactions and groups, and positions by time, are wrong by this much; is NTP running?"
        return [(WARNING, f"the broker's clock is at least {ahead_s:.0f} s ahead of this machine's", hint)]
    return [(OK, "the broker's clock is not ahead of this machine's", "")]
