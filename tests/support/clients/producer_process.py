"""A producer of kafka-python in a process of its own, which is killed with whatever hangs in it.

Its calls may never return, and a thread that is left behind reconnects for as long as its process lives: the tests that
come after it would meet the connections.
"""

import contextlib
import multiprocessing
from multiprocessing.connection import Connection
from typing import Any

from library_producers import KafkaPython

_PROCESSES = multiprocessing.get_context("spawn")  # a fork would take the threads' locks along
CLOSES_S = 5


class KafkaPythonProcess:
    """The methods of a LibraryProducer. Each raises what KafkaPython raises."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._calls, theirs = _PROCESSES.Pipe()
        self._process = _PROCESSES.Process(target=_serve, args=(theirs, bootstrap, transactional_id), daemon=True)
        self._process.start()
        theirs.close()

    def _call(self, name: str, *arguments: Any) -> None:
        """Make this call in the process. Raises EOFError if the process is killed meanwhile."""
        self._calls.send((name, arguments))
        raised = self._calls.recv()
        if raised is not None:
            raise raised

    def init(self) -> None:
        self._call("init")

    def begin(self) -> None:
        self._call("begin")

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._call("send", topic, value, partition)

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        self._call("send_offset", group, topic, offset)

    def commit(self) -> None:
        self._call("commit")

    def abort(self) -> None:
        self._call("abort")

    def close(self) -> None:
        """Let the process end; it is killed if something hangs in it. A call that hangs raises EOFError then."""
        with contextlib.suppress(OSError):  # the process has ended by itself
            self._calls.send(("close", ()))
        self._process.join(CLOSES_S)
        self._process.kill()
        self._process.join()
        self._process.close()


def _serve(calls: "Connection[Any, Any]", bootstrap: str, transactional_id: str) -> None:
    """Make the calls that come over the pipe until one of them is `close`, and send back what each raised, or None."""
    producer = KafkaPython(bootstrap, transactional_id)
    while True:
        name, arguments = calls.recv()
        try:
            getattr(producer, name)(*arguments)
        except Exception as error:
            calls.send(error)
        else:
            calls.send(None)
        if name == "close":
            return
