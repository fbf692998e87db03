"""franz-go's own tests of share groups, with a broker of ours where they have Kafka or a cluster of kfake.

kgo's ask the broker that they are told of. kfake's make a cluster; go/kfake/ puts our broker in its place, with the
settings that the test has for it, as far as they can be had (a lock lasts a second at least).
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from served_broker import ServedBroker

pytestmark = pytest.mark.long

KGO, KFAKE = (Path(sys.prefix) / f"franz-go-{name}-tests" for name in ("kgo", "kfake"))
WITHIN_S = 300
OF_KGO = ["TestShareGroupETL", "TestShareGroupAckOnClose", "TestShareGroupOffsetsAdmin"]
PLAIN = [
    "TestShareGroupAckAndRedelivery",
    "TestShareGroupAckCallbackSuccessPath",
    "TestShareGroupAsyncEarlyReturn",
    "TestShareGroupAsyncMultiSourceRecordIntegrity",
    "TestShareGroupAsyncNoSpin",
    "TestShareGroupAsyncShutdownNoHang",
    "TestShareGroupAutoAckOnPoll",
    "TestShareGroupCloseReleasesRecords",
    "TestShareGroupConcurrentFetchAndAck",
    "TestShareGroupDeleteGroups",
    "TestShareGroupDescribe",
    "TestShareGroupDescribeEmpty",
    "TestShareGroupMaxConcurrentFetches",
    "TestShareGroupOffsetsAdmin",
    "TestShareGroupOffsetsAdminNonEmpty",
    "TestShareGroupPollRecordsBuffering",
    "TestShareGroupReject",
    "TestShareGroupSessionEpoch",
    "TestShareGroupStandaloneAcknowledge",
]
LOCKS = ["TestShareGroupAckRenew", "TestShareGroupAcquisitionLockExpiry", "TestShareGroupRenewAck"]
SESSIONS = ["TestShareGroupSessionTimeout"]
TWICE = ["TestShareGroupMaxDeliveryCount"]
ALONE = ["TestShareHeartbeatAssignmentDelivery"]  # its topic has the name of another test's
BRIEF_LOCKS = {"group_share_record_lock_duration_ms": 1_000, "group_share_min_record_lock_duration_ms": 1_000}
BRIEF_SESSIONS = {
    "group_share_session_timeout_ms": 500,
    "group_share_min_session_timeout_ms": 500,
    "group_share_heartbeat_interval_ms": 100,
    "group_share_min_heartbeat_interval_ms": 100,
}
OF_KFAKE: dict[str, tuple[dict[str, int], list[str]]] = {
    "plain": ({}, PLAIN),
    "alone": ({}, ALONE),
    "brief locks": (BRIEF_LOCKS, LOCKS),
    "brief sessions": (BRIEF_LOCKS | BRIEF_SESSIONS, SESSIONS),  # there members that are removed give up what they hold
    "two deliveries": ({"group_share_delivery_count_limit": 2}, TWICE),
}
INJECTED = "kfake itself gives the answers that the client is to cope with"
LOOKS_INSIDE = "it looks into kfake, instead of asking"
MOVED = "a partition moves to another broker, and ours is one"
NOT_RUN = {
    "TestShareAssignedNewPartitionStaleMetadata": INJECTED,
    "TestShareAssignmentNegativePartitionNoPanic": INJECTED,
    "TestShareFetchLeaderMoveHintHeals": MOVED,
    "TestShareFetchLeaderMoveNoHintHeals": MOVED,
    "TestShareFetchPiggybackAckForgetNoLeak": INJECTED,
    "TestShareFetchTopLevelErrorBackoff": INJECTED,
    "TestShareFetchTransportErrorTriggersMetadata": INJECTED,
    "TestShareGroupAckDedupRenewThenTerminal": INJECTED,
    "TestShareGroupAckRequeue": INJECTED,
    "TestShareGroupClientRejoinAfterFence": LOOKS_INSIDE,
    "TestShareGroupFencedLeaderEpochMove": MOVED,
    "TestShareGroupFetchCascade": INJECTED,
    "TestShareGroupForgottenTopics": INJECTED,
    "TestShareGroupIDNotFoundRejoin": INJECTED,
    "TestShareGroupInvalidShareSessionReset": INJECTED,
    "TestShareGroupInvalidShareSessionResetOnAck": INJECTED,
    "TestShareGroupLeaderMoveInFlightAcks": MOVED,
    "TestShareGroupNonRetryableAckError": INJECTED,
    "TestShareGroupRebalanceOccurs": LOOKS_INSIDE,
    "TestShareGroupRecyclePoolAliasing": INJECTED,
    "TestShareGroupSubscriptionPurge": LOOKS_INSIDE,
    "TestShareGroupTypeExclusive": LOOKS_INSIDE,
}


@contextmanager
def served(**settings: int) -> Iterator[str]:
    with ServedBroker(group_initial_rebalance_delay_ms=0, **settings) as broker:
        yield f"127.0.0.1:{broker.port}"


def told(program: Path, *options: str, **environment: str) -> str:
    """Run a program of Go tests and return its output. If it was not built, skip the test."""
    if not program.exists():
        pytest.skip("NO TESTS OF FRANZ-GO: `make go-tests` builds them where Go is installed")
    command = [str(program), *options, f"-test.timeout={WITHIN_S}s"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=2 * WITHIN_S, check=False)
    return done.stdout + done.stderr


def outcomes(said: str) -> dict[str, str]:
    """Return PASS, FAIL or SKIP by the test's name, from the output of `go test -v`."""
    return {name: result for result, name in re.findall(r"^--- (PASS|FAIL|SKIP): (\S+)", said, re.MULTILINE)}


def one_of(names: list[str]) -> str:
    return f"-test.run=^({'|'.join(names)})$"


def test_franz_gos_tests_of_kgo_that_need_a_broker_pass_with_fencepost() -> None:
    with served() as at:
        environment = {"KGO_SEEDS": at, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "20000"}
        said = told(KGO, "-test.v", one_of(OF_KGO), **environment)
    assert outcomes(said) == dict.fromkeys(OF_KGO, "PASS"), said


@pytest.mark.parametrize("kind", OF_KFAKE)
def test_franz_gos_tests_of_kfake_pass_with_fencepost(kind: str) -> None:
    settings, names = OF_KFAKE[kind]
    with served(**settings) as at:
        said = told(KFAKE, "-test.v", one_of(names), BROKER=at)
    assert outcomes(said) == dict.fromkeys(names, "PASS"), said


def test_each_share_group_test_of_kfake_is_run_or_listed_as_not_run() -> None:
    there = {each for each in told(KFAKE, "-test.list=^TestShare").splitlines() if each.startswith("Test")}
    assert there == {*PLAIN, *LOCKS, *SESSIONS, *TWICE, *ALONE, *NOT_RUN}
