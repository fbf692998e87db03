"""Ask a running Apache Kafka who may do what, and write its answers into kafka.txt: ../README.md, "Rights".

python -m rights.record settings            # lines for its server.properties, beside a listener SASL_PLAINTEXT
python -m rights.record HOST:PORT [ROW ...]
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

from oracle.wire import Connection

from .grants import SUPER, rules, user_of
from .rows import ROWS
from .share_rows import SHARE_ROWS
from .table import read, text_of
from .world import World

ANSWERS = Path(__file__).parent / "kafka.txt"
PASSWORD = "secret"  # of every user


def main() -> int:
    address, *names = sys.argv[1:]
    if address == "settings":
        print("\n".join(_settings()))
        return 0
    host, _, port = address.rpartition(":")
    users = rules()
    world = World(lambda what: _logged_in(host, int(port), user_of(what)), settles_within_s=0.3)
    world.prepare(users)
    answers = read(ANSWERS, users) if names else {}
    for row in [*ROWS, *SHARE_ROWS]:
        for version in row.versions if not names or row.name in names else ():
            key = f"{row.name} v{version}"
            answers[key] = {what: row.ask(world, what, version) for what in users}
            print(key, *sorted(set(answers[key].values())), sep="\n    ", flush=True)
    ANSWERS.write_text(text_of(answers))
    return 0


def _settings() -> list[str]:
    """Return the lines of Kafka's server.properties with which all users can log in and rules are enforced. Clients of
    any other listener are super users.
    """
    users = " ".join(f'user_{user_of(what)}="{PASSWORD}"' for what in rules())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return [
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        f"super.users=User:ANONYMOUS;User:{user_of(SUPER)}",
        "sasl.enabled.mechanisms=PLAIN",
        f"listener.name.sasl_plaintext.plain.sasl.jaas.config={module} required {users};",
        "unstable.api.versions.enable=true",
        "transaction.two.phase.commit.enable=true",
    ]


def _logged_in(host: str, port: int, user: str) -> Connection:
    """Connect, and log in by SASL PLAIN."""
    connection = Connection(host, port)
    _ask(connection, 17, 1, struct.pack(">h5s", 5, b"PLAIN"))
    token = f"\0{user}\0{PASSWORD}".encode()
    answer = _ask(connection, 36, 0, struct.pack(">i", len(token)) + token)
    assert answer[:2] == b"\0\0", answer
    return connection


def _ask(connection: Connection, key: int, version: int, body: bytes) -> bytes:
    request = struct.pack(">hhih", key, version, 0, -1) + body
    connection.send(struct.pack(">i", len(request)) + request)
    answer = connection.receive()
    assert answer is not None
    return answer[4:]


if __name__ == "__main__":
    sys.exit(main())
