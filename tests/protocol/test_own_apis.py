"""Our own APIs: their table in docs/apis.md, and the bytes there of those that look at the broker."""

import re
from pathlib import Path
from typing import Any

import pytest
from fencepost.protocol.apis import APIS, decode_request, encode_request, encode_response
from fencepost.protocol.schema import Array, Nested, schema_of
from own_apis import OWN_APIS

PAGE = (Path(__file__).parents[2] / "docs" / "apis.md").read_text()
BY_NAME = {api.name: api for api in APIS.values()}
HEADER = 4 + 4 + 1  # length, correlation id, tags


def documented(name: str) -> str:
    example = PAGE.split(f"**{name} request**", 1)[1].split("\n\n", 2)[1]
    return "".join(example.split())


def test_docs_apis_lists_each_api_of_our_own_with_its_first_fencepost_version() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\w+) \|", PAGE, re.MULTILINE)
    assert [(int(key), int(since), name) for key, since, name in rows] == [
        (api.key, api.since, api.name) for api in APIS.values() if api.since
    ]


@pytest.mark.parametrize("name", OWN_APIS)
def test_responses_of_our_own_apis_have_the_documented_bytes(name: str) -> None:
    frame = b"".join(encode_response(BY_NAME[name], 0, 9, OWN_APIS[name].response))
    assert frame[HEADER:].hex() == documented(name), "docs/apis.md, the indented lines below this API"


@pytest.mark.parametrize("name", OWN_APIS)
def test_the_example_response_of_each_api_of_our_own_has_no_empty_list(name: str) -> None:
    assert isinstance(OWN_APIS[name].response, BY_NAME[name].response)
    assert empty_lists(OWN_APIS[name].response) == []


def empty_lists(message: Any) -> list[str]:
    """Return the names of the empty lists in a message and in the entries of its lists."""
    found: list[str] = []
    for field in schema_of(type(message)).fields:
        if isinstance(field.kind, Array):
            value = getattr(message, field.name)
            found += [] if value else [field.name]
            if isinstance(field.kind.item, Nested):
                found += [name for item in value or () for name in empty_lists(item)]
    return found


@pytest.mark.parametrize("name", OWN_APIS)
def test_an_encoded_request_of_our_own_apis_decodes_to_an_equal_one(name: str) -> None:
    body = 4 + 2 + 2 + 4 + 2 + 1 + 1  # length, API key, version, correlation id, client id "c" with its length, tags
    api = BY_NAME[name]
    for request, written in OWN_APIS[name].requests:
        assert isinstance(request, api.request)
        frame = b"".join(encode_request(api, 0, 9, "c", request))
        assert frame[body:].hex() == written.replace(" ", "")
        assert decode_request(api, 0, frame[4:], body - 4) == request
