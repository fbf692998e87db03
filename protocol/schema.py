"""How messages are declared: a class for each message, an annotated line for each field, with its versions.

The rule: a class contains what Kafka's message definition does and nothing else, so one class covers all versions of a
message. A field that a version does not carry holds its default there; therefore every field of some versions only has
one, and a field without a default must be given. Source: Kafka's message JSON (clients/src/main/resources).

    @request(api=26, versions="0-5", flexible="3+")
    class EndTxnRequest:
        transactional_id: String
        ...
        producer_id: Int64 = field("5+", default=-1)
        cursor: Cursor | None = field(nullable="0+")           # a struct that may be null: an int8 before it
        leader: Leader | None = field("10+", tag=0, default=None)   # a tagged struct: None means it was not sent
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import get_annotations
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, dataclass_transform, get_args, get_origin

from .primitives import ZERO_UUID, Buffer

T = TypeVar("T")
OWN_APIS_FROM = 20_000
"""From here on API keys are ours: not listed among Kafka's, found by the feature fencepost.version."""


class Missing:
    """Marks a field without a default: its value must be given."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing()


# What a field can be. ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fixed:
    """A value with a fixed size, by a format character of the struct module. zero: its default."""

    format: str
    size_bytes: int
    zero: Any


@dataclass(frozen=True, slots=True)
class Text:
    """A string: its length, then UTF-8."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes: their length, then the bytes. of: what they are decoded to: bytes, a view, or a list of views."""

    of: str
    secret: bool = False  # never shown in logs


@dataclass(frozen=True, slots=True)
class Nested:
    """A nested struct, encoded in place."""

    cls: type


@dataclass(frozen=True, slots=True)
class Array:
    """An array: a count, then that many items."""

    item: "Kind"


Kind: TypeAlias = Fixed | Text | Blob | Nested | Array

Int8 = Annotated[int, Fixed("b", 1, 0)]
Int16 = Annotated[int, Fixed("h", 2, 0)]
Int32 = Annotated[int, Fixed("i", 4, 0)]
Int64 = Annotated[int, Fixed("q", 8, 0)]
Uint16 = Annotated[int, Fixed("H", 2, 0)]
Uint32 = Annotated[int, Fixed("I", 4, 0)]
Boolean = Annotated[bool, Fixed("?", 1, False)]
Float64 = Annotated[float, Fixed("d", 8, 0.0)]
Uuid = Annotated[bytes, Fixed("16s", 16, ZERO_UUID)]
String = Annotated[str, Text()]
Bytes = Annotated[bytes, Blob("bytes")]
Secret = Annotated[bytes, Blob("bytes", secret=True)]
"""Bytes of which a repr shows only how many they are."""
Records = Annotated[memoryview, Blob("view")]
"""Record batches in one piece: decoded, a view of the frame, not a copy of it."""
RecordSlices = Annotated[Sequence[Buffer], Blob("slices")]
"""Record batches as they lie in memory: sent one after another and never joined; decoded, a list of one view."""


# Versions. -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, both ends included."""

    low: int
    high: int

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.low, self.high + 1))


ALL = Versions(0, 32767)
NONE = Versions(1, 0)


def versions_of(text: str) -> Versions:
    """Parse a range of versions, such as "3+", "0-12", "5" or "none"."""
    if text == "none":
        return NONE
    if text.endswith("+"):
        return Versions(int(text[:-1]), ALL.high)
    low, _, high = text.partition("-")
    return Versions(int(low), int(high or low))


# Fields. -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Field:
    """One field of one class, in all its versions."""

    name: str
    kind: Kind
    versions: Versions
    nullable: Versions
    tag: int | None
    default: Any
    factory: Callable[[], Any] | None

    @property
    def required(self) -> bool:
        return self.default is MISSING and self.factory is None

    def initial(self) -> Any:
        """Return the default value, which the field has if it is absent."""
        return self.factory() if self.factory else self.default


@dataclass(frozen=True, slots=True)
class _Declared:
    versions: Versions
    nullable: Versions | None
    tag: int | None
    default: Any
    factory: Callable[[], Any] | None


def field(
    versions: str = "0+",
    *,
    default: Any = MISSING,
    factory: Callable[[], Any] | None = None,
    nullable: str | None = None,
    tag: int | None = None,
) -> Any:
    """Declare a field of a message, after its annotation, if a plain default is not enough.

    versions: those that have the field. factory: makes the default. tag: it is a tagged field with this number.
    nullable: the versions in which it may be null; by default all if the annotation has `| None`.
    """
    return _Declared(versions_of(versions), versions_of(nullable) if nullable else None, tag, default, factory)


def _kind(annotation: Any) -> Kind:
    """Return the wire type that a field's annotation declares. Raises TypeError if it is none."""
    if get_origin(annotation) is list:
        return Array(_kind(get_args(annotation)[0]))
    if get_origin(annotation) is Annotated:
        kind: Kind = annotation.__metadata__[0]
        return kind
    if isinstance(annotation, type) and hasattr(annotation, "__schema__"):
        return Nested(annotation)
    raise TypeError(f"{annotation!r} is no type of the protocol")


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """Return the annotation without `| None`, and whether it had that. Raises TypeError for any other union."""
    if get_origin(annotation) not in (Union, UnionType):
        return annotation, False
    rest = [member for member in get_args(annotation) if member is not NoneType]
    if len(rest) != 1:
        raise TypeError(f"{annotation!r}: only `| None` can be joined to a type")
    return rest[0], True


