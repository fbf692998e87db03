"""The identity of a client: a kind and a name, written `User:alice` as in Kafka (KafkaPrincipal). Pure."""

from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

USER = "User"
ANY_HOST = "*"


class Principal(NamedTuple):
    """A kind, which is nearly always User, and a name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")  # clients of a listener without logins
EVERYBODY = Principal(USER, "*")  # in a rule: all principals, of any kind


def parse_principal(text: str) -> Principal:
    """Parse a principal, such as User:alice. Raises ValueError if there is no colon."""
    kind, colon, name = text.partition(":")
    if not colon:
        raise ValueError(f"{text!r} is not of the form User:name")
    return Principal(kind, name)


def parse_super_users(text: str) -> frozenset[Principal]:
    """Parse principals separated by `;` (names of certificates contain commas). Raises ValueError."""
    return frozenset(parse_principal(part.strip()) for part in text.split(";") if part.strip())


def plain_host(text: str) -> str:
    """Return the normal form of an IP address, so that equal ones compare equal; any other text unchanged.

    Java writes ::1 as 0:0:0:0:0:0:0:1, and a socket of both families writes 10.0.0.1 as ::ffff:10.0.0.1.
    """
    if text == ANY_HOST:
        return text
    try:
        address = ip_address(text)
    except ValueError:
        return text
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


class Session:
    """The user and address of a connection's client. Immutable; a login replaces it."""

    __slots__ = ("host", "principal")

    def __init__(self, principal: Principal, host: str) -> None:
        """host: the client's address."""
        self.principal = principal
        self.host = plain_host(host)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Session) and (self.principal, self.host) == (other.principal, other.host)

    def __hash__(self) -> int:
        return hash((self.principal, self.host))
