"""Generates the source of an encoder from a schema: one flat function for one class in one version.

The rule: small pieces are joined once, records never: they stand in the returned list as the buffers they are. Fixed
fields that follow each other are packed by one `Struct`, and a tagged section with nothing in it is a zero among them.
What a version does not carry is left out.
"""

import struct
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import starmap
from typing import Any, TypeVar

from . import primitives
from .schema import Array, Blob, Field, Fixed, Kind, Nested, Text, schema_of
from .source import Source

WRITTEN_A_STEP = 10  # instances and texts, in an encoder in steps: each yield takes half a microsecond
PARTS_JOINED = 1_000  # and more: joining all of a large answer at its end would take long
Encoder = Callable[[Any], list[primitives.Buffer]]
EncoderInSteps = Callable[[Any], Generator[int, None, list[primitives.Buffer]]]


T = TypeVar("T")


class Rows(list[tuple[Any, ...]]):
    """Array items whose fields all have a fixed size, as tuples: they take a fraction of the time of instances."""


class Lazy(list[T]):
    """An array of `count` items, each of which is made when it is encoded, so that only one is in memory at a time."""

    def __init__(self, count: int, entries: Iterable[T]) -> None:
        super().__init__()
        self._count = count
        self._entries = entries

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return iter(self._entries)


_SCOPE: dict[str, Any] = {
    "Rows": Rows,
    "starmap": starmap,
    "COMPACT_LENGTHS": primitives.UVARINTS[1:],  # a length is written as one more; 0 is null
    "uvarint": primitives.uvarint,
    "tagged_section": primitives.tagged_section,
    "pack_many": struct.pack,
}


def encoder_source(cls: type, version: int, flexible: bool, *, in_steps: bool = False) -> Source:
    """Return the source of a function encode(it), which returns buffers to be sent one after another.

    in_steps: it is a generator that yields now and then how many array items it has encoded since the last yield.
    """
    source = Source(_SCOPE)
    with source.block("def encode(it):"):
        source.line("buffers = []")
        source.line("parts = []")
        if in_steps:
            source.line("written = 0")
        writer = _EncoderSource(source, version, flexible, in_steps)
        writer.message(cls, "it")
        writer.flush()
        if in_steps:
            source.line("yield written")
        source.line("buffers.append(b''.join(parts))")
        source.line("return buffers")
    return source


