"""Lets a broker give arbitrary answers instead of processing requests; for answers that no correct broker gives."""

from collections.abc import Callable
from typing import Any

from fencepost.broker.broker import Serve
from fencepost.protocol.apis import APIS, decode_request, encode_response
from fencepost.protocol.headers import read_request_header


def answered(api: str, answer: Callable[[Any], Any], times: int = 1) -> Callable[[Serve], Serve]:
    """Return a function for broker.intercept: the first `times` requests of this API get what `answer` returns for
    them.
    """
    (key,) = [each.key for each in APIS.values() if each.name == api]
    left = [None] * times

    def intercept(serve: Serve) -> Serve:
        def served(connection: Any, frame: Any) -> None:
            header = read_request_header(frame)
            if header.api_key != key or not left:
                serve(connection, frame)
                return
            left.pop()
            request = decode_request(APIS[key], header.api_version, frame, header.position)
            reply = encode_response(APIS[key], header.api_version, header.correlation_id, answer(request))
            connection.reply(reply, 0)

        return served

    return intercept
