"""A simulated broker with rules of access, and one client of it that any user may use in turn."""

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from acl_client import ActingUser, creating, deleting
from fencepost.protocol.apis import APIS
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import read_request_header
from produce_requests import batch, code, create, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

T = TypeVar("T")


class Guarded:
    """A simulated broker with ACLs, a client whose user can be changed, and a list of its requests that reached a
    handler.
    """

    def __init__(self, broker: SimulatedBroker) -> None:
        self.broker = broker
        self.acting = ActingUser(broker.broker, "root")
        broker.ask(create("t", 2))
        self.handled: Counter[str] = Counter()
        dispatcher = broker.broker._serve.__self__  # type: ignore[attr-defined]
        generally = dispatcher._serve_generally

        def counted(connection: Any, frame: Any) -> None:
            self.handled[APIS[read_request_header(frame).api_key].name] += 1
            generally(connection, frame)

        dispatcher._serve_generally = counted
        self.client = SimulatedClient(broker)

    def have(self, *rules: str) -> None:
        self.as_user("root", lambda: self.broker.ask(creating(*rules)))

    def have_no_more(self, user: str) -> None:
        self.as_user("root", lambda: self.broker.ask(deleting({"principal_filter": f"User:{user}"})))

    def as_user(self, user: str, ask: Callable[[], T]) -> T:
        before, self.acting.user = self.acting.user, user
        try:
            return ask()
        finally:
            self.acting.user = before

    def write(self, user: str, *batches: bytes, topic: str = "t", **more: Any) -> ErrorCode:
        request = produce(topic, *(batches or [batch()]), **more)
        return code(self.as_user(user, lambda: self.client.ask(request, 11)))

    def written(self) -> int:
        return sum(part.log.end_offset for part in self.broker.broker.topics.by_name["t"].partitions)
