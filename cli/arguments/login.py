"""The options of how a command logs in to a broker: --user, --tls-ca, --client-config and the like.

The rule: a password is typed without an echo, or comes from a file, a pipe or the environment, but not from the
arguments, which every process of the machine can read. --user alone means SCRAM-SHA-256 over plain text, any --tls…
option means TLS. What -X sets has precedence over these options, and they have precedence over --client-config.
"""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from ..output.failures import WRONG_USAGE, Failure
from ..output.writing import ask

PASSWORD_VARIABLE = "FENCEPOST_PASSWORD"
USER_VARIABLE = "FENCEPOST_USER"
CONFIG_VARIABLE = "FENCEPOST_CLIENT_CONFIG"
DEFAULT_MECHANISM = "SCRAM-SHA-256"
LONGEST_LINE = 4_096
BOOTSTRAP = "bootstrap.servers"
_OF_CONNECTIONS = ("security.", "sasl.", "ssl.", "enable.ssl.")
_OTHERS = (BOOTSTRAP, "client.id")

Option = Callable[[Any], Any]


def _option(*names: str, **more: Any) -> Option:
    return click.option(*names, **more)


_PASSWORD_STDIN = _option(
    "--password-stdin",
    "login_password_stdin",
    is_flag=True,
    help=f"Read its password from stdin. Also ${PASSWORD_VARIABLE}.",
)
_REST: tuple[Option, ...] = (
    _option("--sasl", "login_mechanism", metavar="MECHANISM", help=f"How to log in. [default: {DEFAULT_MECHANISM}]"),
    _option("--tls", "login_tls", is_flag=True, help="Use TLS, and the system's certificate authorities."),
    _option("--tls-ca", "login_ca", metavar="FILE", help="Use TLS, and these certificate authorities (PEM)."),
    _option("--tls-cert", "login_cert", metavar="FILE", help="Use TLS with this certificate of the client (PEM)."),
    _option("--tls-key", "login_key", metavar="FILE", help="The certificate's key (PEM)."),
    _option(
        "--client-config",
        "login_config",
        metavar="FILE",
        envvar=CONFIG_VARIABLE,
        help=f"Kafka's client properties of the connection, NAME=VALUE lines. Also ${CONFIG_VARIABLE}.",
    ),
)


def login_options(*, password_stdin: bool = True) -> tuple[Option, ...]:
    """Return the options of a login. password_stdin: False if the command reads another password from standard
    input.
    """
    user = _option("--user", "login_user", metavar="NAME", envvar=USER_VARIABLE, help=f"Log in. Also ${USER_VARIABLE}.")
    return (user, *([_PASSWORD_STDIN] if password_stdin else []), *_REST)


def login_properties(
    login_user: str | None = None,
    login_password_stdin: bool = False,
    login_mechanism: str | None = None,
    login_tls: bool = False,
    login_ca: str | None = None,
    login_cert: str | None = None,
    login_key: str | None = None,
    login_config: str | None = None,
) -> dict[str, str]:
    """Return the client's properties, by Kafka's names. May ask for the password. Raises Failure."""
    found = dict(properties_of(login_config)) if login_config is not None else {}
    named = {"ssl.ca.location": login_ca, "ssl.certificate.location": login_cert, "ssl.key.location": login_key}
    found |= {name: value for name, value in named.items() if value is not None}
    tls = login_tls or any(value is not None for value in named.values())
    if login_user is None:
        for name in ("--password-stdin",) if login_password_stdin else ("--sasl",) if login_mechanism else ():
            if "sasl.username" not in found and "sasl.jaas.config" not in found:
                raise Failure(f"{name} is given, but no user", "--user NAME logs in as that user", WRONG_USAGE)
    protocol = _protocol(found.get("security.protocol", ""), tls=tls, sasl=login_user is not None)
    if protocol:
        found["security.protocol"] = protocol
    if login_mechanism is not None:
        found["sasl.mechanism"] = login_mechanism.upper()
    if login_user is not None:
        found.pop("sasl.jaas.config", None)
        found.setdefault("sasl.mechanism", found.pop("sasl.mechanisms", DEFAULT_MECHANISM))
        found["sasl.username"] = login_user
        found["sasl.password"] = _login_password(login_user, login_password_stdin, found.get("sasl.password"))
    elif login_password_stdin:
        found["sasl.password"] = password_from_stdin()
    return found


