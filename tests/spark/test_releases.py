"""The wheel, found by Spark itself, on each release of Spark that is supported.

A release that cannot be installed for this Python is skipped, with a message.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import installed
import pytest
import spark_copies
from fencepost.spark.sessions import environment

RELEASES = ("", "4.1", "4.2")  # "": what this Python has
RECORDS, PER_BATCH, MORE = 2_000, 700, 100
TIMEOUT_S = 600
SUPPORT = Path(spark_copies.__file__).parent

pytestmark = [pytest.mark.jvm, pytest.mark.long]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return installed.wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def python(request, wheel, tmp_path):
    """The Python of a new environment with the wheel and the release of Spark in `param` (empty: one that pip
    chooses).
    """
    folder = tmp_path / "venv"
    spark = [f"pyspark=={request.param}.*"] if request.param else []
    try:
        yield installed.environment(folder, *spark, wheel)
    except subprocess.CalledProcessError as problem:
        if not request.param:
            raise
        output = [line for line in problem.stderr.splitlines() if line.strip()]
        pytest.skip(f"Spark {request.param} is NOT TESTED, as it could not be installed: {' '.join(output[-2:])}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(("python", "release"), [(each, each) for each in RELEASES], indirect=["python"])
def test_spark_finds_the_wheel_reads_a_batch_and_copies_exactly_once(spark_broker, python, release, tmp_path):
    place = spark_copies.filled(spark_broker.bootstrap, f"release-{release}", tmp_path, RECORDS, PER_BATCH)
    given = {**os.environ, **environment(), "PYSPARK_PYTHON": str(python), "PYTHONPATH": str(SUPPORT)}
    at = [place.servers, place.source, place.target, place.checkpoint, str(place.per_batch)]
    words = [python, SUPPORT / "spark_smoke.py", *at]
    with spark_copies.watched(spark_broker.bootstrap, place) as seen:
        first = ran(words, cwd=tmp_path, env=given)
        spark_copies.put(spark_broker.bootstrap, place.source, [b"more %d" % i for i in range(MORE)])
        again = ran(words, cwd=tmp_path, env=given)
    found = spark_copies.outcome(spark_broker.bootstrap, place, seen)
    print(f"\n  Spark {first['spark']}: {found}", end="")
    assert first["spark"].startswith(release)
    assert (first["rows"], again["rows"]) == (RECORDS, RECORDS + MORE)
    assert found.exact, found
    assert found.records == RECORDS + MORE


def ran(words, **more):
    """Run a command, and return the last line of its output, decoded from JSON."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=TIMEOUT_S, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])
