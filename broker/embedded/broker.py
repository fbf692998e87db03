"""A broker inside another process: `with Broker() as broker:`, with a real log, a real socket, and a thread of its
own.

The rule: it is a guest. It has its own thread and loop, listens on the loopback at a free port, and touches nothing
that belongs to the process: no signals, collector, allocator, loop policy or logging set-up. Without a `data_dir` its
directory is a temporary one, removed at the end, also when the process ends without asking. After a failed write or
sync it stops by itself, and the block that it was used in raises BrokerHaltedError.
"""

import atexit
import contextlib
import os
import resource
import threading
import weakref
from asyncio import CancelledError, shield, wrap_future
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self, TypeVar

from ...effects.disk import DirectoryMoved, SystemDisk
from ...effects.simulated.forgetful import ForgetfulDisk
from ...effects.simulated.movable import MovableClock
from ...protocol.errors import ErrorCode, KafkaError
from ...storage.store import BrokerHalted
from ..broker import Broker as InnerBroker
from ..broker import Serve
from ..config.descriptors import shares
from ..config.options import InvalidOption, nearest, text_of
from ..config.settings import BROKER_OPTIONS, BrokerSettings, Source
from ..security.acl_records import Change, acl_added, acl_removed
from ..security.credentials import credential_removed, credential_set
from ..security.security_state import SecurityState
from .life import Ended, Life
from .rights import FOR_CLIENTS, Rights, Rule, binding_of, credentials

T = TypeVar("T")
Setting = str | int | float | bool | Sequence[str]

GUEST_DEFAULTS: dict[str, Setting] = {
    "group_initial_rebalance_delay_ms": 0,
    "offsets_topic_num_partitions": 4,
    "transaction_state_log_num_partitions": 4,
    # Each second, so that what should happen within seconds does happen when time is moved ahead by that much.
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 1_000,
    "log_retention_check_interval_ms": 1_000,
}
"""Where it differs from `fencepost serve`: no group waits for members that come later, and starts are quick."""

LONGEST_SWEEP_S = 1.0
START_TIMEOUT_S = 60.0


class BrokerHaltedError(KafkaError, BrokerHalted):
    """Raised if a write or sync failed: the broker answers nothing any more until it is started again, which recovers
    the log.
    """

    hint = "look at the disk, then start again: recovery decides what is there"

    def __init__(self, detail: str, hint: str | None = None) -> None:
        """detail: what failed. hint: what to do; None for the usual one."""
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, detail)
        self.args = (detail,)  # what a copy, or an unpickled one, is made from
        if hint is not None:
            self.args = (detail, hint)
            self.hint = hint

    def __str__(self) -> str:
        return self.detail


