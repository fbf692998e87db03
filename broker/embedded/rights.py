"""The users, super users and ACLs with which an embedded broker is created.

The rule: they exist when the broker is ready for the first time. From then on users and ACLs are in the broker's
security log, where any admin client, or the methods of Broker, can change them. A restart keeps the changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ...effects.rng import SystemRng
from ...protocol.errors import KafkaError
from ..config.listener_settings import SASL_PLAINTEXT
from ..config.security_settings import STANDARD_AUTHORIZER
from ..security.acl_records import Change, acl_added, acl_removed
from ..security.acls import AclBinding, Operation, PatternType, Permission, ResourceType, check_binding
from ..security.credentials import (
    LEAST_ITERATIONS,
    LONGEST_NAME,
    Mechanism,
    ScramCredential,
    credential_from,
    credential_removed,
    credential_set,
    salted_password,
)
from ..security.principals import USER, parse_principal
from ..security.security_state import SecurityState

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
FOR_CLIENTS = "SCRAM-SHA-256"
SALT_BYTES = 24


class Rule(Protocol):
    """The fields of an ACL, with the names that they have in `fencepost.AclBinding`."""

    @property
    def principal(self) -> str:
        """The principal that the ACL applies to, such as "User:alice"."""
        ...

    @property
    def operation(self) -> str:
        """The operation's name, such as "read"."""
        ...

    @property
    def resource_type(self) -> str:
        """The kind of resource, such as "topic" or "group"."""
        ...

    @property
    def resource_name(self) -> str:
        """The resource's name, or the prefix of names; "*" for all resources of the kind."""
        ...

    @property
    def pattern(self) -> str:
        """How resource_name is matched: "literal" or "prefixed"."""
        ...

    @property
    def host(self) -> str:
        """The client address that the ACL applies to; "*" for all."""
        ...

    @property
    def permission(self) -> str:
        """ "allow" or "deny"."""
        ...


class Rights:
    """The users and ACLs given to Broker(). passwords: by user name; None if clients do not log in. repr() shows no
    passwords.
    """

    def __init__(
        self,
        users: Mapping[str, str] | None,
        super_users: str | Sequence[str] | None,
        acls: Iterable[Rule] | None,
    ) -> None:
        """Check the arguments. Raises ValueError for an invalid name, password or ACL."""
        self._users = None if users is None else dict(users)
        self.passwords = None if users is None else dict(users)
        self._super_users = super_users if super_users is None or isinstance(super_users, str) else list(super_users)
        self._bindings = None if acls is None else [binding_of(each) for each in acls]
        self._credentials = [
            (name, credential) for name, password in (users or {}).items() for credential in credentials(name, password)
        ]

    def __repr__(self) -> str:
        return f"Rights(users={sorted(self.passwords or ())})"

    @property
    def asks_for_login(self) -> bool:
        return self.passwords is not None

    @property
    def is_guarded(self) -> bool:
        """Whether every request is checked against ACLs."""
        return self._super_users is not None or self._bindings is not None

    def settings(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the given settings, and in addition those that the users and ACLs need. Given ones win."""
        found: dict[str, str] = {}
        if self.asks_for_login:
            found["security.protocol"] = SASL_PLAINTEXT
            found["sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
        if self.is_guarded:
            found["authorizer.class.name"] = STANDARD_AUTHORIZER
            found["super.users"] = self._super_users_text()
        return found | dict(given)

    def _super_users_text(self) -> str:
        """Return the super users in the form of the setting super.users."""
        given = self._super_users or ()
        return given if isinstance(given, str) else ";".join(map(principal_text, given))

    def forget_changes(self) -> None:
        """Set the passwords back to those with which the broker was created."""
        self.passwords = None if self._users is None else dict(self._users)

    def missing(self, state: SecurityState) -> list[Change]:
        """Return the changes that create the given users and ACLs that do not exist yet, and set the given password of
        users that have another one.
        """
        users = [
            credential_set(name, each)
            for name, each in self._credentials
            if state.users.find(name, each.mechanism) != each
        ]
        return users + [acl_added(each) for each in self._bindings or () if each not in state.authorizer]

    def surplus(self, state: SecurityState) -> list[Change]:
        """Return the changes that remove all users and ACLs that were not given."""
        known = {(name, each.mechanism) for name, each in self._credentials}
        users = [
            credential_removed(name, each.mechanism)
            for name in state.users.names
            for each in state.users.of(name)
            if (name, each.mechanism) not in known
        ]
        bindings = set(self._bindings or ())
        return users + [acl_removed(each) for each in state.authorizer if each not in bindings]


def principal_text(name: str) -> str:
    """Return a principal as text: `alice` becomes User:alice; a text with a colon is returned unchanged."""
    return name if ":" in name else f"{USER}:{name}"


def binding_of(rule: Rule) -> AclBinding:
    """Convert an ACL. Raises ValueError if it is not valid."""
    found = AclBinding(
        resource_type=_code(ResourceType, rule.resource_type),
        pattern_type=_code(PatternType, rule.pattern),
        resource_name=rule.resource_name,
        principal=str(parse_principal(principal_text(rule.principal))),
        host=rule.host,
        operation=_code(Operation, rule.operation),
        permission=_code(Permission, rule.permission),
    )
    try:
        check_binding(found)
    except KafkaError as error:
        raise ValueError(error.detail) from None
    return found


_WORDS_FOR = {
    ResourceType: "resource type",
    PatternType: "pattern",
    Operation: "operation",
    Permission: "permission",
}


def _code(kind: Any, word: str) -> Any:
    """Return the member of this enum with the name `word`, in any case. Raises ValueError, with all names."""
    try:
        return kind[word.upper()]
    except KeyError:
        raise ValueError(f"{word!r} is not a known {_WORDS_FOR[kind]}: use one of {', '.join(_words(kind))}") from None


def _words(kind: Any) -> list[str]:
    """Return the names, in small letters, of the members of this enum that an ACL may have."""
    return [each.name.lower() for each in kind if each.name not in ("UNKNOWN", "ANY", "MATCH")]


def credentials(name: str, password: str) -> list[ScramCredential]:
    """Return a credential for each SCRAM mechanism; PLAIN is checked against them too. Raises ValueError."""
    if not name or len(name) > LONGEST_NAME:
        raise ValueError(f"a user's name must be of 1 to {LONGEST_NAME} characters")
    if not password:
        raise ValueError(f"the password of {name} is empty")
    made = []
    for mechanism in Mechanism:
        salt = SystemRng().bytes(SALT_BYTES)
        salted = salted_password(mechanism, password.encode(), salt, LEAST_ITERATIONS)
        made.append(credential_from(mechanism, salted, salt, LEAST_ITERATIONS))
    return made
