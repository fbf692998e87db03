"""Explains why a broker did not start: one line with the cause, one with a hint."""

import errno
import os
import socket
from pathlib import Path

from ...broker.config.configuration import EVERY_SETTING
from ...broker.config.options import InvalidOption
from ...broker.config.settings import BROKER_OPTIONS, BrokerSettings
from ...broker.security.security_log import NewerSecurityLog, SecurityLogDamaged
from ...broker.topics.catalogue import NewerCatalogue
from ...broker.topics.catalogue_log import CatalogueDamaged
from ...broker.topics.internal_topic import InternalTopicDamaged
from ...broker.transactions.ledger import DamagedLedgerRecord, NewerLedgerRecord
from ...broker.transactions.records import DamagedTransactionRecord, NewerTransactionRecord
from ...effects.disk import AlreadyLocked, DirectoryMoved, DiskFull, DiskLow
from ...effects.objects import Refused
from ...effects.threads import MORE_THREADS, CannotStartThread
from ...effects.tls import BadTlsFiles
from ...storage import layout
from ...storage.checkpoints import Damaged, NewerFormat
from ...storage.objects.errors import Fenced, ObjectDamaged, Overtaken
from ...storage.recovery import StoreDamaged
from ...storage.store import BrokerHalted
from ...storage.system_errors import MISPLACED
from ..output.failures import DENIED, FAILED, HALTED, REFUSED_BY_SYSTEM, TAKEN_OVER, WRONG_USAGE, Failure

UPGRADE = "use that version, or another --data-dir; nothing was changed"
_NEWER = (NewerFormat, NewerCatalogue, NewerSecurityLog, NewerTransactionRecord, NewerLedgerRecord)
_LOGS_DAMAGED = (
    CatalogueDamaged,
    SecurityLogDamaged,
    InternalTopicDamaged,
    DamagedTransactionRecord,
    DamagedLedgerRecord,
)
_LISTENING = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_MORE_FILES = "raise the limit (ulimit -n, LimitNOFILE= of systemd, --ulimit nofile of docker) and start again"
_MORE_MEMORY = "give it more memory, or stop other programs that use it, and start again"
_MORE_ROOM = "free some space, or set storage.min.free.bytes lower (-X), and start again"
_NO_LOSS = "no record is lost"
_BY_ERROR = {
    errno.EMFILE: f"{_MORE_FILES}; {_NO_LOSS}",
    errno.ENFILE: f"this machine has too many files open: raise fs.file-max, then start again; {_NO_LOSS}",
    errno.ENOMEM: f"{_MORE_MEMORY}; {_NO_LOSS}",
    errno.EINTR: f"start again; {_NO_LOSS}",
}
_OTHER_DEVICE = "the device cannot read or write it (see the system's log): copy the data directory to a sound device"
_WITHOUT_PARTITION = "-X storage.unreadable.partitions=offline starts without this partition"


