"""Types of the lines of `caproot call`, made from the JSON Schemas of the program as `caproot/_line_types.py`."""

from __future__ import annotations

import json
import re
import subprocess
import textwrap
from pathlib import Path
from typing import Any

HEAD = '''"""Lines of `caproot call`. Made from their schemas when the package is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union

if TYPE_CHECKING:
    from typing_extensions import NotRequired
'''
SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def make_types(program: str | Path) -> str:
    """Returns the module with the types of the answers and events of a program."""
    done = subprocess.run([program, "call", "--schema"], capture_output=True, text=True, check=True)
    schemas = json.loads(done.stdout)
    definitions = {**schemas["event"]["$defs"], **schemas["answer"]["$defs"]}
    # The methods of a session have these types.
    del definitions["ResultsByMethod"]

    parts = [HEAD]
    for name, schema in definitions.items():
        variants = schema.get("oneOf", [])
        if not variants:
            parts.append(render_dict(name, schema))
        elif "const" in variants[0]:
            parts.append(render_names(name, schema))
        else:
            parts.append(render_union(name, schema))
    for event in schemas["event"]["oneOf"]:
        tag = event["properties"].pop("event")["const"]
        event["required"].remove("event")
        parts.append(render_dict(f"{tag[0].upper()}{tag[1:]}Event", event))
    return "\n\n".join(parts)


def render_dict(name: str, schema: dict[str, Any]) -> str:
    """Returns the class of an object. Its required fields come first, in their order in Rust."""
    required = schema["required"]
    lines = [f"class {name}(TypedDict):", *docstring(schema)]
    for field in [*required, *(field for field in schema["properties"] if field not in required)]:
        inner = schema["properties"][field]
        # The program leaves a field out instead of `null`.
        text = type_of(inner) if field in required else f"NotRequired[{type_of(inner).removesuffix(' | None')}]"
        lines += [f"    {field}: {text}", *docstring(inner)]
    return "\n".join(lines) + "\n"


def render_names(name: str, schema: dict[str, Any]) -> str:
    """Returns the alias of an enum of names."""
    names = ", ".join(json.dumps(variant["const"]) for variant in schema["oneOf"])
    items = [f"- `{variant['const']}`: {' '.join(variant['description'].split())}" for variant in schema["oneOf"]]
    text = "\n".join([schema["description"], "", *items])
    return "\n".join([f"{name} = Literal[{names}]", *docstring({"description": text}, "")]) + "\n"


def render_union(name: str, schema: dict[str, Any]) -> str:
    """Returns the classes of an enum with fields, and their alias."""
    classes = {}
    for variant in schema["oneOf"]:
        (tag,) = [field["const"] for field in variant["properties"].values() if "const" in field]
        own = f"{tag.capitalize()}{name}"
        classes[own] = render_dict(own, variant)
    alias = [f"{name} = Union[{', '.join(classes)}]", *docstring(schema, "")]
    return "\n\n".join([*classes.values(), "\n".join(alias) + "\n"])


def docstring(schema: dict[str, Any], indent: str = "    ") -> list[str]:
    """Returns the lines of a description."""
    # Links of Rust become names.
    text = re.sub(r"\[(`\w+`)\](?![(:])", r"\1", schema.get("description", ""))
    return [textwrap.indent(f'"""{text}"""', indent)] if text else []


def type_of(schema: dict[str, Any]) -> str:
    """Returns the annotation of a value."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(type_of(option) for option in schema["anyOf"])
    if "const" in schema:
        return f"Literal[{json.dumps(schema['const'])}]"
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(type_of({**schema, "type": option}) for option in kind)
    if kind == "array":
        return f"list[{type_of(schema['items'])}]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"dict[str, {type_of(values) if isinstance(values, dict) else 'Any'}]"
    return SIMPLE.get(kind or "", "Any")
