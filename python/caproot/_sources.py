"""Sources of a session next to its executors."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Union

from ._check import check_strings, check_type
from ._errors import ConfigError
from ._fleet import Path
from ._host import HandlerEntry
from ._servers import authorize_server

if TYPE_CHECKING:
    from ._line_types import McpTokenEvent
    from ._servers import AuthorizationFunction, PluginServers

McpTokenFunction = Callable[[], Union[str, Awaitable[str]]]
"""Function that returns the token of an MCP server. It may be asynchronous."""


class LocalSkills:
    """Skills below directories of this machine. The program `caproot` of the session reads and watches them."""

    def __init__(
        self,
        directories: Mapping[str, Path] | None = None,
        *,
        presets: Iterable[str] = (),
        id: str = "local",
    ) -> None:
        """
        Args:
            directories: Directories by the ids of their authorities, which are the first part of the
                handles.
            presets: Tools whose directories of skills are used, too: `agents`, `claude` or `codex`. The
                directories are those of the project that contains the working directory, and that of
                the home directory.
            id: Id of the source, as in the rule `source:local/ID`.
        """
        check_type("directories", directories, Mapping, type(None))
        check_type("id", id, str)
        names = check_strings("presets", presets)
        if not directories and not names:
            raise ConfigError(["LocalSkills needs a directory or a preset"])
        paths = {}
        for name, path in (directories or {}).items():
            check_type("an id of directories", name, str)
            check_type(f"directories[{name!r}]", path, str, os.PathLike)
            paths[name] = os.path.abspath(os.fspath(path))
        self._spec = {"id": id, "directories": paths, "presets": names}

    def __repr__(self) -> str:
        return f"LocalSkills({self._spec['directories']!r}, presets={self._spec['presets']!r})"


class McpServer:
    """MCP server with skills, over HTTP or as a process. `${NAME}` in a text is an environment
    variable."""

    def __init__(
        self,
        name: str,
        *,
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
        command: str | None = None,
        args: Iterable[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        token: McpTokenFunction | None = None,
        token_file: Path | None = None,
        max_age_seconds: int | None = None,
    ) -> None:
        """
        Args:
            name: Name of the server, also in handles: 1 to 64 letters, digits, `.`, `_` and `-`.
            url: URL of a server over HTTP.
            headers: Headers of each request.
            command: Program that speaks MCP on stdin and stdout.
            args: Arguments of the program.
            env: Environment variables of the program.
            cwd: Working directory of the program.
            token: Function that returns the bearer token of a server over HTTP, again after a rejection.
            token_file: File with the bearer token.
            max_age_seconds: Maximum age of the server's latest statement about a skill at a read; 30 by
                default. With 0, each read asks the server.
        """
        check_type("name", name, str)
        check_type("url", url, str, type(None))
        check_type("command", command, str, type(None))
        check_type("headers", headers, Mapping, type(None))
        check_type("env", env, Mapping, type(None))
        check_type("cwd", cwd, str, os.PathLike, type(None))
        check_type("token_file", token_file, str, os.PathLike, type(None))
        check_type("max_age_seconds", max_age_seconds, int, type(None))
        if token is not None and not callable(token):
            raise TypeError(f"token must be callable, not {type(token).__name__}: pass token_file or headers")
        if (url is None) == (command is None):
            raise ConfigError([f"the MCP server {name!r} needs either url or command"])
        if token is not None and url is None:
            raise ConfigError([f"the MCP server {name!r} has a token and no url"])
        spec = {
            "url": url,
            "headers": headers and dict(headers),
            "command": command,
            "args": check_strings("args", args) or None,
            "env": env and dict(env),
            "cwd": cwd and os.path.abspath(os.fspath(cwd)),
            "tokenFile": token_file and os.path.abspath(os.fspath(token_file)),
            "maxAgeSeconds": max_age_seconds,
        }
        self._name = name
        self._spec = {key: value for key, value in spec.items() if value is not None}
        self._token = token

    def __repr__(self) -> str:
        return f"McpServer({self._name!r})"


class Site:
    """Site with skills: the index `https://HOST/.well-known/agent-skills/index.json` and its files."""

    def __init__(self, host: str, *, allow_private: bool = False) -> None:
        """
        Args:
            host: Host of the site, such as `docs.example`, with a port if needed.
            allow_private: Whether addresses that are not globally routable are allowed, such as those of
                a local network. Also allows a URL with `http` of a loopback address.
        """
        check_type("host", host, str)
        check_type("allow_private", allow_private, bool)
        self._spec = {"host": host, "allow_private": allow_private}

    def __repr__(self) -> str:
        return f"Site({self._spec['host']!r})"


def describe_sources(
    sources: list[Any], plugin_servers: PluginServers | None, authorize: AuthorizationFunction | None
) -> tuple[dict[str, Any], HandlerEntry | None]:
    """Returns the sources as the program reads them, and the entry of their functions."""
    local = [source._spec for source in sources if isinstance(source, LocalSkills)]
    sites = [source._spec for source in sources if isinstance(source, Site)]
    servers = [source for source in sources if isinstance(source, McpServer)]
    tokens = {server._name: server._token for server in servers if server._token is not None}
    asks_values = plugin_servers is not None and plugin_servers._value is not None
    spec: dict[str, Any] = {
        "local": local,
        "mcp_servers": [{"name": server._name, "server": server._spec} for server in servers],
        "ask_tokens": list(tokens),
        "sites": sites,
        "private_origins": [] if plugin_servers is None else plugin_servers._private_origins,
        "ask_values": asks_values,
        "ask_authorization": authorize is not None,
    }
    if not tokens and not asks_values and authorize is None:
        return spec, None

    async def answer(event: Any) -> str | None:
        if event["event"] == "serverValue":
            return None if plugin_servers is None else await plugin_servers._answer(event)
        if event["event"] == "authorize":
            return None if authorize is None else await authorize_server(authorize, event)
        asked: McpTokenEvent = event
        token = tokens[asked["server"]]()
        if inspect.isawaitable(token):
            token = await token
        check_type("the result of token", token, str)
        return token

    entry = HandlerEntry("the function of a token, a value or authorize", answer)
    return {**spec, "key": entry.key}, entry
