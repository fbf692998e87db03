"""Generates the source of a decoder from a schema: one flat function for one class in one version.

The rule: fixed fields that follow each other are read by one `Struct`, lengths and counts of one byte with them; a
length that does not fit the rest is refused before anything is made of it. A string may be cut short by the end of the
frame: then the position is beyond the end, which the last line refuses (Python's slices never fail).
"""

import struct
from collections.abc import Callable, Generator
from typing import Any

from . import primitives
from .errors import MalformedFrame
from .schema import Array, Blob, Field, Fixed, Kind, Nested, Text, schema_of
from .source import Source

Decoder = Callable[[primitives.Readable, int], tuple[Any, int]]
DecoderInSteps = Callable[[memoryview, int], Generator[int, None, tuple[Any, int]]]

_SCOPE: dict[str, Any] = {
    "new": object.__new__,
    "rest": primitives.rest_of_uvarint,
    "rest_of_string": primitives.rest_of_string_length,
    "read_uvarint": primitives.read_uvarint,
    "skip_tags": primitives.skip_tags,
    "refuse_count": primitives.refuse_count,
    "refuse_length": primitives.refuse_length,
    "refuse_null": primitives.refuse_null,
    "refuse_tag": primitives.refuse_tag,
    "unpack_many": struct.unpack_from,
    "MalformedFrame": MalformedFrame,
    "DOES_NOT_PARSE": (IndexError, UnicodeDecodeError, struct.error),
}


def decoder_source(cls: type, version: int, flexible: bool) -> Source:
    """Return the source of a function decode(data, p), which returns an instance and the position after it.

    It has two versions: text is decoded from bytes in one way and from a view in another, which is slower but copies no
    large frame.
    """
    source = Source(_SCOPE)
    with source.block("def decode(data, p):"):
        with source.block("if type(data) is not bytes:"):
            source.line("return decode_view(data, p)")
        _function(source, cls, version, flexible, "{}.decode()")
    with source.block("def decode_view(data, p):"):
        _function(source, cls, version, flexible, "str({}, 'utf-8')")
    return source


def decoder_in_steps_source(cls: type, version: int, flexible: bool) -> Source:
    """Return the source of decode(data, p) for a view: a generator that yields how many list items it has decoded."""
    source = Source(_SCOPE)
    with source.block("def decode(data, p):"):
        _function(source, cls, version, flexible, "str({}, 'utf-8')", in_steps=True)
    return source


def _function(source: Source, cls: type, version: int, flexible: bool, text: str, *, in_steps: bool = False) -> None:
    """Generate the body of a decoding function. text: a format of the expression that decodes a string.

    in_steps: it is a generator that yields how many list items it has decoded.
    """
    with source.block("try:"):
        source.line("end = len(data)")
        if _has_records(cls, version):
            source.line("view = memoryview(data)")
        reader = _DecoderSource(source, version, flexible, text, in_steps)
        reader.message(cls, "it")
        reader.flush()
        if in_steps:
            source.line("yield 0")
    with source.block("except DOES_NOT_PARSE as error:"):
        source.line(f"raise MalformedFrame(f'{cls.__qualname__} v{version}: {{error}}') from error")
    with source.block("if p > end:"):
        source.line("refuse_length(p - end)")
    source.line("return it, p")


def _has_records(cls: type, version: int) -> bool:
    """Return whether the message has bytes in this version that are decoded as views, at any depth."""
    fields = (f for f in schema_of(cls).fields if version in f.versions)
    kinds = (f.kind.item if isinstance(f.kind, Array) else f.kind for f in fields)
    return any(isinstance(k, Blob) or (isinstance(k, Nested) and _has_records(k.cls, version)) for k in kinds)


def smallest(kind: Kind, version: int, flexible: bool) -> int:
    """Return the fewest bytes that a value of this kind takes, at least 1, by which counts of items are limited."""
    if isinstance(kind, Fixed):
        return kind.size_bytes
    if isinstance(kind, Nested):
        return max(1, smallest_of(kind.cls, version, flexible))
    return 1 if flexible else 2 if isinstance(kind, Text) else 4


def smallest_of(cls: type, version: int, flexible: bool) -> int:
    """Return the fewest bytes that an instance of this class takes."""
    present = [f for f in schema_of(cls).fields if version in f.versions and f.tag is None]
    sizes = (1 if _is_nullable_struct(f, version) else smallest(f.kind, version, flexible) for f in present)
    return sum(sizes) + (1 if flexible else 0)


