"""Sources of a session next to its executors."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Union

from ._check import check_strings, check_type
from ._errors import ConfigError
from ._fleet import Path

if TYPE_CHECKING:
    from ._bridge import HandlerEntry
    from ._daemon import Daemon

McpTokenFunction = Callable[[], Union[str, Awaitable[str]]]
"""Function that returns the token of an MCP server. It may be asynchronous."""


class LocalSkills:
    """Skills below directories of this machine. The session starts the program `caproot` on a private
    socket for them, and ends it with the session."""

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
        self._id = id
        self._flags = [f"--preset={name}" for name in names]
        for name, path in (directories or {}).items():
            check_type("an id of directories", name, str)
            check_type(f"directories[{name!r}]", path, str, os.PathLike)
            self._flags.append(f"--root={name}={os.path.abspath(os.fspath(path))}")

    def __repr__(self) -> str:
        return f"LocalSkills({self._flags})"


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
            "cwd": cwd and os.fspath(cwd),
            "tokenFile": token_file and os.fspath(token_file),
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


class DescribedSources:
    """Description of the sources for the extension module."""

    def __init__(self) -> None:
        self.spec: dict[str, Any] = {
            "local": [],
            "mcp_servers": {},
            "mcp_tokens": {},
            "sites": [],
        }
        # Functions that the sources call.
        self.entries: list[HandlerEntry] = []


async def describe_sources(
    sources: list[Any], started: list[Daemon], mistakes: list[str]
) -> DescribedSources:
    """Starts the daemons of local directories, and describes all sources. Adds mistakes."""
    described = DescribedSources()
    for source in sources:
        if isinstance(source, LocalSkills):
            try:
                daemon = await _start_daemon(source, started)
            except ConfigError as error:
                mistakes.extend(error.mistakes)
                continue
            described.spec["local"].append({"id": source._id, "address": daemon.address})
            continue
        if isinstance(source, Site):
            described.spec["sites"].append(source._spec)
            continue
        servers = described.spec["mcp_servers"]
        if source._name in servers:
            mistakes.append(f"two MCP servers have the name {source._name!r}")
        servers[source._name] = source._spec
        if source._token is not None:
            entry = _token_entry(source)
            described.entries.append(entry)
            described.spec["mcp_tokens"][source._name] = entry.number
    return described


async def _start_daemon(source: LocalSkills, started: list[Daemon]) -> Daemon:
    from ._daemon import Daemon

    daemon = Daemon(source._flags)
    started.append(daemon)
    await asyncio.to_thread(daemon.wait_until_ready)
    return daemon


def _token_entry(server: McpServer) -> HandlerEntry:
    from ._bridge import HandlerEntry

    async def answer(_: None) -> str:
        assert server._token is not None
        token = server._token()
        if inspect.isawaitable(token):
            token = await token
        check_type("the result of token", token, str)
        return token

    return HandlerEntry(f"the token of the MCP server {server._name!r}", answer)
