"""Generates docs/sdk-reference.md from the SDK's settings, signatures and docstrings. A test compares the file with it.

Signatures are taken from the source, and the text of a method is its docstring, so each has one place to change.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from typing import Any

from .. import config_names, snapshots, values
from ..admin import security_values
from ..admin import values as admin_values
from ..admin.admin import Admin
from ..consumer.batches import Batch
from ..consumer.consumer import Consumer
from ..metrics.counters import ClientMetrics
from ..producer.delivery import Delivery
from ..producer.pool import ProducerPool
from ..producer.producer import Producer
from ..producer.transaction import Transaction
from ..security import Security
from ..settings import (
    SECURITY_KEYWORDS,
    ConnectionKeywords,
    ConnectionSettings,
    ConsumerKeywords,
    ConsumerSettings,
    ProducerKeywords,
    ProducerSettings,
    ShareConsumerKeywords,
    ShareConsumerSettings,
)
from ..share.consumer import ShareConsumer
from ..tracing.tracing import Tracing
from . import setting_docs

INTRODUCTION = """\
# Reference of the Python SDK

Generated from the code by `python -m fencepost.client.reference.page > docs/sdk-reference.md`. [The guide](sdk.md)
explains how to use the SDK; [migration](sdk-migration.md) lists the corresponding calls of other clients.

Every time is a number of milliseconds, and its name ends in `_ms`; sizes are bytes. The first column has a setting's
keyword of the client, the last one its names for `from_config`. `fencepost.sync` has Producer, ProducerPool, Consumer,
ShareConsumer and Admin with the same methods, which block instead of being awaited.
"""

SETTINGS: list[tuple[str, type[ConnectionSettings], type[Any], Mapping[str, str]]] = [
    ("Settings of every client", ConnectionSettings, ConnectionKeywords, setting_docs.CONNECTION),
    ("Settings of a producer", ProducerSettings, ProducerKeywords, setting_docs.PRODUCER),
    ("Settings of a consumer", ConsumerSettings, ConsumerKeywords, setting_docs.CONSUMER),
    ("Settings of a share consumer", ShareConsumerSettings, ShareConsumerKeywords, setting_docs.SHARE_CONSUMER),
]
CLASSES: list[tuple[type[Any], str]] = [
    (Producer, "`fp.Producer`"),
    (ProducerPool, "`fp.ProducerPool`"),
    (Transaction, "`fp.Transaction`, of `producer.transaction()` and `pool.transaction()`"),
    (Delivery, "`fp.Delivery`, of `send`"),
    (Consumer, "`fp.Consumer`"),
    (Batch, "`fp.Batch`, of `consumer.batches()`: a sequence of records"),
    (ShareConsumer, "`fp.ShareConsumer`"),
    (Admin, "`fp.Admin`"),
    (ClientMetrics, "`fp.ClientMetrics`, given to clients as `metrics=`"),
    (Tracing, "`fp.Tracing`, given to clients as `tracing=`"),
]
OF_THE_SDK_ALONE = {
    "ClientMetrics": {"watch_consumer", "watch_producer", "watch_share_consumer"},
    "Tracing": {"watch_producer", "consumer_spans"},
    "Admin": {"of"},
    "Batch": {"aborted", "claim", "committed", "committed_in", "count", "index", "outcome_unknown", "spans"},
    "Producer": {"stop"},  # aiokafka's name for close
    "ProducerPool": {"stop"},
    "Consumer": {"stop"},
    "ShareConsumer": {"stop", "taken_by_transaction"},
}
_NOT_SHOWN = {"self", "cls", "environment"}


def page() -> str:
    """Return the text of docs/sdk-reference.md: the whole file."""
    parts = [INTRODUCTION]
    for title, cls, keywords, texts in SETTINGS:
        parts.append(f"## {title}\n\n" + "\n".join(_setting_rows(cls, keywords, texts)) + "\n")
    for cls, title in CLASSES:
        parts.append(f"## {title}\n\n{_text(cls)}\n\n" + "\n".join(_member_rows(cls)) + "\n")
    parts.append("## Values\n\n" + "\n".join(_value_rows()) + "\n")
    return "\n".join(parts)


def _setting_rows(cls: type[ConnectionSettings], keywords: type[Any], texts: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the table of a client's settings. texts: what each does."""
    yield "| setting | type | default | what it does | in `from_config` |"
    yield "|---|---|---|---|---|"
    defaults = {one.name: one.default for one in (*fields(cls), *fields(Security))}
    for name, kind in _written_types(keywords).items():
        default = defaults[SECURITY_KEYWORDS.get(name, name)]
        shown = "" if default is None or default == "" else f"`{default!r}`".replace("'", '"')
        names = ", ".join(f"`{each}`" for each in config_names.names_of(name))
        yield f"| `{name}` | {_cell(kind)} | {shown} | {texts[name]} | {names} |"


