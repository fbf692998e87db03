"""AlterUserScramCredentials and DescribeUserScramCredentials: the users that may log in with a password (KIP-554).

The rules: describing users needs Describe on the cluster, changing them Alter. The keys that are stored in place of a
password are computed here, and shown to nobody. Each user in a request is changed or refused separately. The changes
are written as one unit of the journal, or as several if they are many. Asked of Apache Kafka 4.3.1.
"""

import logging
from collections import Counter
from collections.abc import Iterator

from ...protocol.encoding import Lazy
from ...protocol.errors import KafkaError
from ...protocol.messages.scram_users import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from ..net.turns import Steps
from ..requests.dispatch import Call, handles
from ..requests.services import Services
from ..security.acls import Operation
from ..security.credentials import SECRET_BYTES, Change, secret_set
from ..security.user_changes import (
    Altered,
    Described,
    Infos,
    decide_changes,
    describe,
    infos_of,
    refusal,
    refuse_duplicate,
)

CHANGES_AT_ONCE = 200  # of one unit
CHANGE_UNITS = 4
LOOKED_AT_ONCE = 50

log = logging.getLogger("fencepost.broker")


# ---- AlterUserScramCredentials -------------------------------------------------------------------------------


@handles(AlterUserScramCredentialsRequest, may_be_long=True)
def alter_users(
    broker: Services, call: Call, request: AlterUserScramCredentialsRequest
) -> Steps[AlterUserScramCredentialsResponse]:
    """Add, replace and remove credentials."""
    try:
        broker.access.check_on_cluster(call.session, Operation.ALTER)
    except KafkaError as error:
        names = dict.fromkeys([each.name for each in request.deletions] + [each.name for each in request.upsertions])
        return _alter_response(broker, [refusal(name, error) for name in names])
    users = broker.security_log.state.users
    changes, results = yield from decide_changes(users, request, broker.settings.max_users)
    failed: dict[str, KafkaError] = {}
    changed = list(changes)
    for begin in range(0, len(changed), CHANGES_AT_ONCE):
        part = changed[begin : begin + CHANGES_AT_ONCE]
        try:
            _commit(broker, call, [changes[name] for name in part])
        except KafkaError as error:
            failed |= dict.fromkeys(part, error)
        yield CHANGE_UNITS * len(part)
    return _alter_response(
        broker, [refusal(each.user, failed[each.user]) if each.user in failed else each for each in results]
    )


def _commit(broker: Services, call: Call, changes: list[Change]) -> None:
    """Write these changes in one unit. If they are the first ever, the unit also contains the broker's secret for
    decoys. Raises KafkaError.
    """
    users = broker.security_log.state.users
    secret = [] if users.secret else [secret_set(broker.rng.bytes(SECRET_BYTES))]
    broker.security_log.commit(secret + changes)
    who = call.session
    log.info("credentials changed: %d, by %s from %s", len(changes), who.principal, who.host)


def _alter_response(broker: Services, results: list[Altered]) -> AlterUserScramCredentialsResponse:
    """Return the response for these users, and count the errors in it."""
    for result in results:
        if result.error_code:
            broker.metrics.error("AlterUserScramCredentials", result.error_code)
    return AlterUserScramCredentialsResponse(results=results)


# ---- DescribeUserScramCredentials ----------------------------------------------------------------------------


@handles(DescribeUserScramCredentialsRequest, may_be_long=True)
def describe_users(
    broker: Services, call: Call, request: DescribeUserScramCredentialsRequest
) -> Steps[DescribeUserScramCredentialsResponse]:
    """Answer with the named users, or with all, without the secret parts of their credentials."""
    broker.access.check_on_cluster(call.session, Operation.DESCRIBE)
    users = broker.security_log.state.users
    times = Counter([each.name for each in request.users or []] or users.names)
    found: list[tuple[str, Infos]] = []
    for name in times:
        infos = infos_of(users, name)
        if infos or request.users:  # if all users are described, one that was removed meanwhile is left out
            found.append((name, infos))
        if len(found) % LOOKED_AT_ONCE == 0:
            yield LOOKED_AT_ONCE
    results = Lazy(len(found), _describe(found, times))
    return DescribeUserScramCredentialsResponse(error_message="", results=results)


def _describe(found: list[tuple[str, Infos]], times: Counter[str]) -> Iterator[Described]:
    """Yield the description of each user, or an error for one that the request names more than once. times: how often
    it names each.
    """
    return (describe(name, infos) if times[name] == 1 else refuse_duplicate(name) for name, infos in found)
