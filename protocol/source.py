"""The source of a generated function: its lines with their indentation, its constants, and its name in tracebacks.

The rule: what is generated can be read. The source is registered with `linecache`, so that a traceback, a debugger and
a profiler show it like any other.
"""

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from struct import Struct
from typing import Any


class Source:
    """The lines of a function that is being generated, and the constants that it refers to."""

    def __init__(self, scope: dict[str, Any]) -> None:
        self.scope = dict(scope)
        self._lines: list[str] = []
        self._depth = 0
        self._numbers = count(1)

    def line(self, text: str) -> None:
        """Add a line, with the present indentation."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add the line `head`, and indent the lines that are added within the block."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, prefix: str) -> str:
        """Return a new variable name that begins with `prefix`."""
        return f"{prefix}{next(self._numbers)}"

    def constant(self, value: Any, prefix: str) -> str:
        """Return an expression for a constant: its literal if that is possible, else the name of a variable with it."""
        if value is None or type(value) in (bool, int, str, bytes):
            return repr(value)
        for name, known in self.scope.items():
            if known is value:
                return name
        name = self.fresh(prefix)
        self.scope[name] = value
        return name

    def struct(self, format_: str, method: str) -> str:
        """Return the name of a variable with this method of the struct.Struct with this format."""
        name = f"{method}_{format_.replace('?', 'bool')}"
        if name not in self.scope:
            self.scope[name] = getattr(Struct(f">{format_}"), method)
        return name

    def compile(self, function: str, title: str) -> Callable[..., Any]:
        """Compile the lines, and return the function of this name. title: its name in tracebacks."""
        source = "\n".join(self._lines) + "\n"
        filename = f"<fencepost {title}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        exec(compile(source, filename, "exec"), self.scope)
        made: Callable[..., Any] = self.scope[function]
        return made
