"""The compared servers: where their files are, when Apache Kafka is reported absent, and that they start and stop."""

import os
import signal
import tempfile
from pathlib import Path

import pytest
from fencepost.bench import accounting, topics
from fencepost.bench.peers import apache, names, peers
from process_ends import gone

ABSENT = apache.absence()


def test_the_java_version_is_read_from_old_and_new_version_formats():
    assert apache.java_version('openjdk version "17.0.15" 2025-04-15') == 17
    assert apache.java_version('java version "1.8.0_202"') == 8
    assert apache.java_version('openjdk version "25-ea"') == 25
    assert apache.java_version("java: command not found") is None


def test_kafka_is_reported_absent_on_a_machine_without_java(monkeypatch, capsys):
    monkeypatch.setattr(apache.shutil, "which", lambda name: None)
    assert apache.absence() == "no JDK ≥ 17"
    with peers.start(names.KAFKA) as peer:
        assert peer is None
    assert "Apache Kafka is absent: no JDK ≥ 17" in capsys.readouterr().err


def test_kafka_without_maven_is_absent_until_its_jars_are_in_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(apache.shutil, "which", lambda name: None if name == "mvn" else "/usr/bin/true")
    monkeypatch.setattr(apache, "java_version", lambda reported: 21)
    assert apache.absence() == "no Maven"
    jars = tmp_path / "fencepost" / f"kafka-{apache.VERSION}"
    jars.mkdir(parents=True)
    (jars / f"kafka_2.13-{apache.VERSION}.jar").touch()
    assert apache.absence() is None


def test_absence_of_kafka_names_the_version_of_a_java_that_is_too_old(monkeypatch):
    monkeypatch.setattr(apache.shutil, "which", lambda name: "/usr/bin/true")
    monkeypatch.setattr(apache, "java_version", lambda reported: 11)
    assert apache.absence() == "no JDK ≥ 17 (found 11)"


def test_the_version_of_kafka_is_that_of_the_pom():
    pom = (Path(apache.__file__).parent / "kafka" / "pom.xml").read_text()
    assert f"<version>{apache.VERSION}</version>" in pom


