"""Why a broker did not start, for people: the cause in one line, what to do in another."""

import errno
import os
import socket

from ..broker.catalogue import NewerCatalogue
from ..broker.catalogue_log import CatalogueDamaged
from ..broker.internal_topic import InternalTopicDamaged
from ..broker.settings import BrokerSettings
from ..broker.transactions.ledger import DamagedLedgerRecord, NewerLedgerRecord
from ..broker.transactions.records import DamagedTransactionRecord, NewerTransactionRecord
from ..effects.disk import AlreadyLocked, DiskFull
from ..storage.checkpoints import Damaged, NewerFormat
from ..storage.recovery import StoreDamaged
from ..storage.store import BrokerHalted
from .failures import HALTED, Failure

UPGRADE = "use that version, or another --data-dir; nothing was changed"
_NEWER = (NewerFormat, NewerCatalogue, NewerTransactionRecord, NewerLedgerRecord)
_LOGS_DAMAGED = (CatalogueDamaged, InternalTopicDamaged, DamagedTransactionRecord, DamagedLedgerRecord)
_LISTENING = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def why_not(error: Exception, settings: BrokerSettings) -> Failure | None:
    """What to tell of an exception that ended the start; None if it is a bug, which deserves its traceback."""
    directory = settings.log_dir
    if isinstance(error, AlreadyLocked):
        holder = f"process {error.pid}" if error.pid is not None else "another process"
        return Failure(f"{directory} is in use by {holder}", "stop that one, or use another --data-dir")
    if isinstance(error, _NEWER):
        return Failure(f"{directory} was written by a newer fencepost: {error}", UPGRADE)
    if isinstance(error, StoreDamaged):
        return Failure(str(error), error.hint)
    if isinstance(error, Damaged):
        return Failure(str(error), f"nothing was changed; fencepost log verify {directory} says more")
    if isinstance(error, _LOGS_DAMAGED):
        return Failure(str(error), f"restore it from a copy; fencepost log verify {directory} says more")
    if isinstance(error, BrokerHalted) and error.__cause__ is not None:
        return halted(error.__cause__)
    if isinstance(error, DiskFull):
        return Failure(f"{directory}: the disk is full", "free some space, and start again")
    return _why_not_by_system(error, settings) if isinstance(error, OSError) else None


def halted(cause: BaseException) -> Failure:
    """What to tell of a broker that halted, be it while it started."""
    hint = "nothing was acknowledged since; look at the disk, then start again: recovery decides what is there"
    return Failure(f"the broker halted: {cause}", hint, HALTED)


def _why_not_by_system(error: OSError, settings: BrokerSettings) -> Failure:
    reason = error.strerror or str(error)
    if isinstance(error, socket.gaierror) or error.errno in _LISTENING or error.filename is None:
        listen = ", ".join(settings.listeners)
        hint = "--listen takes HOST:PORT of this machine; port 0 takes a free one"
        if error.errno == errno.EADDRINUSE:
            hint = "another program listens there: stop it, or use another --listen (port 0 takes a free one)"
        return Failure(f"cannot listen on {listen}: {_plain(reason)}", hint)
    path = os.fsdecode(error.filename)
    return Failure(f"{path}: {_plain(reason)}", "the data directory must be writable; --data-dir names another")


def _plain(reason: str) -> str:
    return reason[:1].lower() + reason[1:]
