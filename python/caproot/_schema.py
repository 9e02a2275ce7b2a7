"""Schemas of functions, by pydantic, and calls of functions with checked arguments."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from typing import Any

from ._errors import ConfigError

_SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Returns|Return|Yields|Raises|Example|Examples|Note|Notes):\s*$"
)
_ARGUMENT = re.compile(r"^(\*{0,2}\w+)\s*(?:\([^)]*\))?:\s*(.*)$")


class DescribedFunction:
    """Function with its description and its schema, as an asynchronous function of a mapping."""

    __slots__ = ("call", "description", "input_schema")

    def __init__(
        self,
        description: str,
        input_schema: Mapping[str, Any],
        call: Callable[[Any], Awaitable[Any]],
    ) -> None:
        self.description = description
        self.input_schema = input_schema
        self.call = call


def describe_function(
    function: Callable[..., Any],
    name: str,
    description: str | None,
    input_schema: Mapping[str, Any] | None,
) -> DescribedFunction:
    """Describes a function. Raises `ConfigError` if a part cannot be made of its signature."""
    text, argument_texts = _parse_docstring(inspect.getdoc(function) or "")
    invoke = _asynchronous(function)
    if input_schema is not None:

        async def call(arguments: dict[str, Any]) -> Any:
            return _to_plain(await invoke(arguments))

        return DescribedFunction(description or text, input_schema, call)

    try:
        import pydantic
    except ImportError:
        raise ConfigError(
            [f"the tool {name!r} needs input_schema=, or the package pydantic to make a schema of the signature"]
        ) from None
    model = _argument_model(pydantic, function, name, argument_texts)

    async def call_checked(arguments: dict[str, Any]) -> Any:
        from ._errors import ToolError

        try:
            checked = model.model_validate(arguments)
        except pydantic.ValidationError as error:
            raise ToolError(_validation_text(error)) from error
        values = {key: getattr(checked, key) for key in arguments}
        return _to_plain(await invoke(values))

    schema = _simplify(model.model_json_schema(mode="validation"))
    return DescribedFunction(description or text, schema, call_checked)


def _argument_model(
    pydantic: Any, function: Callable[..., Any], name: str, texts: dict[str, str]
) -> Any:
    """Returns the pydantic model of the arguments."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception as error:
        raise ConfigError([f"the type hints of the tool {name!r} cannot be read: {error}"]) from error
    fields: dict[str, Any] = {}
    mistakes = []
    for parameter in signature.parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            mistakes.append(
                f"the parameter {parameter.name!r} of the tool {name!r} has no name for a model: use "
                "plain parameters"
            )
        elif parameter.annotation is parameter.empty:
            mistakes.append(f"the parameter {parameter.name!r} of the tool {name!r} has no type hint")
        else:
            default = ... if parameter.default is parameter.empty else parameter.default
            field = pydantic.Field(default, description=texts.get(parameter.name))
            fields[parameter.name] = (parameter.annotation, field)
    if mistakes:
        raise ConfigError(mistakes)
    try:
        config = pydantic.ConfigDict(extra="forbid")
        return pydantic.create_model(name, __config__=config, **fields)
    except Exception as error:
        # Below Python 3.12, pydantic refuses `typing.TypedDict`, and says to use typing_extensions.
        raise ConfigError([f"the signature of the tool {name!r} makes no schema: {error}"]) from error


def _asynchronous(function: Callable[..., Any]) -> Callable[[dict[str, Any]], Awaitable[Any]]:
    """Returns a function that awaits a coroutine, and runs another function in a thread."""
    target = function if inspect.isroutine(function) else getattr(function, "__call__", function)
    if inspect.iscoroutinefunction(target):
        return lambda arguments: function(**arguments)

    async def run(arguments: dict[str, Any]) -> Any:
        context = copy_context()
        work = functools.partial(context.run, function, **arguments)
        result = await asyncio.get_running_loop().run_in_executor(None, work)
        return await result if inspect.isawaitable(result) else result

    return run


def _to_plain(value: object) -> Any:
    """Returns a result as JSON."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    try:
        import pydantic_core
    except ImportError:
        return value
    return pydantic_core.to_jsonable_python(value)


def _validation_text(error: Any) -> str:
    parts = []
    for problem in error.errors(include_url=False, include_input=False, include_context=False)[:4]:
        place = ".".join(str(part) for part in problem["loc"])
        parts.append(f"{place}: {problem['msg']}")
    return "the arguments are not valid: " + "; ".join(parts)


def _simplify(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns a schema with its references in place and without titles, as not every platform knows
    references. A type that contains itself keeps its reference."""
    definitions = schema.pop("$defs", {})
    kept: dict[str, Any] = {}

    def inline(node: Any, active: tuple[str, ...], is_properties: bool = False) -> Any:
        if isinstance(node, list):
            return [inline(item, active) for item in node]
        if not isinstance(node, dict):
            return node
        reference = node.get("$ref")
        if not is_properties and isinstance(reference, str):
            key = reference.rpartition("/")[2]
            if _is_recursive(key, definitions):
                if key not in kept:
                    kept[key] = None
                    kept[key] = inline(definitions[key], (*active, key))
                return node
            rest = {name: value for name, value in node.items() if name != "$ref"}
            return {**inline(definitions[key], (*active, key)), **inline(rest, active)}
        return {
            name: inline(value, active, name in ("properties", "$defs") and not is_properties)
            for name, value in node.items()
            if is_properties or name not in ("title", "discriminator")
        }

    simple: dict[str, Any] = inline(schema, ())
    if kept:
        simple["$defs"] = kept
    return simple


def _is_recursive(key: str, definitions: dict[str, Any]) -> bool:
    seen: set[str] = set()
    open_keys = list(_references(definitions.get(key)))
    while open_keys:
        other = open_keys.pop()
        if other == key:
            return True
        if other not in seen:
            seen.add(other)
            open_keys.extend(_references(definitions.get(other)))
    return False


def _references(node: Any) -> list[str]:
    if isinstance(node, list):
        return [key for item in node for key in _references(item)]
    if not isinstance(node, dict):
        return []
    own = [node["$ref"].rpartition("/")[2]] if isinstance(node.get("$ref"), str) else []
    return own + [key for value in node.values() for key in _references(value)]


def _parse_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Returns the text before the first section of a docstring in Google's style, and the texts of the
    arguments."""
    head: list[str] = []
    arguments: dict[str, str] = {}
    section = current = ""
    first_indent = 0
    for line in text.splitlines():
        heading = _SECTION.match(line)
        if heading:
            section, current = heading[1], ""
        elif not section:
            head.append(line)
        elif section in ("Args", "Arguments", "Parameters") and line.strip():
            argument = _ARGUMENT.match(line.strip())
            indent = len(line) - len(line.lstrip())
            if argument and (not current or indent <= first_indent):
                first_indent = indent
                current = argument[1].lstrip("*")
                arguments[current] = argument[2]
            elif current:
                arguments[current] += f" {line.strip()}"
    return "\n".join(head).strip(), arguments
