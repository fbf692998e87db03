"""The S3 bucket in memory that benchmarks use: the broker's client understands its answers."""

import pytest
from fencepost.bench.peers.memory_s3 import BUCKET, MemoryS3
from fencepost.effects.objects import Exists, Missing
from fencepost.effects.objects.remote import RemoteObjects


@pytest.fixture
def bucket(monkeypatch, tmp_path):
    server = MemoryS3()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    yield RemoteObjects("s3", BUCKET, "prefix")
    server.close()


def test_the_bucket_in_memory_creates_reads_lists_and_deletes_objects(bucket):
    bucket.create("0/a", b"content")
    with pytest.raises(Exists):
        bucket.create("0/a", b"other")
    assert bucket.read("0/a", 1, 3) == b"ont"
    assert [found.name for found in bucket.list("0/")] == ["0/a"]
    bucket.delete("0/a")
    bucket.delete("0/a")  # deleting what does not exist is no error, as in S3
    assert bucket.list("0/") == []
    with pytest.raises(Missing):
        bucket.read("0/a")


@pytest.mark.parametrize(("error", "is_printed"), [(ConnectionResetError(), False), (ValueError("a bug"), True)])
def test_the_bucket_in_memory_prints_errors_of_requests_but_no_reset_connections(capsys, error, is_printed):
    server = MemoryS3()
    try:
        raise error
    except type(error):
        server._server.handle_error(None, ("127.0.0.1", 1))
    finally:
        server.close()
    assert ("a bug" in capsys.readouterr().err) is is_printed
