"""MCP servers of plugins: which servers a session uses, and the values and credentials that the program gives."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

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


@dataclass(frozen=True)
class AuthorizationRequest:
    """HTTP MCP server that answered 401 and whose declaration has no credential. A plugin's author and the
    server choose all texts except the source and the package, so compare the origin."""

    source_kind: str
    """Kind of the source: `executor` or `local` of a plugin's server, `mcp` of an `McpServer`."""
    source_id: str
    """Id of the source: the environment of an executor, or the name of an `McpServer`."""
    package: str | None
    """Handle of the plugin; `None` for an `McpServer`."""
    plugin: str | None
    """Name of the plugin; `None` for an `McpServer`."""
    server: str
    """Name of the server."""
    url: str
    """URL of the server: the resource that the token is for."""
    origin: str
    """Origin that gets the value, such as `https://mcp.tracker.example`."""
    resource_metadata: str | None
    """URL of the protected resource metadata (RFC 9728) that the server names. The server is not trusted: the host
    can resolve to a machine of your network."""
    scopes: tuple[str, ...]
    """Scopes that the server asks for."""
    error: str | None
    """Error code of the server, such as `invalid_token`."""


AuthorizationFunction: TypeAlias = Callable[[AuthorizationRequest], "str | None | Awaitable[str | None]"]
"""Function that returns the value of `Authorization`, such as `Bearer …`, or `None` if the server must not get
one. It may take 15 minutes."""


async def authorize_server(authorize: AuthorizationFunction, event: dict[str, Any]) -> str | None:
    """Returns the value of `Authorization` that the program asks for."""
    names = ("package", "plugin", "server", "url", "origin", "error")
    request = AuthorizationRequest(
        source_kind=event["sourceKind"],
        source_id=event["sourceId"],
        resource_metadata=event["resourceMetadata"],
        scopes=tuple(event["scopes"]),
        **{name: event[name] for name in names},
    )
    value = authorize(request)
    if inspect.isawaitable(value):
        value = await value
    check_type("the result of authorize", value, str, type(None))
    return value


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