class _EncoderSource:
    """Generates the lines of source that encode one message."""

    def __init__(self, source: Source, version: int, flexible: bool, in_steps: bool) -> None:
        self._source = source
        self._version = version
        self._flexible = flexible
        self._in_steps = in_steps
        self._run: list[tuple[str, str]] = []  # format, expression; "x" is a zero byte and has none

    def flush(self) -> None:
        """Generate the lines that encode the fixed-size fields collected so far, in one pack."""
        run, self._run = self._run, []
        if not run:
            return
        letters = "".join(letter for letter, _ in run)
        if set(letters) == {"x"}:
            self._source.line(f"parts.append({bytes(len(letters))!r})")
        else:
            pack = self._source.struct(letters, "pack")
            self._source.line(f"parts.append({pack}({', '.join(text for _, text in run if text)}))")

    def _length(self, letter: str, n: str) -> None:
        """Generate the lines that encode a length or count. n: its expression. letter: the struct format of the
        fixed-size form.
        """
        if not self._flexible:
            self._run.append((letter, n))
            self.flush()
            return
        self.flush()
        self._source.line(f"n = {n}")
        self._source.line("parts.append(COMPACT_LENGTHS[n] if n < 16383 else uvarint(n + 1))")

    def _null(self, letter: str) -> None:
        """Add the length that stands for null to the fixed fields that are packed next. letter: the struct format of
        the fixed-size form.
        """
        self._run.append(("x", "") if self._flexible else (letter, "-1"))

    # Classes.

    def message(self, cls: type, name: str) -> None:
        """Generate the lines that encode the fields of the instance in the variable `name`."""
        present = [f for f in schema_of(cls).fields if self._version in f.versions]
        for f in present:
            if f.tag is None:
                self.value(f.kind, f"{name}.{f.name}", self._version in f.nullable)
        if self._flexible:
            self._tags(sorted((f for f in present if f.tag is not None), key=lambda f: f.tag or 0), name)

    def _tags(self, known: list[Field], name: str) -> None:
        """Generate the lines that encode those tagged fields that differ from their defaults."""
        if not known:
            self._run.append(("x", ""))
            return
        self.flush()
        tests = [self._differs(f, f"{name}.{f.name}") for f in known]
        in_steps, self._in_steps = self._in_steps, False  # `parts` is another list here
        tags, outer = self._source.fresh("tags"), self._source.fresh("outer")
        with self._source.block(f"if {' or '.join(tests)}:"):
            self._source.line(f"{tags} = []")
            self._source.line(f"{outer} = parts")
            for f, test in zip(known, tests, strict=True):
                with self._source.block(f"if {test}:"):
                    self._source.line("parts = []")
                    self.value(f.kind, f"{name}.{f.name}", self._version in f.nullable)
                    self.flush()
                    self._source.line(f"{tags}.append(({f.tag}, b''.join(parts)))")
            self._source.line(f"parts = {outer}")
            self._source.line(f"parts.append(tagged_section({tags}))")
        with self._source.block("else:"):
            self._source.line("parts.append(b'\\x00')")
        self._in_steps = in_steps

    def _differs(self, f: Field, value: str) -> str:
        """Return an expression that tells whether a tagged field differs from its default, so that it is encoded."""
        if f.factory is list:
            return value
        default = f.initial()
        if default is None:
            return f"{value} is not None"
        return f"{value} != {self._source.constant(default, 'default')}"

    # Values.

    def value(self, kind: Kind, target: str, nullable: bool) -> None:
        """Generate the lines that encode the value of the expression `target`."""
        if isinstance(kind, Fixed):
            self._run.append((kind.format, target))
            return
        self.flush()
        value = self._source.fresh("v")
        self._source.line(f"{value} = {target}")
        if not nullable:
            self._content(kind, value)
            return
        with self._source.block(f"if {value} is None:"):
            self._null("b" if isinstance(kind, Nested) else "h" if isinstance(kind, Text) else "i")
            if self._flexible and isinstance(kind, Nested):
                self._run[-1] = ("b", "-1")
            self.flush()
        with self._source.block("else:"):
            if isinstance(kind, Nested):
                self._run.append(("b", "1"))
            self._content(kind, value)
            self.flush()

    def _content(self, kind: Kind, value: str) -> None:
        """Generate the lines that encode a value that is not null, in the variable `value`."""
        match kind:
            case Text():
                self._source.line(f"{value} = {value}.encode()")
                self._length("h", f"len({value})")
                self._source.line(f"parts.append({value})")
            case Blob():
                self._blob(kind, value)
            case Array():
                self._array(kind.item, value)
            case Nested():
                self.message(kind.cls, value)

    def _blob(self, kind: Blob, value: str) -> None:
        """Generate the lines that encode bytes. Records become buffers of their own, which are not copied."""
        source = self._source
        size = source.fresh("size")
        source.line(f"{size} = {f'sum(map(len, {value}))' if kind.of == 'slices' else f'len({value})'}")
        self._length("i", size)
        if kind.of == "bytes":
            source.line(f"parts.append({value})")
            return
        with source.block(f"if {size}:"):
            source.line("buffers.append(b''.join(parts))")
            source.line("parts.clear()")
            source.line(f"buffers += {value}" if kind.of == "slices" else f"buffers.append({value})")

    def _array(self, item: Kind, value: str) -> None:
        """Generate the lines that encode an array: its count, then its items. If the value is a Rows, each item is
        packed by one struct.
        """
        self._length("i", f"len({value})")
        if isinstance(item, Fixed):
            self._source.line(f"parts.append(pack_many(f'>{{len({value})}}{item.format}', *{value}))")
            return
        row = self._row(item.cls) if isinstance(item, Nested) else ""
        if not row:
            self._items(item, value)
            return
        with self._source.block(f"if {value}.__class__ is Rows:"):
            self._source.line(f"parts += starmap({self._source.struct(row, 'pack')}, {value})")
        with self._source.block("else:"):
            self._items(item, value)

    def _row(self, cls: type) -> str:
        """Return the struct format of an instance if all its fields have a fixed size; else ""."""
        present = [f for f in schema_of(cls).fields if self._version in f.versions]
        letters = [f.kind.format for f in present if isinstance(f.kind, Fixed) and f.tag is None]
        return "".join(letters) + "x" * self._flexible if letters and len(letters) == len(present) else ""

    def _items(self, item: Kind, value: str) -> None:
        """Generate the loop that encodes the items of an array; in steps, it yields after some of them."""
        one = self._source.fresh("it")
        with self._source.block(f"for {one} in {value}:"):
            if isinstance(item, Nested):
                self.message(item.cls, one)
            else:
                self._content(item, one)
            self.flush()
            if self._in_steps and isinstance(item, Nested | Text):
                self._source.line("written += 1")
                with self._source.block(f"if written == {WRITTEN_A_STEP}:"):
                    with self._source.block(f"if len(parts) > {PARTS_JOINED}:"):
                        self._source.line("buffers.append(b''.join(parts))")
                        self._source.line("parts.clear()")
                    self._source.line(f"yield {WRITTEN_A_STEP}")
                    self._source.line("written = 0")
