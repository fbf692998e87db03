"""Spark's own cluster on this machine: a master, and workers that call themselves by different hosts.

Spark starts a second copy of a task on another host only, and all of local[…] and local-cluster[…] is one host.
"""

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

HOSTS = ("127.0.0.1", "localhost")
START_S = 60


@contextlib.contextmanager
def spark_cluster(folder: Path) -> Iterator[str]:
    """Run a Spark cluster: a master, and workers with one core on each of two hosts. Yields the master's URL.

    folder: for their logs and files.
    """
    running: list[subprocess.Popen[bytes]] = []
    try:
        log = _started(running, folder / "master", "master.Master", "--host", HOSTS[0], "--port", "0")
        url = _said(log, r"Starting Spark master at (spark://\S+)")
        for number, host in enumerate(HOSTS):
            words = ["--host", host, "--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}")]
            log = _started(running, folder / f"worker-{number}", "worker.Worker", *words, url)
            _said(log, "successfully registered with master")
        yield url
    finally:
        for each in reversed(running):
            each.terminate()
        for each in reversed(running):
            each.wait(START_S)


def _started(running: list["subprocess.Popen[bytes]"], log: Path, name: str, *words: str) -> Path:
    import pyspark
    from fencepost.spark.sessions import environment

    given = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": HOSTS[0], "SPARK_NO_DAEMONIZE": "1"}
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with log.open("wb") as output:
        running.append(
            subprocess.Popen(
                [str(program), f"org.apache.spark.deploy.{name}", "--webui-port", "0", *words],
                stdout=output,
                stderr=output,
                env={**os.environ, **environment(), **given},
            )
        )
    return log


def _said(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if found := re.search(pattern, log.read_text(errors="replace"), re.IGNORECASE):
            return found[found.re.groups]
        time.sleep(0.1)
    raise TimeoutError(f"{log.name} never said {pattern}: {log.read_text(errors='replace')[-2000:]}")
