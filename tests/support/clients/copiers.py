"""The programs that copy in a group, by library and group protocol: what starts each, or why its test is skipped.

All take BOOTSTRAP SOURCE TARGET GROUP NAME PER_TRANSACTION ABORTED and what COPIERS adds, say a line for every turn
(`committed N`, `aborted 0`, `idle`), and go on until they are killed. The programs of other languages are made by
`make java-clients` and `make go-clients`, which let the registries of those languages resolve the libraries.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from java_clients import OPTIONS, jars_or_skip

HERE = Path(__file__).resolve().parent
JAVA_SOURCE = HERE.parents[1] / "interop" / "java" / "Copier.java"
GO_PROGRAM = Path(sys.prefix) / "franz-go-copier"

COPIERS: dict[str, tuple[str, ...]] = {
    "librdkafka": ("group_copier.py", "classic"),
    "librdkafka, newer groups": ("group_copier.py", "consumer"),
    "sdk": ("sdk_copier.py",),
    "sdk with version 1": ("sdk_copier.py", "1"),
    "java": ("java", "classic"),
    "java, newer groups": ("java", "consumer"),
    "franz-go": ("franz-go", "classic"),
    "franz-go, newer groups": ("franz-go", "consumer"),
}
"""What starts each, and its last arguments."""


def program(kind: str, folder: Path) -> Sequence[str]:
    """Return the command that starts such a copier; its arguments are still to be added. folder: to compile into."""
    name = COPIERS[kind][0]
    if name == "java":
        jars = jars_or_skip()
        folder.mkdir(exist_ok=True)
        subprocess.run(["javac", "-cp", jars, "-d", str(folder), str(JAVA_SOURCE)], check=True)
        return ["java", *OPTIONS, "-cp", f"{folder}:{jars}", "Copier"]
    if name == "franz-go":
        if not GO_PROGRAM.exists():
            pytest.skip("NO FRANZ-GO: `make go-clients` builds its copier where Go is installed")
        return [str(GO_PROGRAM)]
    return [sys.executable, str(HERE / name)]
