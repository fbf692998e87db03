"""The exit code, cause and hint of a `fencepost serve` whose file system fails while it stops."""

import errno
import signal
import sys
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from fencepost.protocol.messages.cluster import MetadataRequest
from long_runs import first_only
from wire_client import WireClient

PROGRAM = Path(__file__).parents[2] / "support" / "brokers" / "gone_file_system_serve.py"
MAY_NOT_CALL = "pwrite"  # a stop calls it only if it writes a segment past the page cache


@pytest.mark.slow
@pytest.mark.parametrize("number", first_only([errno.EIO, errno.EROFS]))
@pytest.mark.parametrize("step", ["all", "fdatasync", "fsync", "replace", "ftruncate", "close", MAY_NOT_CALL])
def test_serve_prints_cause_and_hint_and_exits_if_its_file_system_is_gone(
    tmp_path: Path, step: str, number: int
) -> None:
    broker = BrokerProcess(str(tmp_path / "d"), program=(sys.executable, str(PROGRAM), step, str(number)))
    broker.start()
    with WireClient("127.0.0.1", broker.port) as client:
        client.call(MetadataRequest(topics=[MetadataRequest.Topic(name="t")]))
    assert broker.process is not None
    broker.process.send_signal(signal.SIGUSR1)
    broker.process.terminate()
    code = broker.ended()
    if step == MAY_NOT_CALL and code == 0:
        assert not any("Traceback" in line for line in broker.lines)
        return
    assert code == 70, broker.lines
    cause, hint = broker.lines[-2:]
    assert cause.startswith(f"error: the broker halted: [Errno {number}]")
    assert hint.startswith("hint: nothing was acknowledged since")
