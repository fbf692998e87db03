"""The broker's own words in a response, which say more than an error code: which setting, which limit, what is full."""

from typing import Any

_ITEMS = 1_000  # of each list that are looked at


def words_of(response: Any, code: int) -> str:
    """The message beside this code in the response or in one of its items; "" if there is none."""
    if isinstance(response, list):
        items: list[Any] = response[:_ITEMS]
    else:
        if getattr(response, "error_code", None) == code and (words := getattr(response, "error_message", None)):
            return str(words)
        items = [getattr(response, name) for name in getattr(type(response), "__slots__", ())]
    return next((found for each in items if (found := words_of(each, code))), "")