def _field(name: str, annotation: Any, value: Any) -> Field:
    """Make the field that a line of a class declares. value: what is after the `=`. Raises TypeError if it is
    invalid.
    """
    declared = value if isinstance(value, _Declared) else _Declared(ALL, None, None, value, None)
    plain, optional = _without_none(annotation)
    kind = _kind(plain)
    absent = declared.tag is not None and isinstance(kind, Nested)  # None then means "not sent", never null
    nullable = declared.nullable or (ALL if optional and not absent else NONE)
    made = Field(name, kind, declared.versions, nullable, declared.tag, declared.default, declared.factory)
    if made.required and (made.tag is not None or made.versions != ALL):
        raise TypeError(f"{name}: a field that some versions do not carry needs a default")
    return made


# Classes. ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema of one message class. api: None if it is not a request or response. since: that of request()."""

    fields: tuple[Field, ...]
    versions: Versions = ALL
    flexible: Versions = NONE
    api: int | None = None
    answers: type | None = None
    serves: Versions = ALL
    listed_from: int = 0
    since: int = 0


def schema_of(cls: type) -> Schema:
    """Return the schema of a class made by `request`, `response` or `struct`."""
    schema: Schema = cls.__schema__  # type: ignore[attr-defined]
    return schema


def _build(cls: type[T], make: Callable[[tuple[Field, ...]], Schema]) -> type[T]:
    """Return a new class with the fields of `cls`: with slots, a keyword constructor, equality and repr.

    make: makes its schema from the fields.
    """
    given: dict[str, Any] = dict(vars(cls))
    annotations = get_annotations(cls)  # not in vars(cls) since Python 3.14, which makes them when they are asked for
    fields = tuple(_field(name, hint, given.pop(name, MISSING)) for name, hint in annotations.items())
    for name in ("__dict__", "__weakref__"):
        given.pop(name, None)
    given["__qualname__"] = cls.__qualname__
    given["__slots__"] = tuple(annotations)
    given["__schema__"] = make(fields)
    given["__init__"] = _constructor(cls.__qualname__, fields)
    given["__eq__"] = _equal
    given["__hash__"] = None
    given["__repr__"] = _repr
    given["__match_args__"] = ()
    made: type[T] = type(cls.__name__, cls.__bases__, given)
    return made


def _constructor(name: str, fields: tuple[Field, ...]) -> Any:
    """Return an `__init__` that takes exactly these fields, by keyword."""
    scope: dict[str, Any] = {"MISSING": MISSING}
    parameters, body = [], []
    for f in fields:
        scope[f"_{f.name}"] = f.factory or f.default
        parameters.append(f.name if f.required else f"{f.name}=MISSING" if f.factory else f"{f.name}=_{f.name}")
        value = f"_{f.name}() if {f.name} is MISSING else {f.name}" if f.factory else f.name
        body.append(f"    self.{f.name} = {value}\n")
    source = f"def __init__(self{', *, ' if fields else ''}{', '.join(parameters)}):\n{''.join(body) or '    pass'}"
    exec(source, scope)
    scope["__init__"].__qualname__ = f"{name}.__init__"
    return scope["__init__"]


def _equal(self: Any, other: object) -> Any:
    """Compare two messages: equal if they are of one class, and all fields are equal."""
    if type(other) is not type(self):
        return NotImplemented
    return all(getattr(self, f.name) == getattr(other, f.name) for f in schema_of(type(self)).fields)


def _repr(self: Any) -> str:
    """Return the message as text, with secret fields hidden."""
    fields = schema_of(type(self)).fields
    return f"{type(self).__qualname__}({', '.join(f'{f.name}={_show(self, f)}' for f in fields)})"


def _show(message: Any, of: Field) -> str:
    """Return a field's value for repr; of a secret one only its length."""
    value = getattr(message, of.name)
    return f"<{len(value)} bytes>" if isinstance(of.kind, Blob) and of.kind.secret else repr(value)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def request(
    *,
    api: int,
    versions: str,
    flexible: str,
    serves: str | None = None,
    listed_from: int | None = None,
    since: int = 0,
) -> Callable[[type[T]], type[T]]:
    """Declare a request: its API key, its versions, and those with the flexible encoding.

    serves: the versions that a broker answers, if not all. listed_from: the lowest one in the answer to ApiVersions.
    since: for an API of our own (then required; not allowed for Kafka's): the lowest version of the broker's feature
    fencepost.version with which the broker has this API.
    """
    if (api >= OWN_APIS_FROM) != (since > 0):
        raise TypeError(f"API {api}: since= belongs to keys from {OWN_APIS_FROM} on, and to each of them")
    declared, answered = versions_of(versions), versions_of(serves or versions)
    lowest = answered.low if listed_from is None else listed_from

    def made(fields: tuple[Field, ...]) -> Schema:
        return Schema(fields, declared, versions_of(flexible), api, serves=answered, listed_from=lowest, since=since)

    return lambda cls: _build(cls, made)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def response(*, to: type) -> Callable[[type[T]], type[T]]:
    """Declare the response to a request. It has the request's versions."""
    asked = schema_of(to)

    def made(fields: tuple[Field, ...]) -> Schema:
        return Schema(fields, asked.versions, asked.flexible, asked.api, answers=to)

    return lambda cls: _build(cls, made)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def struct(cls: type[T]) -> type[T]:
    """Declare a struct that is nested in messages. It has the versions of the message that contains it."""
    return _build(cls, Schema)