def explain_failure(error: Exception, settings: BrokerSettings) -> Failure | None:
    """Return the failure for an exception that ended the start; None for a bug, whose traceback is shown."""
    directory = settings.log_dir
    if isinstance(error, InvalidOption):
        row = BROKER_OPTIONS.get(error.name)
        return Failure(str(error), error.hint or (row.doc if row else EVERY_SETTING), WRONG_USAGE)
    if isinstance(error, BadTlsFiles):
        return Failure(str(error), error.hint)
    if isinstance(error, AlreadyLocked):
        holder = f"process {error.pid}" if error.pid is not None else "another process"
        return Failure(f"{directory} is in use by {holder}", "stop that process, or use another --data-dir")
    if isinstance(error, _NEWER):
        return Failure(f"{directory} was written by a newer fencepost: {error}", UPGRADE)
    if isinstance(error, Overtaken):
        return Failure(str(error), "start it again: it waits until that broker is gone", TAKEN_OVER)
    if isinstance(error, Refused):
        return Failure(error.reason, error.hint, DENIED)
    if isinstance(error, ObjectDamaged):
        return Failure(str(error), f"nothing was changed; {error.hint}")
    if isinstance(error, StoreDamaged):
        return Failure(str(error), error.hint)
    if isinstance(error, Damaged):
        hint = (
            f"nothing was changed; fencepost log verify {directory} shows more; restore the whole directory from a copy"
        )
        return Failure(str(error), hint)
    if isinstance(error, _LOGS_DAMAGED):
        return Failure(str(error), f"restore it from a copy; fencepost log verify {directory} shows more")
    if isinstance(error, DirectoryMoved):
        return halted(error)
    if isinstance(error, BrokerHalted) and error.__cause__ is not None:
        return halted(error.__cause__)
    if isinstance(error, CannotStartThread):
        return Failure(str(error), f"{MORE_THREADS}, and start again; {_NO_LOSS}", REFUSED_BY_SYSTEM)
    if isinstance(error, DiskLow):
        return Failure(f"{directory}: {error}", _MORE_ROOM, REFUSED_BY_SYSTEM)
    if isinstance(error, DiskFull):
        return Failure(f"{directory}: the disk is full", "free some space, and start again", REFUSED_BY_SYSTEM)
    if isinstance(error, MemoryError):
        return Failure(f"{directory}: no memory is left", _BY_ERROR[errno.ENOMEM], REFUSED_BY_SYSTEM)
    return _explain_system_error(error, settings) if isinstance(error, OSError) else None


def halted(cause: BaseException) -> Failure:
    """Return the failure for a broker that halted, in service or during its start."""
    if isinstance(cause, Fenced):
        return Failure(str(cause), cause.hint, TAKEN_OVER)
    hint = "nothing was acknowledged since; check the disk, then start again: recovery reads what is on it"
    if isinstance(cause, DirectoryMoved):
        hint = cause.hint
    return Failure(f"the broker halted: {cause}", hint, HALTED)


def _explain_system_error(error: OSError, settings: BrokerSettings) -> Failure:
    """Return the failure for an error of the operating system at the start: which listener or file, why, and what to
    do.
    """
    reason = error.strerror or str(error)
    if isinstance(error, socket.gaierror) or error.errno in _LISTENING or error.filename is None:
        listen = ", ".join(settings.listeners)
        hint = "--listen must be HOST:PORT of this machine; port 0 means a free port"
        if error.errno == errno.EADDRINUSE:
            hint = "another program uses this port: stop it, or use another --listen (port 0 means a free port)"
        return Failure(f"cannot listen on {listen}: {_plain(reason)}", hint)
    path = os.fsdecode(error.filename)
    code = FAILED if isinstance(error, MISPLACED) else REFUSED_BY_SYSTEM
    return Failure(f"{path}: {_plain(reason)}", _hint(error, path, settings), code)


def _hint(error: OSError, path: str, settings: BrokerSettings) -> str:
    """Return what to do about an error with a file of the data directory."""
    if error.errno == errno.EIO:
        may_leave_out = settings.storage_unreadable_partitions == "refuse"
        folders = layout.logs_directory(settings.log_dir), layout.kept_parts_directory(settings.log_dir)
        folder = next((each for each in folders if path.startswith(f"{each}/")), None)
        own = tuple(f"{folder}/{topic}-" for topic in (layout.CATALOGUE_TOPIC, layout.SECURITY_TOPIC))
        of_partition = folder is not None and not path.startswith(own)
        return f"{_OTHER_DEVICE}, or {_WITHOUT_PARTITION}" if may_leave_out and of_partition else _OTHER_DEVICE
    if isinstance(error, IsADirectoryError):
        return f"the broker needs a file at {path}, not a directory: move the directory, or use another --data-dir"
    if isinstance(error, NotADirectoryError | FileExistsError):
        found = next((each for each in (Path(path), *Path(path).parents) if each.is_file()), path)
        return f"the broker needs a directory at {found}, not a file: move the file, or use another --data-dir"
    allowed = "the broker needs read and write access to the whole data directory; --data-dir sets another"
    return _BY_ERROR.get(error.errno or 0, allowed)


def _plain(reason: str) -> str:
    return reason[:1].lower() + reason[1:]