class Broker:
    """An embedded broker. Use it by `with` or `async with`, or call `start` and `stop`.

    All calls block, and may come from any thread but its own.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        users: Mapping[str, str] | None = None,
        super_users: str | Sequence[str] | None = None,
        acls: Iterable[Rule] | None = None,
        **settings: Setting,
    ) -> None:
        """data_dir: where the data is kept after stop(). Without it, it is in a temporary directory, which stop()
        removes.

        users: names and passwords; with them clients have to log in, by SCRAM or PLAIN. super_users, acls: either turns
        access control lists on; super users may do everything, others what the rules (`fencepost.AclBinding`) allow.
        settings: any name of docs/settings.md, with `_` for `.`. Raises TypeError for an unknown name, ValueError for
        an invalid value.
        """
        self.clock = MovableClock()
        self.host = host
        self.port = port  # the port in use, once it serves; the same after a restart
        quick = {} if data_dir is not None else {"log_checkpoint_interval_ms": 1_000}
        self._rights = Rights(users, super_users, acls)
        self._texts = self._rights.settings(_texts({**GUEST_DEFAULTS, **quick, **settings}))
        BrokerSettings.of({Source.STATIC_BROKER: self._texts})
        self._data_dir = None if data_dir is None else os.path.abspath(os.fspath(data_dir))
        self._has_rights = False  # whether the users and ACLs given exist in the directory
        self._directory: str | None = None
        self._life: Life | None = None
        self._lives = 0
        self._between: Callable[[Serve], Serve] | None = None
        self._owner_pid = os.getpid()
        self._changing = threading.RLock()  # for starts and stops

    def __repr__(self) -> str:
        state = "running" if self.running else "halted" if self.halted else "stopped"
        return f"<fencepost.Broker {self.bootstrap_servers} {state}>"

    @property
    def bootstrap_servers(self) -> str:
        """The HOST:PORT that clients connect to."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the broker serves clients; True also while it is paused."""
        return self._life is not None and self._life.running

    @property
    def paused(self) -> bool:
        """Whether pause() was called, and resume() not yet."""
        return self._life is not None and self._life.paused

    @property
    def halted(self) -> BaseException | None:
        """The error that halted the broker; None if there was none."""
        return self._life.halted if self._life is not None else None

    @property
    def failures(self) -> Sequence[BaseException]:
        """The unexpected exceptions inside the broker since its start, which are bugs; empty if there were none."""
        return [] if self._life is None else list(self._life.broker.metrics.failures)

    @property
    def disk(self) -> ForgetfulDisk:
        """The disk of the running broker, which can be made to fail. Raises RuntimeError before the first start."""
        return self._alive().disk

    # ---- begin and end ---------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Recover the data directory, then serve clients; return the broker itself when it does.

        Raises OSError, such as AlreadyLocked or CannotStartThread, and what recovery raises.
        """
        life = self._begin()
        try:
            self._serve_at(life.ready.result(START_TIMEOUT_S))
        except BaseException:
            self._stop_failed_start(life)
            raise
        return self

    def stop(self) -> None:
        """Stop the broker, when all that it has answered is durable. Removes a temporary directory. May be called
        again, or concurrently.

        Raises BrokerHaltedError if the broker had stopped by itself.
        """
        if self._owner_pid != os.getpid():
            return  # a forked child: the broker runs in its parent
        with self._changing:
            life = self._life
            if life is not None:
                life.stop()
                life.join()
            self._life = None
            self._remove_directory()
        _check_halted(life)

    def kill(self) -> None:
        """Stop the broker like a power cut: connections are reset, and bytes that were not synced are lost.

        The port and the directory stay for restart().
        """
        self._alive().kill()

    def restart(self) -> None:
        """Start again on the same port and directory, after kill() or a failure; a running broker is stopped first.

        Raises RuntimeError before the first start, or after stop().
        """
        self._check_owner()
        with self._changing:
            if self._life is None:
                raise RuntimeError("the broker was never started, or is stopped for good")
            self._life.stop().result()
            self.start()

    def pause(self) -> None:
        """Pause like a process stopped by SIGSTOP: connections stay, nothing is read or answered, no timer fires."""
        self._alive().pause()

    def resume(self) -> None:
        """Continue after pause(). Idempotent."""
        self._alive().resume()

    def advance(self, seconds: float) -> None:
        """Move the broker's clock ahead. On return all that has become due (transactions, sessions, retention) is
        done.
        """
        self._check_owner()
        life = self._life
        if life is None or not life.running:
            self.clock.advance(round(seconds * 1000))
        else:
            life.advance(seconds, self.clock, at_least=LONGEST_SWEEP_S)

    def inside(self, look: Callable[[InnerBroker], T]) -> T:
        """Return look(broker), called in the broker's event loop. For tests; the methods of that inner broker may
        change.
        """
        return self._alive().inside(look)

    def intercept(self, between: Callable[[Serve], Serve] | None) -> None:
        """Replace the function that serves requests by between(function), also after a restart; None: restore it."""
        self._between = between
        if self.running:
            with contextlib.suppress(Ended):
                self.inside(lambda broker: broker.intercept(between))

    # ---- users and rights ------------------------------------------------------------------------------------

    def client_config(self, user: str | None = None) -> dict[str, str]:
        """Return the properties, by Kafka's names, with which a client connects. user: one of users=, to log in as.

        They fit confluent-kafka, Java's clients and `from_config` of the SDK. Raises ValueError for an unknown user.
        """
        found = {"bootstrap.servers": self.bootstrap_servers}
        if user is None:
            return found
        passwords = self._rights.passwords
        if passwords is None or user not in passwords:
            raise ValueError(f"the broker has no user {user!r}: Broker(users={{{user!r}: PASSWORD}}) creates it")
        return found | {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": FOR_CLIENTS,
            "sasl.username": user,
            "sasl.password": passwords[user],
        }

    def add_user(self, name: str, password: str) -> None:
        """Add a user, or change its password, durably. client_config() then returns that password.

        Raises ValueError if the broker was created without users.
        """
        if self._rights.passwords is None:
            raise ValueError("the broker asks for no login: create it with users={...}")
        made = credentials(name, password)
        self._change_security(lambda _: [credential_set(name, each) for each in made])
        self._rights.passwords[name] = password

    def remove_user(self, name: str) -> None:
        """Remove a user. Connections that have logged in already stay, as in Kafka."""
        self._change_security(lambda now: [credential_removed(name, each.mechanism) for each in now.users.of(name)])

    def add_acls(self, acls: Iterable[Rule]) -> None:
        """Add ACLs; they are durable and in effect when this returns. Raises ValueError."""
        self._check_guarded()
        bindings = [binding_of(each) for each in acls]
        self._change_security(lambda now: [acl_added(each) for each in bindings if each not in now.authorizer])

    def remove_acls(self, acls: Iterable[Rule]) -> None:
        """Remove those of these ACLs that exist. Raises ValueError."""
        self._check_guarded()
        bindings = [binding_of(each) for each in acls]
        self._change_security(lambda now: [acl_removed(each) for each in bindings if each in now.authorizer])

    def restore_rights(self) -> None:
        """Restore the users and ACLs with which the broker was created; remove all others."""
        rights = self._rights
        if rights.asks_for_login or rights.is_guarded:
            self._change_security(lambda now: [*rights.surplus(now), *rights.missing(now)])
            rights.forget_changes()

    def _change_security(self, changes: Callable[[SecurityState], list[Change]]) -> None:
        """Commit the changes of users and ACLs that changes(state) returns, and wait until they are durable."""
        self._alive().change_security(changes)

    def _check_guarded(self) -> None:
        """Raise ValueError if the broker was created without access control."""
        if not self._rights.is_guarded:
            raise ValueError("the broker has no access control lists: create it with acls=[...] or super_users=[...]")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.stop()
        except BrokerHaltedError:
            if error is None or isinstance(error, Exception):  # but not instead of KeyboardInterrupt and the like
                raise

    async def __aenter__(self) -> Self:
        life = self._begin()
        try:
            self._serve_at(await _wait_shielded(life.ready))
        except BaseException:
            self._stop_failed_start(life)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        life = self._life
        try:
            if life is not None and self._owner_pid == os.getpid():
                await _wait_shielded(life.stop())  # clients in the caller's loop continue meanwhile
        except CancelledError as cancelled:
            self.__exit__(CancelledError, cancelled, None)  # it blocks the loop, but the broker is stopped
            raise
        self.__exit__(kind, error, at)

    # ---- inside ----------------------------------------------------------------------------------------------

    def _begin(self) -> Life:
        """Begin to start the broker in a thread of its own. Returns that run of the broker. Raises RuntimeError if it
        already runs.
        """
        self._check_owner()
        with self._changing:
            before = self._life
            if before is not None:
                if before.beginning or before.running:
                    raise RuntimeError("the broker runs already")
                before.stop().result()  # it has failed or is being killed: wait for its lock
            if self._directory is None:
                self._directory = self._data_dir or SystemDisk().make_temporary_directory("fencepost-")
            if self._data_dir is not None:
                SystemDisk().make_directory(self._data_dir)
            texts = {**self._texts, "listeners": self.bootstrap_servers, "log.dir": self._directory}
            settings = _within_descriptors(BrokerSettings.of({Source.STATIC_BROKER: texts}))
            self._lives += 1
            disk = ForgetfulDisk(syncs=self._data_dir is not None, seed=self._lives)
            self._life = Life(settings, disk, self.clock, self._between, None if self._has_rights else self._rights)
            self._life.start()
            _remember(self)
            return self._life

    def _serve_at(self, port: int) -> None:
        """Note the port at which the broker serves, and that its users and ACLs exist now."""
        self.port = port
        self._has_rights = True

    def _stop_failed_start(self, life: Life) -> None:
        """Stop a run of the broker that has failed to start, or whose start the caller has stopped waiting for."""
        with self._changing:
            life.stop().result()
            if self._life is life:
                self._life = None
                self._remove_directory()

    def _remove_directory(self) -> None:
        """Remove the temporary directory, if there is one, and forget whether rights were written into it. Do not stop
        this broker any more at the exit of the process.
        """
        _embedded.discard(self)
        directory, self._directory = self._directory, None
        self._has_rights = self._has_rights and self._data_dir is not None
        if directory is not None and self._data_dir is None:
            try:
                SystemDisk().remove_tree(directory)
            except FileNotFoundError:
                pass

    def _alive(self) -> Life:
        """Return the present run of the broker. Raises RuntimeError if it is not started."""
        self._check_owner()
        if self._life is None:
            raise RuntimeError("the broker is not started")
        return self._life

    def _check_owner(self) -> None:
        """Raise RuntimeError in a forked child, which has a copy of this object but not its thread and sockets."""
        if self._owner_pid != os.getpid():
            raise RuntimeError("this broker runs in the process that forked this one: begin a Broker of your own")

    def _at_exit(self) -> None:
        """Stop the broker at the exit of the process. An earlier failure of the broker is ignored."""
        try:
            self.stop()
        except BrokerHaltedError:
            pass


def _within_descriptors(settings: BrokerSettings) -> BrokerSettings:
    """Return the settings with max.open.files lowered to a share of the process's file descriptors, as `fencepost
    serve` does.
    """
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return settings
    open_files = shares(descriptors, settings.max_open_files, settings.max_connections).open_files
    layer = {**settings.layers[Source.STATIC_BROKER], "max.open.files": str(open_files)}
    return settings.with_layer(Source.STATIC_BROKER, layer)


def _texts(settings: dict[str, Setting]) -> dict[str, str]:
    """Convert keyword settings to texts, by Kafka's names. Raises TypeError for an unknown name."""
    by_field = {row.field_name: row for row in BROKER_OPTIONS.values()}
    by_field |= {alias.replace(".", "_"): row for row in BROKER_OPTIONS.values() for alias in row.aliases}
    texts = {}
    for name, value in settings.items():
        if name not in by_field:
            near = nearest(name, list(by_field))
            raise TypeError(f"Broker() has no setting {name!r}" + (f": did you mean {near}?" if near else ""))
        row = by_field[name]
        factor = row.aliases.get(name.replace("_", "."), 1)
        if factor != 1:
            if not isinstance(value, int):
                raise InvalidOption(f"{name} is to be a whole number", row.name)
            value *= factor
        texts[row.name] = text_of(value if isinstance(value, str | int | float) else tuple(value))
    return texts


async def _wait_shielded(future: "Future[T]") -> T:
    """Await the future's result. If the waiting is cancelled, the future is not, because others may wait for it."""
    mirror = wrap_future(future)
    mirror.add_done_callback(lambda done: done.exception())  # so that asyncio does not report it if nobody waits
    return await shield(mirror)


def _check_halted(life: Life | None) -> None:
    """Raise BrokerHaltedError if this run of the broker has failed."""
    if life is not None and life.halted is not None:
        hint = life.halted.hint if isinstance(life.halted, DirectoryMoved) else None
        raise BrokerHaltedError(f"the broker halted: {life.halted}", hint) from life.halted


_embedded: "weakref.WeakSet[Broker]" = weakref.WeakSet()


def _remember(broker: Broker) -> None:
    """Make the exit of the process stop the broker and remove its temporary directory."""
    if not _embedded:
        atexit.unregister(_end_all)
        atexit.register(_end_all)
    _embedded.add(broker)


def _end_all() -> None:
    """Stop all embedded brokers of this process, at its exit."""
    for broker in list(_embedded):
        broker._at_exit()
