"""The addresses of bootstrap servers, from what users write. Pure."""

from collections.abc import Iterable, Sequence

from .errors import InvalidConfigurationError

Address = tuple[str, int]
Bootstrap = str | Sequence[str | Address]

DEFAULT_PORT = 9092


def addresses_of(servers: Bootstrap) -> tuple[Address, ...]:
    """Return the hosts and ports in "a:9092,b" or ["a:9092", ("b", 9092)]; the port is 9092 by default.

    Raises InvalidConfigurationError.
    """
    if not isinstance(servers, str) and not isinstance(servers, Iterable):  # None, for example of an unset variable
        raise InvalidConfigurationError(
            f"bootstrap_servers={servers!r} names no broker", hint='pass the "host:port" of one or more brokers'
        )
    listed = servers.split(",") if isinstance(servers, str) else list(servers)
    found = tuple(dict.fromkeys(_address(one) for one in listed if one and one != " "))
    if not found:
        raise InvalidConfigurationError(
            "bootstrap_servers is empty", hint='pass the "host:port" of one or more brokers'
        )
    return found


def _address(server: str | Address) -> Address:
    """Return host and port of one bootstrap server, from `host:port` (also with `scheme://`, or an IPv6 address in
    brackets) or a pair. Without a port it is the default port. Raises InvalidConfigurationError if it is neither.
    """
    if not isinstance(server, str):
        if not isinstance(server, tuple | list) or len(server) != 2:
            raise InvalidConfigurationError(f"bootstrap_servers: {server!r} is not host:port")
        host, port = server
        return str(host), int(port)
    text = server.strip().rpartition("://")[2]  # the format of Kafka's listeners
    host, colon, number = text.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):  # no port, or an IPv6 address without brackets
        host, number = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    is_port = number.isascii() and number.isdigit() and 0 < int(number) < 65_536
    if not host or ";" in host or " " in host or not is_port:
        raise InvalidConfigurationError(f"bootstrap_servers: {server!r} is not host:port")
    return host, int(number)
