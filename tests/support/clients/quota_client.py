"""Requests about quotas, whose entities are written as `user=alice client-id=app` or `user=<default>`."""

from typing import Any

from fencepost.protocol.messages.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest

DEFAULT = "<default>"
_Asked = AlterClientQuotasRequest.Entry


def parts(text: str) -> list[tuple[str, str | None]]:
    split = [word.split("=", 1) for word in text.split()]
    return [(type_, None if name == DEFAULT else name) for type_, name in split]


def entry(text: str, **quotas: float | None) -> _Asked:
    """Return the alteration of one entity's quotas; a quota of None is removed."""
    ops = [
        _Asked.Op(key=key, value=0.0 if value is None else value, remove=value is None) for key, value in quotas.items()
    ]
    return _Asked(entity=[_Asked.Entity(entity_type=type_, entity_name=name) for type_, name in parts(text)], ops=ops)


def altering(*entries: _Asked, validate_only: bool = False) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)


def describing(*components: tuple[str, int, str | None], strict: bool = False) -> DescribeClientQuotasRequest:
    component = DescribeClientQuotasRequest.Component
    asked = [component(entity_type=type_, match_type=how, match=match) for type_, how, match in components]
    return DescribeClientQuotasRequest(components=asked, strict=strict)


def altered(broker: Any, *entries: _Asked) -> list[int]:
    """Alter quotas, and return the error code of each entity in the order of the answer."""
    return [each.error_code for each in broker.ask(altering(*entries)).entries]


def set_quota(broker: Any, text: str, **quotas: float | None) -> None:
    assert altered(broker, entry(text, **quotas)) == [0]


def described(broker: Any, *components: tuple[str, int, str | None], strict: bool = False) -> dict[str, Any]:
    """Return the quotas of each entity that matches."""
    answer = broker.ask(describing(*components, strict=strict))
    assert answer.error_code == 0, answer
    return {
        " ".join(f"{part.entity_type}={part.entity_name or DEFAULT}" for part in each.entity): {
            value.key: value.value for value in each.values
        }
        for each in answer.entries
    }
