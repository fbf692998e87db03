"""Decision 17: a time in the Python interface is a number of milliseconds, and its name ends in `_ms`."""

import dataclasses
import inspect
import re
from collections.abc import Iterator

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.client import settings, values
from fencepost.client.admin import values as admin_values
from fencepost.spark.sessions import session
from fencepost.testing.marker import Wishes

import fencepost as fp
from fencepost import sync, testing

TIME = re.compile(
    r"(^|_)(timeouts?|waits?|intervals?|delays?|linger|ages?|backoff|deadline|duration|expiry|lifetime|period|timestamps?"
    r"|patience|since|until|within|seconds?|secs?|s|minutes?|hours?|ms|us|ns)($|_)"
)
TEXTS = {"transaction_timeout"}  # of the test's marker: "5s", with its unit
NO_TIME = {"wait", "timestamp_type", "log_message_timestamp_type", "log_index_interval_bytes", "store_puts_per_second"}
KAFKAS = {
    "offsets_retention_minutes",
    "quota_window_size_seconds",
    "controller_quota_window_size_seconds",
    "sasl_oauthbearer_clock_skew_seconds",
}
OF_TESTS = {"Broker.advance", "ObservedBroker.advance", "BrokerTime.advance", "Faults.delay"}
"""Beside asyncio.sleep, and called as that is."""


def public() -> Iterator[tuple[str, str]]:
    """(what, the name of a parameter or of a field) of all that users import, of its methods and of their values."""
    found = [getattr(space, name) for space in (fp, sync, testing) for name in space.__all__]
    for module in (settings, values, admin_values):
        found += [each for each in vars(module).values() if getattr(each, "__module__", "") == module.__name__]
    for each in [*found, BrokerSettings, session]:
        if inspect.isclass(each):
            names = [name for name in dir(each) if not name.startswith("_")]
            yield from ((each.__name__, name) for name in _parameters(each))
            yield from ((each.__name__, field.name) for field in _fields(each))
            yield from ((each.__name__, name) for name in getattr(each, "__annotations__", {}))
            for name in names:
                yield from ((f"{each.__name__}.{name}", it) for it in _parameters(inspect.getattr_static(each, name)))
        elif callable(each):
            yield from ((each.__name__, name) for name in _parameters(each))


def _parameters(each):
    each = getattr(each, "__func__", each)
    try:
        return list(inspect.signature(each).parameters) if callable(each) else []
    except ValueError:  # of builtins
        return []


def _fields(each):
    return dataclasses.fields(each) if dataclasses.is_dataclass(each) else ()


def refused(what: str, name: str) -> bool:
    if not TIME.search(name) or name in TEXTS | NO_TIME | KAFKAS:
        return False
    return not (name.endswith("_ms") or (name == "seconds" and what in OF_TESTS))


def test_every_public_parameter_and_setting_for_a_time_is_named_with_ms():
    seen = list(public())
    assert len(seen) > 500, len(seen)
    assert {("Producer.close", "timeout_ms"), ("ProducerSettings", "linger_ms")} <= set(seen)
    assert not sorted(f"{what}({name})" for what, name in set(seen) if refused(what, name))


@pytest.mark.parametrize("name", ["timeout", "max_wait", "older_than_s", "timeout_s", "seconds", "linger", "delay_us"])
def test_a_public_parameter_for_a_time_must_have_a_name_that_ends_with_ms(name):
    assert refused("Consumer.close", name)


@pytest.mark.parametrize("limit", ["close", "assigned"])
@pytest.mark.parametrize("of", [fp.Consumer, sync.Consumer])
def test_public_calls_with_a_positional_time_or_timeout_keyword_raise_type_error(of, limit):
    signature = inspect.signature(getattr(of, limit))
    for given in ([5.0], {"timeout": 5.0}):
        with pytest.raises(TypeError):
            signature.bind(None, *given) if isinstance(given, list) else signature.bind(None, **given)


@pytest.mark.parametrize("text", [5, 5.0, "5"])
def test_a_markers_transaction_timeout_without_a_unit_raises_usage_error(text):
    with pytest.raises(pytest.UsageError, match="'5s' or '500ms', not"):
        assert Wishes(transaction_timeout=text).transaction_timeout_ms
