"""`fencepost doctor --store URL`: checks step by step whether brokers may have their journal in an object store.

The rule: objects for the checks are written below 0/probes/, and removed again.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial

from ...effects.objects import Missing, Objects, mount_of_url, open_at_each_address
from ...storage.journal_source import StoreDamaged
from ...storage.objects.creating import until_clear
from ...storage.objects.fence import ONE_PAGE
from ...storage.objects.probing import MAX_RACES, PROBES, RACES, is_found, race, remove
from ...storage.shipping.kinds import Kind
from ..output.interruption import Interruption
from ..store.looking import Asked, looking_into
from .findings import FAILURE, OK, WARNING, Findings

MEASURED = 20  # creates
SLOW_MS = 250.0
_OTHERS = ("cifs", "smb3", "9p", "fuse", "fuseblk", "ceph", "glusterfs", "lustre", "virtiofs")


def examine(findings: Findings, url: str) -> None:
    """Run the checks of a store one after the other, and add what they find to `findings`. Raises Failure if the store
    does not answer or refuses.
    """
    if not _check_mount(findings, url):
        return
    with looking_into(url) as asked:
        _report_use(findings, asked)
        among = open_at_each_address(url) or [asked.objects]
        if len(among) > 1:
            findings.add("addresses", OK, f"{len(among)}: each takes part")
        if _check_creates(findings, asked, among):
            _check_objects(findings, asked)


def _check_mount(findings: Findings, url: str) -> bool:
    """Check how the directory of a file:// URL is mounted. Returns False if a journal must not be kept there."""
    mount = mount_of_url(url)
    if mount is None:
        return True
    if mount.is_cached:
        text = f"{mount.point} is {mount.kind}, mounted without noac, so its listings may be outdated"
        findings.add("mount", FAILURE, text, "mount it with noac")
        return False
    is_known = not mount.kind.startswith(_OTHERS)
    hint = "" if is_known else "a file system that others share has to list what they have just made"
    findings.add("mount", OK if is_known else WARNING, f"{mount.point} is {mount.kind}", hint)
    return True


def _report_use(findings: Findings, asked: Asked) -> None:
    """Add a finding that says whether the store has a backup, a journal or nothing."""
    if asked.kind is Kind.BACKUP:
        findings.add("use", WARNING, "it holds a backup", "a journal needs a prefix of its own")
    else:
        text = "it holds a journal" if asked.is_journal else "nothing is there yet"
        findings.add("use", OK, text)


def _new_name() -> str:
    """Return a new, random name for an object of the checks."""
    return f"{PROBES}{secrets.token_hex(16)}"


def _check_creates(findings: Findings, asked: Asked, among: Sequence[Objects]) -> bool:
    """Create each of several new names through all addresses at the same time, and check that exactly one of these
    creates succeeds. Returns whether that was so for every name.
    """
    won = tried = 0
    while won < RACES:
        if tried == MAX_RACES:
            text = f"in {tried} races no create of a new name succeeded often enough"
            findings.add("create", FAILURE, text, "the store has to create a name that is not there")
            return False
        name = _new_name()
        try:
            won += race(among, name, asked.pause)
        except StoreDamaged as both:
            findings.add("create", FAILURE, both.reason, both.hint)
            return False
        finally:
            remove(asked.objects, name)
        tried += 1
        asked.interruption.check()
    text = f"of several creates of one name one succeeds, in each of {won} races"
    more = f"; in {tried - won} more, no create had an answer of success" if tried > won else ""
    findings.add("create", OK, text + more)
    return True


_NO_ORDER = (
    f"nobody can take over while a journal there has more than {ONE_PAGE:,} rounds and seals: keep "
    "store.puts.per.second at 10, or use a store that lists in order"
)


def _check_objects(findings: Findings, asked: Asked) -> None:
    """Check that an object is listed and can be read right after its create, and not any more after its delete.
    Measure how long create and list take.
    """
    objects = asked.objects
    names = [_new_name() for _ in range(MEASURED)]
    try:
        took = sorted(_measured(asked.interruption, partial(objects.create, name, bytes(4096))) for name in names)
        listed: list[str] = []

        def list_probes() -> None:
            """List what was created, in the store's order."""
            listed[:] = (found.name for found in until_clear(lambda: objects.list(PROBES), asked.pause))

        list_ms = _measured(asked.interruption, list_probes)
        if not is_found(objects, names[-1], asked.pause):
            hint = "a store has to list what was created as soon as it says so"
            findings.add("list", FAILURE, "what was just created is not listed, or cannot be read", hint)
            return
        text = f"what was just created is there; a listing took {list_ms:.0f} ms"
        if listed == sorted(listed):
            findings.add("list", OK, text)
        else:
            findings.add("list", WARNING, f"{text}; its names are in no order", _NO_ORDER)
    finally:
        for name in names:
            remove(objects, name)
    try:
        until_clear(lambda: objects.read(names[-1]), asked.pause)
        hint = "objects that nobody needs stay, and cost; nothing relies on their going"
        findings.add("delete", WARNING, "what was deleted is there still", hint)
    except Missing:
        findings.add("delete", OK, "what was deleted is gone")
    text = f"a create of 4 KiB takes {took[len(took) // 2]:.1f} ms, at most {took[-1]:.1f} ms of {MEASURED}"
    is_slow = took[len(took) // 2] > SLOW_MS
    findings.add("latency", WARNING if is_slow else OK, text, "each acknowledgement takes as long" if is_slow else "")


def _measured(interruption: Interruption, call: Callable[[], object]) -> float:
    """Return how long a call took, in ms."""
    interruption.check()
    began = time.monotonic()
    call()
    return (time.monotonic() - began) * 1000