def test_jars_that_maven_has_fetched_are_found_again_without_maven(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def maven(command, **options):
        folder = Path(next(word.split("=")[1] for word in command if word.startswith("-DoutputDirectory=")))
        folder.mkdir()
        (folder / f"kafka_2.13-{apache.VERSION}.jar").touch()
        return apache.subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(apache.subprocess, "run", maven)
    found = apache.jars()
    assert found is not None
    assert list(found.iterdir())
    monkeypatch.setattr(apache.subprocess, "run", None)  # Maven is not run again
    assert apache.jars() == found
    assert "resolving Apache Kafka" in capsys.readouterr().err
    assert [path.name for path in found.parent.iterdir()] == [found.name]


def test_a_failed_download_of_the_jars_returns_none_and_leaves_no_files(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    failed = apache.subprocess.CompletedProcess([], 1, "", "no net")
    monkeypatch.setattr(apache.subprocess, "run", lambda command, **options: failed)
    assert apache.jars() is None
    assert "no net" in capsys.readouterr().err
    assert not list((tmp_path / "fencepost").iterdir())


def test_bench_root_in_a_tmpfs_is_refused_and_the_file_system_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "file_system", lambda path, mounts: "tmpfs")
    with pytest.raises(peers.NoFiles, match="tmpfs"), peers.bench_root(str(tmp_path)):
        pass


def test_bench_root_in_a_tmpfs_does_not_create_its_directory(monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "file_system", lambda path, mounts: "tmpfs")
    with pytest.raises(peers.NoFiles), peers.bench_root(str(tmp_path / "new")):
        pass
    assert not list(tmp_path.iterdir())


def test_servers_of_another_user_reach_their_data_below_the_bench_root(tmp_path):
    """PostgreSQL refuses to be run by root, so the bench starts it as nobody."""
    with peers.bench_root(str(tmp_path)) as root:
        assert root.stat().st_mode & 0o777 == 0o711


def test_bench_root_removes_directories_it_created_unless_they_hold_other_files(monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "file_system", lambda path, mounts: "ext4")
    with peers.bench_root(str(tmp_path / "a" / "b c")) as root:
        assert root.is_dir()
    assert not list(tmp_path.iterdir())
    with peers.bench_root(str(tmp_path / "a")), peers.bench_root(str(tmp_path / "a")):
        pass
    assert not list(tmp_path.iterdir())
    with peers.bench_root(str(tmp_path / "a" / "b")):
        (tmp_path / "a" / "of another").touch()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["of another"]


def test_a_broker_that_does_not_start_is_reported_with_its_reason():
    reported = "did not become ready: error: Invalid value sometimes"
    with pytest.raises(RuntimeError, match=reported), peers.fencepost("sometimes"):
        pass


def test_nothing_is_printed_of_a_broker_that_runs_until_the_blocks_end(capfd):
    with peers.fencepost("os"):
        pass
    assert capfd.readouterr().err == ""


def test_the_output_of_a_broker_that_ends_within_the_block_is_printed(capfd):
    with peers.fencepost("os") as peer:
        os.kill(peer.pid, signal.SIGTERM)
        assert gone(peer.pid)
    assert "stopping" in capfd.readouterr().err


def test_a_mock_cluster_that_does_not_start_is_reported(monkeypatch):
    monkeypatch.setattr(peers, "_MOCK", "import nothing_of_this_name")
    with pytest.raises(RuntimeError, match="confluent-kafka"), peers.start(names.MOCK):
        pass


def test_the_floor_peer_is_reported_absent_without_a_c_compiler(monkeypatch, capsys):
    monkeypatch.setattr(peers.shutil, "which", lambda name: None)
    with peers.start(names.FLOOR) as peer:
        assert peer is None
    assert "no C compiler" in capsys.readouterr().err


def test_bench_root_holds_the_files_of_all_its_servers_and_is_removed_at_the_end(monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "file_system", lambda path, mounts: "ext4")
    before = tempfile.tempdir
    with peers.bench_root(str(tmp_path)) as root, peers.start(names.OS) as peer:
        assert root.parent == tmp_path
        assert peer is not None
        assert Path(peer.directory).parent == root
        assert any(Path(peer.directory).iterdir())
        assert peer.ready_s > 0
    assert tempfile.tempdir == before
    assert not list(tmp_path.iterdir())


def test_an_unknown_server_name_is_refused():
    with pytest.raises(ValueError, match="nobody"), peers.start("nobody"):
        pass


def test_topic_names_can_be_listed_on_the_mock_and_on_a_broker():
    with peers.start(names.MOCK) as mock, peers.start(names.FSYNC) as broker:
        assert mock is not None
        assert broker is not None
        assert broker.durable
        assert not mock.durable
        for peer in (mock, broker):
            assert topics.names(peer.host, peer.port) == set()
            topics.create(peer.host, peer.port, "one", 2)
            assert topics.names(peer.host, peer.port) == {"one"}


@pytest.mark.long
@pytest.mark.skipif(ABSENT is not None, reason=f"NOT TESTED, Apache Kafka as a peer: {ABSENT}")
@pytest.mark.parametrize("name", [names.KAFKA, names.KAFKA_FLUSH])
def test_a_kafka_peer_starts_creates_topics_and_stops(name, monkeypatch, tmp_path):
    with peers.start(name) as peer:
        if peer is None:
            pytest.skip("NOT TESTED, Apache Kafka as a peer: Maven could not resolve it")
        assert (peer.name, peer.is_jvm, peer.durable) == (name, True, name == names.KAFKA_FLUSH)
        topics.create(peer.host, peer.port, "one", 2)
        assert topics.names(peer.host, peer.port) == {"one"}
        topics.delete(peer.host, peer.port, "one")
        assert topics.names(peer.host, peer.port) == set()
        assert accounting.usage(peer.pid).rss_bytes > 100e6
    assert not Path(peer.directory).exists()
