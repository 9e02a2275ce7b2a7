"""Lines of JSON for the program."""

from __future__ import annotations

import json
from typing import Any

encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode
"""Function that writes a value as JSON. `json.dumps` with options makes an encoder for each call."""
MAX_DEPTH = 120
"""Limit of nested JSON in a line. The program cannot read deeper lines."""


class JsonText(str):
    """JSON of the last field of a line, in one line itself."""


def write_value(value: object) -> JsonText:
    """Returns the last field of a line. Raises `ValueError` or `TypeError` if the program could not read the line."""
    text = encode(value)
    # The line is one level deeper.
    check_depth(f"[{text}]")
    # Not every text is UTF-8.
    text.encode()
    return JsonText(text)


def write_line(message: dict[str, Any], last: tuple[str, JsonText] | None = None) -> bytes:
    """Returns the line of a message. Raises `ValueError` if the program could not read the line."""
    text = encode(message)
    check_depth(text)
    if last is not None:
        name, value = last
        text = f'{text[:-1]}, "{name}": {value}}}'
    return text.encode() + b"\n"


def check_depth(text: str) -> None:
    """Raises `ValueError` if a JSON is nested too deeply."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth, level = 0, [json.loads(text)]
    while level:
        inner: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        depth, level = depth + 1, inner
    if depth > MAX_DEPTH:
        raise ValueError(f"the JSON is nested deeper than {MAX_DEPTH} levels")
