"""`fencepost serve`: a broker in its own process, until a signal stops it.

Settings of the whole process are made here and not in the broker: event loop, allocator, garbage collector, signals,
limits of the process, logging. The broker is imported only after the options are checked.
"""

import contextlib
import gc
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..arguments.ranges import DURATION
from ..output.failures import WRONG_USAGE, Failure
from .protection import protection_settings

if TYPE_CHECKING:
    from .console import HttpOptions
    from .following import BackupOptions

DEFAULT_DIRECTORY = ".fencepost"
EPHEMERAL_HINT = "--ephemeral keeps its data in a new directory that is removed at the end"


@click.command()
@click.option("--data-dir", metavar="DIR", help=f"The data directory. [default: ./{DEFAULT_DIRECTORY}]")
@click.option(
    "--listen",
    metavar="[NAME://]HOST:PORT",
    multiple=True,
    help="Port 0 means a free port. [default: 127.0.0.1:9092]",
)
@click.option("--advertise", metavar="HOST:PORT", multiple=True, help="The address that clients connect to.")
@click.option(
    "--ephemeral", is_flag=True, envvar="FENCEPOST_EPHEMERAL", help="Use a new directory, removed at the end."
)
@click.option(
    "--sasl", metavar="MECHANISM[,…]", help="Clients log in: SCRAM-SHA-256, SCRAM-SHA-512, PLAIN, OAUTHBEARER."
)
@click.option("--tls-cert", metavar="FILE", help="Speak TLS, with this certificate (PEM, and those that signed it).")
@click.option("--tls-key", metavar="FILE", help="Its key (PEM), unless it is in the same file.")
@click.option("--tls-client-ca", metavar="FILE", help="Clients show a certificate that one of these (PEM) has signed.")
@click.option(
    "--super-user", metavar="NAME", multiple=True, help="May do everything; others, what access control lists allow."
)
@click.option("--insecure", is_flag=True, help="Let other machines connect without a login, or without TLS.")
@click.option("--http", metavar="HOST:PORT", help="Serve the web console there, in a process beside the broker.")
@click.option("--http-token-file", metavar="FILE", help="The console asks for the token in this file.")
@click.option("--http-host", multiple=True, metavar="NAME", help="A name by which browsers may call the console.")
@click.option("--http-client-config", metavar="FILE", help="How the console logs in: Kafka's client properties.")
@click.option("--http-read-only", is_flag=True, help="The console may not abort or fence transactions.")
@click.option(
    "--backup", metavar="URL", help="Ship the data directory there, as backup --follow, in a process beside it."
)
@click.option(
    "--backup-every", type=DURATION, default="1s", show_default=True, help="How often to look what there is to ship."
)
@click.option("--backup-keep", type=DURATION, default="24h", show_default=True, help="Restorable for so long.")
@click.option("--store", metavar="URL", help="Have the journal there; wait while another broker owns it.")
@click.option("--standby", is_flag=True, help="With --store: while another broker owns it, fetch its checkpoints.")
@click.option("--durability", metavar="fsync|interval|os", help="When a write is acknowledged. [default: fsync]")
@click.option("--config", metavar="FILE", envvar="FENCEPOST_CONFIG", help="A TOML file of settings.")
@click.option("--ignore-dynamic", is_flag=True, help="Ignore settings that were changed at runtime.")
@click.option(
    "-X",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="Any setting; python -m fencepost.broker.config.settings_page lists them.",
)
def serve(
    data_dir: str | None,
    listen: Sequence[str],
    advertise: Sequence[str],
    ephemeral: bool,
    sasl: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    tls_client_ca: str | None,
    super_user: Sequence[str],
    insecure: bool,
    http: str | None,
    http_token_file: str | None,
    http_host: Sequence[str],
    http_client_config: str | None,
    http_read_only: bool,
    backup: str | None,
    backup_every: int,
    backup_keep: int,
    store: str | None,
    standby: bool,
    durability: str | None,
    config: str | None,
    ignore_dynamic: bool,
    settings: Sequence[str],
) -> None:
    """Run a broker until SIGTERM or Ctrl-C; a second one ends it at once.

    It prints a line that begins with "ready" and contains its addresses once it serves. Flags take precedence over
    FENCEPOST_… in the environment, and these over the file. Exit code 70: a write or sync failed; restart the broker.
    71: another broker owns the store.
    """
    if sys.platform == "win32":
        raise Failure("fencepost serve runs on Linux and macOS only", "on Windows, run it in WSL")
    flags = _pairs(settings)
    named = {"log.dir": data_dir, "durability.mode": durability}
    named |= {"listeners": ",".join(listen), "advertised.listeners": ",".join(advertise)}
    given = {"--data-dir": [data_dir], "--listen": listen, "--advertise": advertise, "--sasl": [sasl]}
    given |= {"--tls-cert": [tls_cert], "--tls-key": [tls_key], "--tls-client-ca": [tls_client_ca]}
    _check_given(given, {"--data-dir": data_dir, "--backup": backup} if ephemeral else {})
    _check_store(store, backup, standby=standby)
    flags |= {name: text for name, text in named.items() if text}
    flags |= protection_settings(sasl, tls_cert, tls_key, tls_client_ca, super_user, insecure)
    with _collector_off():
        from .serving import run

        run(
            flags,
            _read_settings(config),
            config or "file",
            ephemeral=ephemeral,
            ignore_dynamic=ignore_dynamic,
            http=_http_options(http, http_token_file, http_host, http_client_config, http_read_only),
            backup=_backup_options(backup, backup_every, backup_keep) if backup is not None else None,
            insecure=insecure,
            store=store,
            is_standby=standby,
        )


