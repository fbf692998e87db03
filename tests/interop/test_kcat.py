"""kcat, as Debian has it (librdkafka 2.0): produce, consume, list; it must not be talked out of compressing."""

import json
import shutil
import subprocess

import pytest
from long_runs import first_only

KCAT = shutil.which("kcat") or shutil.which("kafkacat")

# Where kcat is not installed, the same library speaks through confluent-kafka's tests; this file is for the old one.
pytestmark = pytest.mark.skipif(KCAT is None, reason="kcat is not installed: `apt-get install kcat` to run this")


def kcat(broker, *words, stdin=None):
    command = [KCAT, "-b", broker.bootstrap, "-q", *words]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("codec", first_only(["zstd", "none", "gzip", "snappy", "lz4"]))
def test_kcat_reads_back_the_lines_it_produced(broker, codec):
    lines = [f"line {n} " + "x" * 100 for n in range(200)]
    kcat(broker, "-P", "-t", f"kc-{codec}", "-z", codec, stdin="\n".join(lines) + "\n")
    assert kcat(broker, "-C", "-t", f"kc-{codec}", "-o", "beginning", "-e").splitlines() == lines
    assert kcat(broker, "-C", "-t", f"kc-{codec}", "-o", "-1", "-e").splitlines() == lines[-1:]


def test_kcats_metadata_lists_the_broker_and_its_topics(broker):
    kcat(broker, "-P", "-t", "kc-meta", stdin="x\n")
    seen = json.loads(kcat(broker, "-L", "-J"))
    assert seen["brokers"][0]["name"] == broker.bootstrap
    assert "kc-meta" in {topic["topic"] for topic in seen["topics"]}


def test_kcat_looks_up_an_offset_by_timestamp(broker):
    kcat(broker, "-P", "-t", "kc-time", stdin="x\n")
    assert kcat(broker, "-Q", "-t", "kc-time:0:1").strip().endswith("offset 0")
