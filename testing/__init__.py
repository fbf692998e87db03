"""A broker for tests: the pytest plugin, faults, a clock, assertions. Built on the embedded broker.

The rule: a name is imported when it is first used, because every pytest run in the environment loads the plugin.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .clock import BrokerTime as BrokerTime
    from .faults import Fault as Fault
    from .faults import Faults as Faults
    from .observing import TransactionSeen as TransactionSeen
    from .served import ExternalBroker as ExternalBroker
    from .served import ObservedBroker as ObservedBroker

_FROM = {
    "BrokerTime": "clock",
    "ExternalBroker": "served",
    "Fault": "faults",
    "Faults": "faults",
    "ObservedBroker": "served",
    "TransactionSeen": "observing",
}

__all__ = sorted(_FROM)


def __getattr__(name: str) -> object:
    """Import a public name on its first use."""
    module = _FROM.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{module}", __name__), name)
