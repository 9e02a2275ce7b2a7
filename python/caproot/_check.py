"""Checks of arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def check_type(name: str, value: object, *types: type) -> None:
    """Raises `TypeError` with the name of the argument unless the value has one of the types."""
    # A bool is an int, and never meant as a number here.
    if isinstance(value, types) and not (isinstance(value, bool) and bool not in types):
        return
    expected = " or ".join("None" if kind is type(None) else kind.__name__ for kind in types)
    raise TypeError(f"{name} must be {expected}, not {type(value).__name__}")


def check_budget(budget: object) -> None:
    """Raises an error unless the value is a number of bytes."""
    check_type("budget", budget, int)
    if isinstance(budget, int) and budget < 0:
        raise ValueError(f"budget must not be negative, and is {budget}")


def check_strings(name: str, value: object) -> list[str]:
    """Returns a list of strings. A single string is no list."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise TypeError(f"{name} must be an iterable of str, not {type(value).__name__}")
    strings = list(value)
    for item in strings:
        check_type(f"an element of {name}", item, str)
    return strings


def to_json(name: str, value: object) -> str:
    """Returns the JSON of an argument."""
    import json

    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, default=_to_plain)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} cannot be written as JSON: {error}") from error


def arguments_text(arguments: Mapping[str, object] | str | None) -> str:
    """Returns the arguments of a tool as the JSON that the session reads."""
    if arguments is None:
        return "{}"
    if isinstance(arguments, str):
        # Some models send no text for no arguments.
        return arguments if arguments.strip() else "{}"
    check_type("arguments", arguments, Mapping, str, type(None))
    return to_json("arguments", arguments)


def _to_plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} is no JSON")
