"""The machine and the versions of a run, which readers need to judge its numbers."""

import os
import platform
import subprocess
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

KEYS = ("time", "cpu", "cores", "memory_gb", "kernel", "file_system", "python", "clients", "peers", "commit")
CLIENTS = ("confluent-kafka", "aiokafka", "kafka-python", "uvloop")
UNKNOWN = "unknown"


def facts(directory: Path | None = None, peers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what a result file says about machine and versions: a value for each of KEYS. directory: of the brokers'
    data. peers: versions by name, besides that of fencepost.
    """
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": _cpu(),
        "cores": _cores(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "file_system": file_system(directory or Path.cwd(), _text("/proc/self/mountinfo")),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "clients": _clients(),
        "peers": {"fencepost": _version("fencepost") or UNKNOWN, **(peers or {})},
        "commit": _commit(Path(__file__).resolve().parent),
    }


def file_system(directory: Path, mountinfo: str) -> str:
    """Return the type of the file system that has the directory. mountinfo: the text of /proc/self/mountinfo."""
    found = {}
    for line in mountinfo.splitlines():
        mounted, _, kind = line.partition(" - ")
        point = Path(mounted.split()[4].encode().decode("unicode_escape"))
        if directory.resolve().is_relative_to(point):
            found[len(point.parts)] = kind.split()[0]  # a later mount on the same point hides the earlier one
    return found[max(found)] if found else UNKNOWN


def _cpu() -> str:
    """Return the model of the processor."""
    for line in _text("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.processor() or UNKNOWN


def _cores() -> int:
    """Return how many processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _clients() -> dict[str, str]:
    """Return the versions of the client libraries that are installed, by name."""
    found = {name: version for name in CLIENTS if (version := _version(name))}
    if "confluent-kafka" in found:
        from confluent_kafka import libversion

        found["librdkafka"] = str(libversion()[0])
    return found


def _commit(directory: Path) -> str:
    """Return the commit of the source tree that was measured, with a + if it had changes; UNKNOWN for an installed
    package.
    """
    if not _output("git", "-C", str(directory), "ls-files", Path(__file__).name):
        return UNKNOWN  # the directory is in the source tree of another project, if in any
    commit = _output("git", "-C", str(directory), "rev-parse", "--short=12", "HEAD")
    changed = _output("git", "-C", str(directory), "status", "--porcelain", "--untracked-files=no")
    return f"{commit}{'+' if changed else ''}" if commit else UNKNOWN


def _version(distribution: str) -> str | None:
    """Return the version of an installed distribution; None if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _text(path: str) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _output(*command: str) -> str:
    """Return the output of a command; empty if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