def _written_types(keywords: type[Any]) -> dict[str, str]:
    """Return the type of each keyword, as written in the source."""
    (tree,) = ast.parse(inspect.getsource(keywords)).body
    assert isinstance(tree, ast.ClassDef)
    lines = [each for each in tree.body if isinstance(each, ast.AnnAssign)]
    return {ast.unparse(each.target): ast.unparse(each.annotation).strip("'") for each in lines}


def _member_rows(cls: type[Any]) -> Iterator[str]:
    """Yield the lines of the table of a class's public methods and properties."""
    yield "| | |"
    yield "|---|---|"
    left_out = OF_THE_SDK_ALONE.get(cls.__name__, set())
    for name in _names_in_source_order(cls):
        if name.startswith("_") or name in left_out:
            continue
        found: Any = inspect.getattr_static(cls, name)
        function: Any = getattr(found, "__func__", found)
        if isinstance(found, property):
            yield f"| `{name}` | {_cell(_text(found.fget))} |"
        elif isinstance(found, classmethod | staticmethod):
            yield _member_row(f"{cls.__name__}.{name}", function)
        elif inspect.isfunction(found):
            yield _member_row(f"{_how(found)}{name}", found)


def _member_row(name: str, function: Any) -> str:
    return f"| `{_cell(name + _signature(function))}` | {_cell(_text(function))} |"


def _value_rows() -> Iterator[str]:
    """Yield the lines of the table of value classes, with their fields."""
    yield "| | |"
    yield "|---|---|"
    for module in (values, admin_values, security_values, snapshots):
        for name, cls in vars(module).items():
            if inspect.isclass(cls) and cls.__module__ == module.__name__ and not name.startswith("_"):
                names = ", ".join(_field_names(cls))
                shown = f"{name}: {names}" if issubclass(cls, Enum) else f"{name}({names})"
                yield f"| `{shown}` | {_cell(_text(cls))} |"


def _field_names(cls: Any) -> Sequence[str]:
    """Return the fields of a NamedTuple or a dataclass; the members of an enumeration."""
    if issubclass(cls, Enum):
        return [each.name for each in cls]
    return getattr(cls, "_fields", None) or [one.name for one in fields(cls)]


def _names_in_source_order(cls: type[Any]) -> list[str]:
    """Return the names of a class in source order, its own before those of its bases."""
    return list(dict.fromkeys(name for each in cls.__mro__[:-1] for name in vars(each)))


def _how(function: Any) -> str:
    return "await " if inspect.iscoroutinefunction(function) else ""


def _signature(function: Any) -> str:
    """Return parameters and return type as text, as written in the source, without what the page does not show."""
    node = _definition(function)
    args = node.args
    for listed in (args.posonlyargs, args.args):
        listed[:] = [each for each in listed if each.arg not in _NOT_SHOWN]
    kept = [(each, default) for each, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    kept = [pair for pair in kept if pair[0].arg not in _NOT_SHOWN]
    args.kwonlyargs, args.kw_defaults = [each for each, _ in kept], [default for _, default in kept]
    returns = f" → {ast.unparse(node.returns)}" if node.returns is not None else ""
    return f"({ast.unparse(args)}){returns}".replace("'", "").removesuffix(" → None")


def _definition(function: Any) -> ast.FunctionDef | ast.AsyncFunctionDef:
    """Return the syntax tree of a function's definition."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return node


def _text(thing: Any) -> str:
    """Return the docstring of a class or function; "" if there is none, or only the signature that dataclass
    generates.
    """
    text = inspect.getdoc(thing) or ""
    return "" if text.startswith(f"{getattr(thing, '__name__', None)}(") else text  # generated by dataclass


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