def _check_store(store: str | None, backup: str | None, *, standby: bool) -> None:
    """Raise Failure if --store is given together with --backup, or --standby without --store."""
    if standby and store is None:
        raise Failure("--standby is given without --store", "--store URL says of which store", WRONG_USAGE)
    if store is not None and backup is not None:
        hint = f"fencepost restore {store} makes a directory of it, which fencepost backup takes: docs/store.md"
        raise Failure("--backup cannot follow a journal that is in a store (--store)", hint, WRONG_USAGE)


def _check_given(given: Mapping[str, Sequence[str | None]], not_ephemeral: Mapping[str, str | None]) -> None:
    """Raise Failure for an option without a value, or one that makes no sense with --ephemeral."""
    for option, values in given.items():
        if "" in values:
            raise Failure(f"{option} is empty", "give it a value, or leave it out to use the default", WRONG_USAGE)
    for option, value in not_ephemeral.items():
        if value is not None:
            raise Failure(f"--ephemeral and {option} cannot be used together", EPHEMERAL_HINT, WRONG_USAGE)


def _http_options(
    http: str | None, token_file: str | None, hosts: Sequence[str], client_config: str | None, read_only: bool
) -> "HttpOptions | None":
    """Return the options --http… of the console; None without --http. Raises Failure if only others are given."""
    if http is None and (token_file or hosts or client_config or read_only):
        raise Failure("--http-… is given, but not --http", "--http 127.0.0.1:8082 serves the console", WRONG_USAGE)
    if http is None:
        return None
    from .console import HttpOptions

    return HttpOptions(http, token_file, hosts, client_config, read_only)


def _backup_options(url: str, every_ms: int, keep_ms: int) -> "BackupOptions":
    """Return the options --backup…, checked. Raises Failure."""
    from .following import BackupOptions

    options = BackupOptions(url, every_ms, keep_ms)
    options.check()
    return options


@contextlib.contextmanager
def _collector_off() -> Iterator[None]:
    """Turn garbage collection off until the broker serves: the imports alone would trigger fifty collections."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _pairs(settings: Sequence[str]) -> dict[str, str]:
    """Split NAME=VALUE arguments into a mapping. Raises Failure if one has no `=`."""
    pairs: dict[str, str] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise Failure(f"-X {name} has no value", f"write -X {name}=VALUE", WRONG_USAGE)
        if not name.strip():
            raise Failure(f"-X {setting} has no name", "write -X NAME=VALUE", WRONG_USAGE)
        pairs[name.strip()] = text
    return pairs


def _read_settings(path: str | None) -> Mapping[str, Any]:
    """Read the TOML file of settings; empty without a path. Raises Failure."""
    if path is None:
        return {}
    import tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}", "--config must be a readable TOML file", WRONG_USAGE) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Failure(
            f"{path}: {error}", 'write TOML: "log.retention.ms" = 1000, one setting on each line', WRONG_USAGE
        ) from None
