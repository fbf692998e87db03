"""The broker's own words in a response, which say more than an error code: which setting, which limit, what is full."""

from typing import Any

_ITEMS = 1_000  # of each list that are looked at


def words_of(response: Any, code: int) -> str:
    """Return the broker's message beside this error code, in the response or in one of its items; "" if there
    is none.
    """
    if getattr(response, "error_code", None) == code and (words := getattr(response, "error_message", None)):
        return str(words)
    return next((found for each in _items_of(response) if (found := words_of(each, code))), "")


def _items_of(response: Any) -> list[Any]:
    """Return the items of a list, the first ones of a long one, or the values of a struct's fields."""
    if response.__class__ is list:
        return list(response[:_ITEMS])
    return [getattr(response, name) for name in getattr(response, "__slots__", ())]
