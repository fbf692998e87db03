"""JSON schemas of bodies and answers, and the check of a body against its schema. Pure.

The rule: bodies are flat objects of texts and numbers, or objects that contain such objects. So a dozen lines can check
them without a library. In answers every field is named, and further fields are allowed, as in Confluent's API.
"""

from typing import Any

from .problems import BAD_PARAMETER, Problem

_TYPES: dict[str, type] = {"string": str, "integer": int, "object": dict, "boolean": bool}

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
FLAG = {"type": "boolean"}
TEXT_OR_NULL = {"type": ["string", "null"]}
NUMBER_OR_NULL = {"type": ["integer", "null"]}


def fields(properties: dict[str, Any], *, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the JSON schema of an object with these properties. All are required except the `optional` ones."""
    required = [each for each in properties if each not in optional]
    return {"type": "object", "properties": properties, "required": required}


def list_of(items: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of an array of these items."""
    return {"type": "array", "items": items}


def or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON schema that allows what this one allows, and null."""
    return {"anyOf": [schema, {"type": "null"}]}


def check_body(schema: dict[str, Any], value: Any, where: str = "the body") -> Any:
    """Return the value if the JSON schema allows it, otherwise raise Problem. where: names the value in the error
    message.
    """
    kind = _TYPES[schema["type"]]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Problem(BAD_PARAMETER, f"{where} must be of type {schema['type']}")
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        raise Problem(BAD_PARAMETER, f"{where} must be from {schema['minimum']} to {schema['maximum']}")
    if isinstance(value, str):
        if len(value) > schema.get("maxLength", len(value)) or len(value) < schema.get("minLength", 0):
            raise Problem(BAD_PARAMETER, f"{where} is too short or too long")
        if any("\ud800" <= each <= "\udfff" for each in value):
            raise Problem(BAD_PARAMETER, f"{where} is not Unicode text")
    if isinstance(value, dict):
        for name in schema["required"]:
            if name not in value:
                raise Problem(BAD_PARAMETER, f"{where} needs {name}")
        for name, part in value.items():
            if name not in schema["properties"]:
                raise Problem(BAD_PARAMETER, f"{where} has an unknown field {name[:50]!r}")
            check_body(schema["properties"][name], part, name)
    return value