def _is_nullable_struct(f: Field, version: int) -> bool:
    return isinstance(f.kind, Nested) and version in f.nullable


class _DecoderSource:
    """Generates the lines of source that decode one message."""

    def __init__(self, source: Source, version: int, flexible: bool, text: str, in_steps: bool) -> None:
        """text: a format of the expression that decodes a string. in_steps: the function is a generator."""
        self._source = source
        self._decoded = text.format("data[p:after]")
        self._version = version
        self._flexible = flexible
        self._in_steps = in_steps
        self._run: list[tuple[str, int, str]] = []  # format, size in bytes, target

    # Fixed fields wait until something else comes, and are then read at once.

    def flush(self) -> None:
        """Generate the lines that read the fixed-size fields collected so far, in one unpack."""
        run, self._run = self._run, []
        if not run:
            return
        size = sum(width for _, width, _ in run)
        if [letter for letter, _, _ in run] == ["B"]:
            self._source.line(f"{run[0][2]} = data[p]")
        else:
            unpack = self._source.struct("".join(letter for letter, _, _ in run), "unpack_from")
            self._source.line(f"{', '.join(target for _, _, target in run)}, = {unpack}(data, p)")
        self._source.line(f"p += {size}")

    def _length(self, letter: str, rest: str = "rest") -> str:
        """Generate the read of a length or count, and return the name of the variable that gets it. In flexible
        versions the variable has the length plus one.

        letter: the struct format of the fixed-size length. rest: the function that reads a varint of more than one
        byte.
        """
        n = self._source.fresh("n")
        if not self._flexible:
            self._run.append((letter, struct.calcsize(f">{letter}"), n))
            self.flush()
            return n
        self._run.append(("B", 1, n))
        self.flush()
        with self._source.block(f"if {n} > 127:"):
            self._source.line(f"{n}, p = {rest}(data, p, {n})")
        return n

    # Classes.

    def message(self, cls: type, name: str) -> None:
        """Generate the lines that decode an instance of `cls` into the new variable `name`."""
        self._source.line(f"{name} = new({self._source.constant(cls, cls.__name__)})")
        fields = schema_of(cls).fields
        for f in fields:
            if self._version not in f.versions or f.tag is not None:
                self._absent(f, name)
            else:
                self.value(f.kind, f"{name}.{f.name}", self._version in f.nullable)
        if self._flexible:
            self._tags([f for f in fields if f.tag is not None and self._version in f.versions], name)

    def _absent(self, f: Field, name: str) -> None:
        """Generate the line that sets a field to its default: the version does not have it, or only with a tag."""
        if f.factory is list:
            self._source.line(f"{name}.{f.name} = []")
        else:
            call = "()" if f.factory else ""
            self._source.line(f"{name}.{f.name} = {self._source.constant(f.factory or f.default, 'default')}{call}")

    def _tags(self, known: list[Field], name: str) -> None:
        """Generate the read of the tagged fields, which end every struct of a flexible version. known: the fields with
        a tag.
        """
        n = self._source.fresh("n")
        self._run.append(("B", 1, n))
        self.flush()
        with self._source.block(f"if {n}:"):
            if known:
                self._known_tags(sorted(known, key=lambda f: f.tag or 0), name, n)
            else:
                self._source.line(f"p = skip_tags(data, p, {n})")

    def _known_tags(self, known: list[Field], name: str, n: str) -> None:
        """Generate the loop that reads tagged fields. Unknown tags are skipped. n: the variable with their number."""
        source, tag, size, after = self._source, *(self._source.fresh(word) for word in ("tag", "size", "after"))
        with source.block(f"if {n} > {primitives.MAX_TAGS} or {n} * 2 > end - p:"):
            source.line(f"refuse_count({n})")
        with source.block(f"while {n}:"):
            source.line(f"{n} -= 1")
            source.line(f"{tag}, p = read_uvarint(data, p)")
            source.line(f"{size}, p = read_uvarint(data, p)")
            source.line(f"{after} = p + {size}")
            for f in known:
                with source.block(f"{'if' if f is known[0] else 'elif'} {tag} == {f.tag}:"):
                    self.value(f.kind, f"{name}.{f.name}", self._version in f.nullable)
                    self.flush()
                    with source.block(f"if p != {after}:"):
                        source.line(f"refuse_tag({tag}, {size})")
            source.line(f"p = {after}")

    # Values.

    def value(self, kind: Kind, target: str, nullable: bool) -> None:
        """Generate the read of one value of this kind into the expression `target`."""
        match kind:
            case Fixed():
                self._run.append((kind.format, kind.size_bytes, target))
            case Text():
                self._text(target, nullable)
            case Blob():
                self._blob(kind, target, nullable)
            case Array():
                self._array(kind.item, target, nullable)
            case Nested():
                self._read_nested(kind.cls, target, nullable)

    def _read_nested(self, cls: type, target: str, nullable: bool) -> None:
        """Generate the read of a nested struct into `target`; a nullable one has a byte before it, -1 for null."""
        name = self._source.fresh("it")
        if not nullable:
            self.message(cls, name)
            self.flush()
            self._source.line(f"{target} = {name}")
            return
        present = self._source.fresh("n")
        self._run.append(("b", 1, present))
        self.flush()
        with self._source.block(f"if {present} < 0:"):
            self._source.line(f"{target} = None")
        with self._source.block("else:"):
            self.message(cls, name)
            self.flush()
            self._source.line(f"{target} = {name}")

    def _read_sized(self, letter: str, target: str, nullable: bool, rest: str, read: Callable[[], None]) -> None:
        """Generate the read of a length, then the lines that read the value, which `read` generates. In these, the
        variable `after` has the position after the value.

        letter, rest: as in _length().
        """
        source, n = self._source, self._length(letter, rest)
        null = "not " + n if self._flexible else f"{n} == -1"
        with source.block(f"if {null}:"):
            source.line(f"{target} = None" if nullable else f"refuse_null({target.split('.')[-1]!r})")
        with source.block("else:"):
            if not self._flexible:
                with source.block(f"if {n} < 0:"):
                    source.line(f"refuse_length({n})")
            source.line(f"after = p + {n}{' - 1' if self._flexible else ''}")
            read()
            source.line("p = after")

    def _text(self, target: str, nullable: bool) -> None:
        """Generate the read of a string into `target`."""

        def read() -> None:
            self._source.line(f"{target} = {self._decoded}")

        self._read_sized("h", target, nullable, "rest_of_string", read)

    def _blob(self, kind: Blob, target: str, nullable: bool) -> None:
        """Generate the read of bytes into `target`, as bytes, a view, or a list of views."""
        made = {
            "bytes": "bytes(data[p:after])",
            "view": "view[p:after]",
            "slices": "[view[p:after]] if after > p else []",
        }

        def read() -> None:
            with self._source.block("if after > end:"):
                self._source.line("refuse_length(after - p)")
            self._source.line(f"{target} = {made[kind.of]}")

        self._read_sized("i", target, nullable, "rest", read)

    def _array(self, item: Kind, target: str, nullable: bool) -> None:
        """Generate the read of an array into `target`: a count, then the items."""
        source, n = self._source, self._length("i")
        if not nullable:
            self._items(item, target, n)
            return
        with source.block(f"if {f'not {n}' if self._flexible else f'{n} == -1'}:"):
            source.line(f"{target} = None")
        with source.block("else:"):
            self._items(item, target, n)

    def _items(self, item: Kind, target: str, n: str) -> None:
        """Generate the read of an array's items into `target`. n: the variable with their count."""
        source, size = self._source, smallest(item, self._version, self._flexible)
        if self._flexible:
            source.line(f"{n} -= 1")
        with source.block(f"if not 0 <= {n} * {size} <= end - p:" if size > 1 else f"if not 0 <= {n} <= end - p:"):
            source.line(f"refuse_count({n})")
        if isinstance(item, Fixed):
            source.line(f"{target} = list(unpack_many(f'>{{{n}}}{item.format}', data, p))")
            source.line(f"p += {f'{n} * {size}' if size > 1 else n}")
            if self._in_steps:
                source.line(f"yield {n}")
            return
        items = source.fresh("items")
        source.line(f"{target} = {items} = []")
        with source.block(f"while {n}:"):  # most arrays have one item, for which a range takes longer
            source.line(f"{n} -= 1")
            one = source.fresh("it")
            if isinstance(item, Nested):
                self.message(item.cls, one)
            else:
                self.value(item, one, False)
            self.flush()
            source.line(f"{items}.append({one})")
            if self._in_steps:
                source.line("yield 1")
