"""Own tools: functions of the program that a model can call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from . import _caproot
from ._check import check_type, to_json
from ._errors import SealedError

if TYPE_CHECKING:
    from ._bridge import HandlerEntry

Function = TypeVar("Function", bound=Callable[..., Any])


class _Definition:
    """Definition of a tool with its function."""

    __slots__ = ("entry", "function", "name", "spec")

    def __init__(self, name: str, spec: str, function: Callable[[Any], Any]) -> None:
        self.name = name
        self.spec = spec
        self.function = function
        self.entry: HandlerEntry | None = None

    def handler(self) -> HandlerEntry:
        from ._bridge import HandlerEntry

        if self.entry is None:
            self.entry = HandlerEntry(f"the tool {self.name!r}", self.function)
        return self.entry


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
        self._core: _caproot.ToolRegistry | None = _caproot.ToolRegistry()

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
        spec = {
            "namespace": namespace,
            "name": tool_name,
            "description": described.description,
            "input_schema": described.input_schema,
            "output_schema": output_schema,
            "output_description": output_description,
            "time_limit": time_limit,
            "external": external,
        }
        definition = _Definition(full_name, to_json("input_schema", spec), described.call)
        core = self._registry()
        core.register(definition.spec, definition.handler().number)
        self._definitions[full_name] = definition
        return function

    def unregister(self, name: str) -> None:
        """Removes a tool by its name: `NAMESPACE.NAME`, or `NAME` without a namespace. Raises `KeyError`."""
        check_type("name", name, str)
        self._check_unsealed()
        self._registry().unregister(name)
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
        copy._core = None
        return copy

    def _check_unsealed(self) -> None:
        if self._is_sealed:
            raise SealedError(
                "the tools are sealed, since a session began with them: register before, or begin "
                "another session with a copy"
            )

    def _registry(self) -> _caproot.ToolRegistry:
        """Returns the registry of this process."""
        core = self._core
        if core is None or not core.is_own():
            core = self._core = _caproot.ToolRegistry()
            for definition in self._definitions.values():
                core.register(definition.spec, definition.handler().number)
        return core

    def _seal(self) -> list[_Definition]:
        """Seals the tools, and returns the definitions that a session keeps."""
        self._is_sealed = True
        return list(self._definitions.values())