def _protocol(before: str, *, tls: bool, sasl: bool) -> str:
    """Return the security.protocol that the file (`before`) and the options together mean; "" if neither sets one."""
    before = before.upper()
    tls, sasl = tls or before in ("SSL", "SASL_SSL"), sasl or before.startswith("SASL")
    if not (tls or sasl):
        return before
    return ("SASL_" if sasl else "") + ("SSL" if tls else "PLAINTEXT")


def _login_password(user: str, stdin: bool, from_file: str | None) -> str:
    """Return the password from standard input, the environment or the client config, in this order; else ask for it."""
    if stdin:
        return password_from_stdin()
    given = os.environ.get(PASSWORD_VARIABLE) or from_file
    if given:
        return given
    hint = f"set ${PASSWORD_VARIABLE}, or give it by --password-stdin or --client-config"
    return password_typed(f"Password of {user}", hint)


def password_typed(prompt: str, hint: str, *, confirm: bool = False) -> str:
    """Ask for the password without an echo. hint: what to do if there is no terminal. Raises Failure."""
    if not sys.stdin.isatty():
        raise Failure("a password is needed, and there is no terminal to ask for it", hint, WRONG_USAGE)
    return ask(prompt, confirm=confirm)


def password_from_stdin() -> str:
    """Read the password from the first line of standard input; the rest is left for the command. Raises Failure."""
    line = _first_line()
    text = line.removesuffix(b"\n").removesuffix(b"\r")
    if not text:
        raise Failure("there is no password on standard input", "write it there as one line", WRONG_USAGE)
    if len(line) > LONGEST_LINE:
        raise Failure(f"the password is longer than {LONGEST_LINE} bytes", "use a shorter one", WRONG_USAGE)
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise Failure("the password is not UTF-8", "encode it as UTF-8", WRONG_USAGE) from None


def _first_line() -> bytes:
    """Read the first line of standard input, but at most one byte more than is allowed. Unbuffered, because
    `produce` reads the rest.
    """
    stream = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
    line = b""
    while len(line) <= LONGEST_LINE and not line.endswith(b"\n"):
        byte = stream.read(1)
        if not byte:
            break
        line += byte
    return line


def properties_of(path: str) -> Mapping[str, str]:
    """Read the properties of a file, as Java's clients and tools do. Raises Failure."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Failure(f"{path}: {reason}", "--client-config must be a readable file", WRONG_USAGE) from None
    found: dict[str, str] = {}
    for number, line in _lines(text):
        name, equals, value = line.partition("=")
        name = name.strip()
        if not equals or not name:  # the line may hold a secret, so it is not shown
            raise Failure(f"{path}: line {number} is not NAME=VALUE", "write one property on each line", WRONG_USAGE)
        if not name.startswith(_OF_CONNECTIONS) and name not in _OTHERS:
            hint = "the file has properties of security.*, sasl.*, ssl.*; -X NAME=VALUE sets any other"
            raise Failure(f"{path}: line {number}: {name} is not about the connection", hint, WRONG_USAGE)
        found[name] = value.strip()
    return found


def _lines(text: str) -> list[tuple[int, str]]:
    """Return (number, content) of each line that is not blank or a comment. A backslash at the end joins two lines."""
    found: list[tuple[int, str]] = []
    begun: tuple[int, str] | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if begun is None and (not line or line[0] in "#!"):
            continue
        first, before = begun or (number, "")
        begun = None
        if line.endswith("\\"):
            begun = first, before + line[:-1]
        else:
            found.append((first, before + line))
    return [*found, begun] if begun else found
