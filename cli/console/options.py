"""Parses where the console is served and with which token, for the options of `console` and `serve`."""

from ..output.failures import WRONG_USAGE, Failure

DEFAULT_ADDRESS = "127.0.0.1:8082"  # the port of Confluent's REST proxy
LONGEST_FILE = 4_096


def address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT to (host, port). Raises Failure."""
    host, colon, digits = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not digits.isascii() or not digits.isdigit() or int(digits) > 65_535:
        raise Failure(f"{text!r} is not HOST:PORT", f"write {DEFAULT_ADDRESS}; port 0 means a free port", WRONG_USAGE)
    return host, int(digits)


def token_of(path: str | None) -> str | None:
    """Return the token in the file, which must be its only line; None if path is None. Raises Failure."""
    if path is None:
        return None
    hint = "--http-token-file must be a readable file with the token in one line"
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read(LONGEST_FILE).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Failure(f"{path}: {reason}", hint, WRONG_USAGE) from None
    if not token or not token.isprintable():
        raise Failure(f"{path}: there is no token of one line", hint, WRONG_USAGE)
    return token
