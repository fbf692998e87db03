"""A bug in one of many things is logged and counted, and the others are gone over; what concerns all is raised."""

import logging

import pytest
from fencepost.broker.bugs import contain_bugs
from fencepost.broker.metrics import Metrics
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.storage.store import BrokerHalted


@pytest.fixture
def metrics():
    return Metrics()


def test_contain_bugs_swallows_logs_and_counts_an_exception_of_its_block(metrics, caplog):
    done = []
    for number in range(3):
        with contain_bugs(metrics, f"thing {number}"):
            assert number != 1, "a bug"
            done.append(number)
    assert done == [0, 2]
    assert [(each.levelno, each.message.split(" failed")[0]) for each in caplog.records] == [(logging.ERROR, "thing 1")]
    assert len(metrics.failures) == 1


@pytest.mark.parametrize("error", [BrokerHalted("halted"), OSError(5, "broken"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("more", [{}, {"besides": KafkaError}])
def test_contain_bugs_does_not_catch_halts_os_errors_and_keyboard_interrupts(metrics, error, more):
    with pytest.raises(type(error)), contain_bugs(metrics, "thing", **more):
        raise error
    assert not metrics.failures


def test_contain_bugs_does_not_catch_exception_types_passed_as_besides(metrics):
    refused = KafkaError(ErrorCode.POLICY_VIOLATION, "no")
    with pytest.raises(KafkaError) as raised, contain_bugs(metrics, "thing", besides=KafkaError):
        raise refused
    assert raised.value is refused
    assert not metrics.failures
    with contain_bugs(metrics, "thing"):
        raise refused
    assert len(metrics.failures) == 1
