"""Admin's calls about who may do what (ACLs) and who may log in with a password (SCRAM). Sources: KIP-140, KIP-554.

The rule: a password never leaves this process; the broker gets what RFC 5802 calls SaltedPassword, over a connection
that should use TLS, because whoever reads it can log in with it.
"""

import hashlib
from collections.abc import Iterable

from ...protocol.errors import ErrorCode
from ...protocol.messages.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from ...protocol.messages.scram_users import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from ..errors import ClientError, InvalidConfigurationError
from .asking import Answer, Asking, one_or_more, refuse
from .security_values import (
    LEAST_ITERATIONS,
    AclBinding,
    AclFilter,
    ScramChange,
    ScramCredentialInfo,
    ScramDeletion,
    ScramUpsertion,
    binding,
    creation,
    filter_fields,
)

MECHANISMS: dict[str, tuple[int, str]] = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
_SALT_BYTES = 24
_Request = AlterUserScramCredentialsRequest


class SecurityAdmin(Asking):
    """Access control lists, and users with a password."""

    # ---- access control lists --------------------------------------------------------------------------------

    async def create_acls(self, acls: AclBinding | Iterable[AclBinding]) -> None:
        """Add rules; existing ones are left unchanged. Raises SECURITY_DISABLED, AuthorizationError and others."""
        wanted = [acls] if isinstance(acls, AclBinding) else list(acls)
        request = CreateAclsRequest(creations=[creation(each) for each in wanted])
        response: CreateAclsResponse = await self._ask(
            "any", request, lambda r: [each.error_code for each in r.results]
        )
        _check_count(len(response.results), len(wanted), "rules")
        refuse(
            Answer(str(acl), each.error_code, each.error_message)
            for acl, each in zip(wanted, response.results, strict=True)
        )

    async def describe_acls(self, wanted: AclFilter | None = None) -> list[AclBinding]:
        """Return the rules that match a filter, or all, sorted. Raises SECURITY_DISABLED, AuthorizationError."""
        request = DescribeAclsRequest(**filter_fields(wanted or AclFilter()))
        response: DescribeAclsResponse = await self._ask("any", request, lambda r: [r.error_code])
        refuse([Answer("rules of access", response.error_code, response.error_message)])
        return sorted(binding(each, acl) for each in response.resources for acl in each.acls)

    async def delete_acls(self, filters: AclFilter | Iterable[AclFilter]) -> list[AclBinding]:
        """Remove all rules that match one of the filters; returns them. Raises SECURITY_DISABLED and others."""
        wanted = [filters] if isinstance(filters, AclFilter) else list(filters)
        request = DeleteAclsRequest(filters=[DeleteAclsRequest.Filter(**filter_fields(each)) for each in wanted])
        response: DeleteAclsResponse = await self._ask(
            "any", request, lambda r: [each.error_code for each in r.filter_results]
        )
        _check_count(len(response.filter_results), len(wanted), "filters")
        refuse(Answer("rules of access", each.error_code, each.error_message) for each in response.filter_results)
        found = [acl for each in response.filter_results for acl in each.matching_acls]
        refuse(Answer(str(binding(each, each)), each.error_code, each.error_message) for each in found)
        return sorted({binding(each, each) for each in found})

    # ---- users with a password -------------------------------------------------------------------------------

    async def describe_user_scram_credentials(
        self, users: str | Iterable[str] | None = None
    ) -> dict[str, tuple[ScramCredentialInfo, ...]]:
        """Return, by user, the SCRAM mechanisms with which these users, or all, may log in; () for a user that does not
        exist.
        """
        named = None if users is None else list(dict.fromkeys(one_or_more(users)))
        if named == []:  # to a broker, an empty list means all users
            return {}
        asked = None if named is None else [DescribeUserScramCredentialsRequest.User(name=each) for each in named]
        request = DescribeUserScramCredentialsRequest(users=asked)
        response: DescribeUserScramCredentialsResponse = await self._ask(
            "any", request, lambda r: [r.error_code, *[each.error_code for each in r.results]]
        )
        refuse([Answer("users", response.error_code, response.error_message)])
        there = [each for each in response.results if each.error_code != ErrorCode.RESOURCE_NOT_FOUND]
        refuse(Answer(f"user {each.user}", each.error_code, each.error_message) for each in there)
        names = {code: name for name, (code, _) in MECHANISMS.items()}
        found = {
            each.user: tuple(
                ScramCredentialInfo(names.get(one.mechanism, f"unknown({one.mechanism})"), one.iterations)
                for one in sorted(each.credential_infos, key=lambda one: one.mechanism)
            )
            for each in sorted(there, key=lambda each: each.user)
        }
        return dict.fromkeys(named or (), ()) | found

    async def alter_user_scram_credentials(self, changes: ScramChange | Iterable[ScramChange]) -> None:
        """Set and remove passwords. Raises UNACCEPTABLE_CREDENTIAL, RESOURCE_NOT_FOUND, AuthorizationError and others.

        A request may contain each user once, so two changes of one user are two requests, one after the other.
        """
        left: list[ScramChange] = []
        left += [changes] if isinstance(changes, ScramUpsertion | ScramDeletion) else changes
        for each in left:
            _check_change(each)
        while left:
            once = {each.user: each for each in reversed(left)}  # the first change of each user
            left = [each for each in left if once[each.user] is not each]
            await self._alter_users(list(once.values()))

    async def _alter_users(self, changes: list[ScramChange]) -> None:
        """Send the changes in one request, in which each user may occur only once. Raises the broker's errors."""
        request = _Request(
            deletions=[
                _Request.Deletion(name=each.user, mechanism=MECHANISMS[each.mechanism][0])
                for each in changes
                if isinstance(each, ScramDeletion)
            ],
            upsertions=[self._upsertion(each) for each in changes if isinstance(each, ScramUpsertion)],
        )
        response: AlterUserScramCredentialsResponse = await self._ask(
            "controller", request, lambda r: [each.error_code for each in r.results]
        )
        _check_count(len(response.results), len(changes), "users")
        refuse(Answer(f"user {each.user}", each.error_code, each.error_message) for each in response.results)

    def _upsertion(self, change: ScramUpsertion) -> _Request.Upsertion:
        """Build the request's entry for a user's new password: salted and hashed here, so that the password is not
        sent.
        """
        code, digest = MECHANISMS[change.mechanism]
        salt = self._environment.rng.bytes(_SALT_BYTES)
        return _Request.Upsertion(
            name=change.user,
            mechanism=code,
            iterations=change.iterations,
            salt=salt,
            salted_password=hashlib.pbkdf2_hmac(digest, change.password.encode(), salt, change.iterations),
        )


def _check_change(change: ScramChange) -> None:
    """Raise InvalidConfigurationError for an unknown SCRAM mechanism, an empty password, or too few iterations."""
    if change.mechanism not in MECHANISMS:
        raise InvalidConfigurationError(
            f"mechanism {change.mechanism!r} is not known", hint=f"use one of {', '.join(MECHANISMS)}"
        )
    if isinstance(change, ScramUpsertion):
        if not change.password:
            raise InvalidConfigurationError(f"the password of {change.user} is empty")
        if change.iterations < LEAST_ITERATIONS:
            raise InvalidConfigurationError(f"iterations={change.iterations} must be {LEAST_ITERATIONS} or more")


def _check_count(answered: int, asked: int, what: str) -> None:
    """Raise ClientError if the response has another number of entries than the request. what: a word for the entries in
    the error message.
    """
    if answered != asked:
        raise ClientError(f"the broker answered for {answered} of {asked} {what}")
