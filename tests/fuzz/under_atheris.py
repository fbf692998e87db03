"""One target under atheris: `python tests/fuzz/under_atheris.py TARGET CORPUS… -max_total_time=60`.

Everything of fencepost is compiled with its coverage instructions, generated codecs too. libFuzzer ends the process: a
failure writes the input to the file that -artifact_prefix begins.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), *map(str, (TESTS / "support").glob("**/"))]


def main() -> None:
    name, *arguments = sys.argv[1:]
    with atheris.instrument_imports(include=["fencepost"], enable_loader_override=False):
        from fuzz.table import TARGETS
    _instrument_generated_code()
    target = TARGETS[name]
    atheris.Setup([sys.argv[0], *arguments], target.look)
    atheris.Fuzz()


def _instrument_generated_code() -> None:
    from fencepost.protocol.source import Source

    compiled = Source.compiled

    def instrumented(self: Source, function: str, title: str) -> Callable[..., Any]:
        made = compiled(self, function, title)
        if title.startswith("decoder of"):  # compiling takes 15 ms, and the other codecs run the same branches
            atheris.instrument_func(made)
        return made

    Source.compiled = instrumented  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
