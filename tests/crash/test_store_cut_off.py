"""Real brokers on one S3 server: the owner alone is cut off from it, and comes back later; clients just go on."""

import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import confluent_kafka
import pytest
from broker_process import BrokerProcess
from fencepost.bench.peers.memory_s3 import BUCKET, MemoryS3
from losing_proxy import LosingProxy
from store_brokers import TAKEN_OVER, numbers, wait_for_name

QUICK = ("-X", "store.heartbeat.ms=150", "-X", "store.puts.per.second=1000")
# Nobody may take over before the network is cut, though the machine is busy.
OWNERS, STANDBYS = ("-X", "store.lease.ms=600", *QUICK), ("-X", "store.lease.ms=3000", *QUICK)
SENT = 20  # records before the network is cut, and after
URL = f"s3://{BUCKET}/journal"


@pytest.fixture
def s3(monkeypatch, tmp_path) -> Iterator[MemoryS3]:
    server = MemoryS3()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    yield server
    server.close()


@pytest.fixture
def network(s3) -> Iterator[LosingProxy]:
    """The owner's way to the store."""
    port = urlsplit(s3.endpoint).port
    assert port is not None
    with LosingProxy(port, 0.0, seed=0) as proxy:
        yield proxy


@pytest.mark.slow
@pytest.mark.parametrize("is_silent", [False, pytest.param(True, marks=pytest.mark.long)], ids=["refused", "silent"])
def test_a_producer_continues_at_the_standby_if_the_owner_is_cut_off_from_the_store(
    s3, network, is_silent, monkeypatch, tmp_path
):
    owner = BrokerProcess(str(tmp_path / "owner"), "--store", URL, *OWNERS)
    standby = BrokerProcess(str(tmp_path / "standby"), "--store", URL, "--standby", "-X", "node.id=2", *STANDBYS)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{network.port}")
    owner.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    starting = threading.Thread(target=standby.start)
    starting.start()
    failed: list[str] = []
    acked: list[int] = []

    def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            failed.append(str(error))
        else:
            acked.append(int(message.value()))

    both = f"{owner.bootstrap},{standby.bootstrap}"
    producer = confluent_kafka.Producer({"bootstrap.servers": both, "enable.idempotence": True, "log_level": 0})
    try:
        for number in range(SENT):
            producer.produce("t", b"%d" % number, partition=0, on_delivery=delivered)
        assert producer.flush(60) == 0
        wait_for_name(standby, owner)
        network.cut(is_silent=is_silent)
        for number in range(SENT, 2 * SENT):
            producer.produce("t", b"%d" % number, partition=0, on_delivery=delivered)
        assert producer.flush(60) == 0
        starting.join()
        assert not failed
        assert acked == list(range(2 * SENT))
        assert numbers(standby) == acked
        network.mend()
        assert owner.ended() == TAKEN_OVER
    finally:
        owner.kill()
        starting.join()
        standby.kill()
