"""The command line: one module or package for each command, imported only when it is used, so that `--help` is fast.

Exit codes: 0 done; 1 failed (or `log verify` found damage); 2 wrong usage or settings; 3 there is no such topic, group
or transaction; 4 no answer in time; 5 fenced, or a conflict with the current state; 6 authentication or authorization
failed; 70 `serve`: a write or sync failed; 71 `serve`: another broker owns the store now; 72 `serve`: ended while its
store did not answer; 75 the system refused a thread, or `serve` a file, memory or disk space;
130 Ctrl-C.
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

INTERRUPTED = 130
OWN_OPTIONS = ("-h", "--help", "--version")

COMMANDS = {
    "serve": "Run a broker.",
    "topic": "Topics: list, describe, create, alter, trim, delete.",
    "group": "Consumer groups: lag and why, seek, delete.",
    "share-group": "Share groups: lag, reset, delete.",
    "named-producer": "Named producers: how far each is, remove.",
    "user": "Users with a password: add, list, remove.",
    "acl": "Who may do what: add, list, remove rules of access.",
    "quota": "How much each client may ask for: set, list, remove.",
    "clients": "Who is connected to a fencepost broker?",
    "txn": "Transactions: what is open, whom it blocks, ending it.",
    "outbox": "From a table of a database into topics, exactly once.",
    "sql": "The tables of databases that take part in commits.",
    "produce": "Send lines of standard input, in transactions too.",
    "consume": "Print records, and what became of each.",
    "health": "Does a broker answer? Exit code 0 or 1.",
    "doctor": "Why does a client not get through?",
    "console": "The web console of a cluster, any Kafka.",
    "spark": "Spark's environment, and the sinks of its queries.",
    "log": "Read a data directory without a broker.",
    "backup": "Copy a data directory, while a broker runs too.",
    "restore": "Make a data directory of a backup.",
    "store": "Backups and journals in a store of objects.",
    "mirror": "Copy topics exactly once to another Kafka, move groups.",
    "generate": "A Grafana board, Prometheus rules, a systemd unit.",
    "bench": "Measure a broker, any Kafka broker.",
    "demo": "Lose acknowledgements, kill the broker, and count what is left.",
}
# The module of a command, where it has not the command's name.
_MODULES = {
    "user": "access.user",
    "acl": "access.acl",
    "quota": "access.quota",
}


@contextmanager
def _visible_refusals() -> Iterator[None]:
    """Within the block, make unprintable characters in click's error messages visible: these quote arguments, which
    scripts may have taken from names that others chose.
    """
    try:
        yield
    except click.UsageError as error:
        from .output.writing import visible

        error.message = visible(error.message)  # type: ignore[misc]  # shown later; click does not compare it
        raise


class LazyGroup(click.Group):
    """Lists its commands by name, and imports a command's module when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the module of a command and return the command; None if there is none of this name."""
        if name not in COMMANDS:
            return None
        word = name.replace("-", "_")
        command = getattr(importlib.import_module(f"{__package__}.{_MODULES.get(name, word)}"), word)
        assert isinstance(command, click.Command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; options of a command that come before the command's name are moved after it."""
        # A command's name has at most two words, so an option before the last of them is in args[:2].
        options = [each for each in args[:2] if each.startswith("-")]
        if options and not set(options) & set(OWN_OPTIONS):
            from .arguments.early_options import move_options

            args = move_options(ctx, self, args)
        with _visible_refusals():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Raises Failure, with a message and an exit code, if the system refuses a thread, a name is
        not UTF-8, or a library is missing. Ctrl-C ends it with INTERRUPTED.
        """
        try:
            with _visible_refusals():
                return super().invoke(ctx)
        except KeyboardInterrupt:  # before a command handled signals itself
            ctx.exit(INTERRUPTED)
        except OSError as error:
            from ..effects.threads import MORE_THREADS, CannotStartThread
            from .output.failures import REFUSED_BY_SYSTEM, Failure

            if not isinstance(error, CannotStartThread):
                raise
            raise Failure(str(error), MORE_THREADS, REFUSED_BY_SYSTEM) from None
        except UnicodeEncodeError as error:
            from .output.failures import WRONG_USAGE, Failure

            if not any("\ud800" <= each <= "\udfff" for each in error.object):
                raise
            # Python has these in place of the bytes of an argument that are not UTF-8; no Kafka has such names.
            hint = "names are UTF-8: see how the terminal or the script that gave it encodes them"
            raise Failure(f"the name {error.object} is not valid UTF-8", hint, WRONG_USAGE) from None
        except ModuleNotFoundError as error:
            from .output.extras import explain_missing

            failure = explain_missing(error)
            if failure is None:
                raise
            raise failure from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name. An unknown name ends the program with the list of commands."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"no such command: {args[0]}; there are {', '.join(COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fencepost")
def main() -> None:
    """A message broker with the Apache Kafka protocol and real exactly-once semantics."""
