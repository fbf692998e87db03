"""A process that forks while it has a broker: the child holds none of the broker's sockets and locks."""

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.slow

BEGIN = """
    import os, signal, socket
    from fencepost.broker.embedded.broker import Broker

    def fork():
        '''A child that lives until it is ended, as those of multiprocessing do.'''
        child = os.fork()
        if child == 0:
            while True:
                signal.pause()
        return child

    def refuses(port):
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
        except ConnectionRefusedError:
            return True
        return False
"""


def run(script: str) -> list[str]:
    text = textwrap.dedent(BEGIN) + textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_kill_resets_connections_and_frees_the_port_while_a_forked_child_lives() -> None:
    script = """
        broker = Broker().start()
        client = socket.create_connection(("127.0.0.1", broker.port), 5)
        broker.inside(lambda inner: None)  # the connection is accepted before the fork
        child = fork()
        try:
            broker.kill()
            client.settimeout(10)
            try:
                print("ended" if client.recv(1) == b"" else "data")
            except ConnectionResetError:
                print("ended")
            print(refuses(broker.port))
            broker.restart()
            print(broker.running)
            broker.stop()
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    """
    assert run(script) == ["ended", "True", "True"]


def test_a_data_directory_is_unlocked_when_the_parent_died_and_a_forked_child_lives(tmp_path) -> None:
    script = f"""
        at, to = os.pipe()
        parent = os.fork()
        if parent == 0:
            broker = Broker({str(tmp_path)!r}).start()
            os.write(to, b"%d " % fork())
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(parent, 0)
        child = int(os.read(at, 32))
        try:
            with Broker({str(tmp_path)!r}) as successor:
                print(successor.running)
        finally:
            os.kill(child, signal.SIGKILL)
    """
    assert run(script) == ["True"]


def test_a_forked_child_that_uses_its_parents_broker_gets_an_error_at_once() -> None:
    script = """
        broker = Broker().start()
        child = os.fork()
        if child == 0:
            for call in (broker.kill, broker.restart, broker.pause, lambda: broker.advance(1), lambda: broker.disk):
                try:
                    call()
                except RuntimeError as error:
                    assert "process" in str(error), error
                else:
                    os._exit(1)
            broker.stop()
            with Broker() as own:
                os._exit(0 if own.running else 2)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), broker.running)
        broker.stop()
    """
    assert run(script) == ["0", "True"]
