"""MCP servers of plugins: which servers a session uses, and the values that declarations withhold."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from ._check import check_strings, check_type

if TYPE_CHECKING:
    from ._line_types import ServerValueEvent


@dataclass(frozen=True)
class ServerValueRequest:
    """Value that a declaration withholds. A plugin's author chooses all texts except the source and the
    package, so compare the origin."""

    source_kind: str
    """Kind of the plugin's source: `executor` or `local`."""
    source_id: str
    """Id of the plugin's source; the environment of an executor."""
    package: str
    """Handle of the plugin."""
    plugin: str
    """Name of the plugin."""
    server: str
    """Name of the server."""
    origin: str
    """Origin that gets the value, such as `https://mcp.tracker.example`."""
    name: str
    """Variable that the declaration names, or the name of the header."""


ServerValueFunction: TypeAlias = Callable[[ServerValueRequest], "str | None | Awaitable[str | None]"]
"""Function that returns a withheld value, or `None` if the server must not get it."""


class PluginServers:
    """HTTP MCP servers of plugins whose tools a session has.

    Args:
        names: `"all"`, or texts that each choose one server: its handle, such as `skill://a/p#tracker`, or
            `PLUGIN/SERVER` or `PLUGIN` if only one server fits.
        private_origins: Origins that may have addresses that are not globally routable. Only these may
            use `http`, on a loopback address.
        value: Function that returns a withheld value. By default the servers get no such value.
    """

    def __init__(
        self,
        names: Literal["all"] | Iterable[str],
        *,
        private_origins: Iterable[str] = (),
        value: ServerValueFunction | None = None,
    ) -> None:
        if value is not None and not callable(value):
            raise TypeError(f"value must be callable, not {type(value).__name__}")
        self._names = ["all"] if names == "all" else check_strings("names", names)
        self._private_origins = check_strings("private_origins", private_origins)
        self._value = value

    async def _answer(self, event: ServerValueEvent) -> str | None:
        """Returns the value that the program asks for."""
        if self._value is None:
            return None
        request = ServerValueRequest(
            source_kind=event["sourceKind"],
            source_id=event["sourceId"],
            package=event["package"],
            plugin=event["plugin"],
            server=event["server"],
            origin=event["origin"],
            name=event["name"],
        )
        value = self._value(request)
        if inspect.isawaitable(value):
            value = await value
        check_type("the result of value", value, str, type(None))
        return value
