"""The PySpark connector: a source with an isolation level, a sink that writes exactly once, and a Java to run them.

The rule: importing this package imports neither pyspark nor pyarrow; using a name that needs them does.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .format import FencepostDataSource as FencepostDataSource
    from .sessions import session as session

_FROM = {"FencepostDataSource": "format", "session": "sessions"}

__all__ = ["FencepostDataSource", "session"]


def __getattr__(name: str) -> object:
    """Import a public name on its first use. An import that fails says which package to install."""
    module = _FROM.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = import_module(f".{module}", __name__)
    except ImportError as problem:
        from .requirements import with_remedy

        raise with_remedy(problem) from None
    return getattr(found, name)
