"""Own tools: functions of the program that a model can call."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from ._check import check_type, span, to_json
from ._errors import ConfigError, SealedError

Function = TypeVar("Function", bound=Callable[..., Any])


# Limits of the program. A tool over a limit is refused when it is registered, and not when a session begins.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAX_TOOLS = 128
_MAX_DESCRIPTION = 4096
_MAX_SCHEMA = 16_384
_MAX_SECONDS = 86_400


class _Definition:
    """Definition of a tool with its function."""

    __slots__ = ("fields", "function", "name")

    def __init__(self, name: str, fields: dict[str, Any], function: Callable[[Any], Any]) -> None:
        self.name = name
        self.fields = fields
        self.function = function


class Tools:
    """Registry of own tools.

    ```python
    tools = caproot.Tools()

    @tools.tool
    async def count(text: str) -> int:
        \"\"\"Counts the words of a text.\"\"\"
        return len(text.split())
    ```

    A function may be asynchronous. Another function runs in a thread of the event loop's executor. It
    sees the context variables of the caller. If the time limit is over or the caller has gone, an
    asynchronous function is cancelled. The first session that begins with the tools seals them.
    """

    def __init__(self) -> None:
        self._definitions: dict[str, _Definition] = {}
        self._is_sealed = False

    @overload
    def tool(self, function: Function, /) -> Function: ...

    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        namespace: str | None = None,
        description: str | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        output_description: str | None = None,
        time_limit: float = 60.0,
        external: bool = False,
    ) -> Callable[[Function], Function]: ...

    def tool(self, function: Any = None, /, **options: Any) -> Any:
        """Registers the decorated function; see `register` for the options."""
        if function is None:
            return lambda function: self.register(function, **options)
        return self.register(function, **options)

    def register(
        self,
        function: Function,
        *,
        name: str | None = None,
        namespace: str | None = None,
        description: str | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        output_description: str | None = None,
        time_limit: float = 60.0,
        external: bool = False,
    ) -> Function:
        """Registers a function, and returns it unchanged.

        Args:
            function: Function whose parameters are the arguments. Its result is JSON, or anything that
                pydantic writes as JSON.
            name: Name of the tool; that of the function by default.
            namespace: Namespace, which becomes a part of the name: `NAMESPACE_NAME`.
            description: Description for the model; the docstring without its sections by default.
            input_schema: JSON Schema of the arguments; made of the signature by default, which needs
                pydantic.
            output_schema: JSON Schema of the result, for the instruction text.
            output_description: Description of the result, for the instruction text.
            time_limit: Seconds of a call, at most a day.
            external: Whether third parties wrote the result, such as of a web search.

        Raises:
            ConfigError: A part of the tool is invalid.
            SealedError: A session began with the tools.
        """
        from ._schema import describe_function

        if not callable(function):
            raise TypeError(f"function must be callable, not {type(function).__name__}")
        for key, text in (("name", name), ("namespace", namespace), ("description", description),
                          ("output_description", output_description)):  # fmt: skip
            check_type(key, text, str, type(None))
        check_type("input_schema", input_schema, Mapping, type(None))
        check_type("output_schema", output_schema, Mapping, type(None))
        check_type("time_limit", time_limit, int, float)
        check_type("external", external, bool)
        self._check_unsealed()

        tool_name = str(name or getattr(function, "__name__", ""))
        full_name = f"{namespace}.{tool_name}" if namespace else tool_name
        described = describe_function(function, full_name, description, input_schema)
        fields = {
            "namespace": namespace,
            "name": tool_name,
            "description": described.description,
            "inputSchema": described.input_schema,
            "outputSchema": output_schema,
            "outputDescription": output_description,
            "timeLimit": span(time_limit),
            "externalContext": external,
        }
        # A copy, as the caller may change its schema.
        fields = json.loads(to_json("input_schema", fields))
        mistake = _find_mistake(full_name, fields, time_limit)
        if mistake is None and full_name in self._definitions:
            mistake = f"there is a tool {full_name!r} already: unregister that tool first, or use another name"
        if mistake is None and len(self._definitions) >= _MAX_TOOLS:
            mistake = f"there are {_MAX_TOOLS} tools already, and no room for {full_name!r}"
        if mistake is not None:
            raise ConfigError([mistake])
        definition = _Definition(full_name, fields, described.call)
        self._definitions[full_name] = definition
        return function

    def unregister(self, name: str) -> None:
        """Removes a tool by its name: `NAMESPACE.NAME`, or `NAME` without a namespace. Raises `KeyError`."""
        check_type("name", name, str)
        self._check_unsealed()
        if name not in self._definitions:
            raise KeyError(f"there is no tool {name!r}")
        del self._definitions[name]

    @property
    def names(self) -> list[str]:
        """Names of the tools, `NAMESPACE.NAME` or `NAME`, in the order of registration."""
        return list(self._definitions)

    @property
    def is_sealed(self) -> bool:
        """Whether a session began with the tools."""
        return self._is_sealed

    def copy(self) -> Tools:
        """Returns a registry with the same tools that is not sealed."""
        copy = Tools()
        copy._definitions = dict(self._definitions)
        return copy

    def _check_unsealed(self) -> None:
        if self._is_sealed:
            raise SealedError(
                "the tools are sealed, since a session began with them: register before, or begin "
                "another session with a copy"
            )

    def _seal(self) -> tuple[list[dict[str, Any]], dict[str, tuple[str, Callable[[Any], Any]]]]:
        """Seals the tools, and returns their definitions, and their functions by the names that a model uses."""
        self._is_sealed = True
        definitions = list(self._definitions.values())
        functions = {
            definition.name.replace(".", "_"): (f"the tool {definition.name!r}", definition.function)
            for definition in definitions
        }
        return [definition.fields for definition in definitions], functions


def _find_mistake(name: str, fields: dict[str, Any], time_limit: float) -> str | None:
    """Returns the first mistake of a tool as a sentence."""
    for part in (fields["namespace"], fields["name"]):
        if part is not None and _NAME.fullmatch(part) is None:
            return (
                f"invalid name or namespace of a tool {part!r}: expected 1 to 64 of the letters A to Z and a to z, "
                "digits, `_` and `-`"
            )
    if re.match(r"skills([._-]|$)", name) is not None:
        return f"names of the namespace `skills` are reserved, in any spelling: rename the tool {name!r}"
    description = fields["description"]
    if not description.strip() or len(description.encode()) > _MAX_DESCRIPTION:
        reason = f"expected text of at most {_MAX_DESCRIPTION} bytes"
        return f"the description of the tool {name!r} is invalid: {reason}"
    schema = fields["inputSchema"]
    if schema.get("type") != "object":
        return f"the input schema of the tool {name!r} is invalid: its `type` must be `object`"
    if len(json.dumps(schema, ensure_ascii=False).encode()) > _MAX_SCHEMA:
        return f"the input schema of the tool {name!r} is invalid: it has more than {_MAX_SCHEMA} bytes"
    if not (math.isfinite(time_limit) and 0 < time_limit <= _MAX_SECONDS):
        return f"the time limit of the tool {name!r} is invalid: {time_limit:g} s is not more than zero and at most a day"
    return None
