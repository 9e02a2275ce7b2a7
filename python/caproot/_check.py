"""Checks of arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ._lines import JsonText, check_depth, encode


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


def span(seconds: float) -> str:
    """Returns a duration as the program reads it. A duration that is not valid stays so, for its message."""
    milliseconds = seconds * 1000
    is_whole = 0 < milliseconds < 1e12
    return f"{max(round(milliseconds), 1)}ms" if is_whole else f"{seconds:g} s"


def to_json(name: str, value: object) -> str:
    """Returns the JSON of an argument."""
    try:
        return _encode_mappings(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} cannot be written as JSON: {error}") from error


def arguments_json(arguments: Mapping[str, object] | str | None) -> JsonText:
    """Returns the arguments of a tool. A text that is no JSON is an invalid argument."""
    if arguments is None:
        return JsonText("{}")
    if isinstance(arguments, str):
        # Some models send no text for no arguments.
        if not arguments.strip():
            return JsonText("{}")
        try:
            # The text may have several lines.
            text = encode(json.loads(arguments))
        except (ValueError, RecursionError):
            return _quoted(arguments)
    else:
        check_type("arguments", arguments, Mapping, str, type(None))
        text = to_json("arguments", arguments)
    try:
        # The line is one level deeper.
        check_depth(f"[{text}]")
        text.encode()
    except (ValueError, RecursionError):
        return _quoted(text)
    return JsonText(text)


def _quoted(text: str) -> JsonText:
    """Returns a text as JSON, with `?` in place of a surrogate, which no JSON of the program has."""
    return JsonText(encode(text.encode(errors="replace").decode()))


def _to_plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} is no JSON")


_encode_mappings = json.JSONEncoder(allow_nan=False, ensure_ascii=False, default=_to_plain).encode
