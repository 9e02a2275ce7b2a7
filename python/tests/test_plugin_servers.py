"""Tools of the HTTP MCP servers that plugins declare."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import caproot

METADATA = "https://tracker.example/.well-known/oauth-protected-resource"
DISCOVERY = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "tools", "version": "1"}},
}


def answer(message: dict[str, Any]) -> dict[str, Any]:
    """Returns the result of a request of MCP."""
    method, params = message["method"], message.get("params", {})
    if method == "server/discover":
        return DISCOVERY
    if method == "tools/list":
        schema = {"type": "object"}
        names = ["echo", "picture"]
        return {"tools": [{"name": name, "description": name, "inputSchema": schema} for name in names]}
    content = {"type": "image", "mimeType": "image/png", "data": "AAEC"}
    if params["name"] == "echo":
        content = {"type": "text", "text": json.dumps(params["arguments"])}
    return {"content": [content], "isError": False}


class ToolServer(ThreadingHTTPServer):
    """MCP server with two tools. `seen` has the headers `Authorization`; with `accepted`, another one gets 401."""

    seen: list[str | None]
    accepted: str | None = None

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: ToolServer

    def do_POST(self) -> None:
        self.server.seen.append(self.headers["authorization"])
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.server.accepted not in (None, self.headers["authorization"]):
            self.send_response(401)
            self.send_header("www-authenticate", f'Bearer resource_metadata="{METADATA}", scope="read write"')
            self.send_header("content-length", "0")
            self.end_headers()
            return
        if "id" not in message:
            self.send_response(202)
            self.send_header("content-length", "0")
            self.end_headers()
            return
        result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **answer(message)}
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def tool_server() -> Iterator[ToolServer]:
    with ToolServer(("127.0.0.1", 0), Handler) as server:
        server.seen = []
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield server
        server.shutdown()
        serving.join()


def write_plugin(directory: Path, server: dict[str, Any]) -> caproot.LocalSkills:
    """Returns a directory with the plugin `kit` and its server `web`."""
    manifest = directory / "kit/.codex-plugin/plugin.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"name": "kit", "mcpServers": {"web": server}}), encoding="utf-8")
    return caproot.LocalSkills({"mine": directory})


@pytest.fixture
def plugin(tmp_path: Path, tool_server: ToolServer) -> caproot.LocalSkills:
    """Directory with the plugin `kit`, whose server needs a value."""
    headers = {"Authorization": "Bearer ${KIT_TOKEN}"}
    return write_plugin(tmp_path / "plugins", {"url": f"{tool_server.origin}/mcp", "headers": headers})


@pytest.fixture
def open_plugin(tmp_path: Path, tool_server: ToolServer) -> caproot.LocalSkills:
    """Directory with the plugin `kit`, whose declaration has no credential."""
    tool_server.accepted = "Bearer t1"
    return write_plugin(tmp_path / "open", {"url": f"{tool_server.origin}/mcp"})


def test_a_session_has_the_tools_of_a_plugins_server(
    run: Any, plugin: caproot.LocalSkills, tool_server: ToolServer
) -> None:
    asked: list[caproot.ServerValueRequest] = []

    def value(request: caproot.ServerValueRequest) -> str:
        asked.append(request)
        return "secret"

    servers = caproot.PluginServers(["skill://mine/kit#web"], private_origins=[tool_server.origin], value=value)

    async def work() -> None:
        async with caproot.connect(sources=[plugin], plugin_servers=servers) as skills:
            names = [tool["name"] for tool in skills.tools]
            assert {"mcp__kit__web_echo", "mcp__kit__web_picture"} <= set(names)
            (status,) = skills.plugin_servers()
            assert status["origin"] == tool_server.origin and status["error"] is None

            echoed = await skills.call("mcp__kit__web_echo", {"text": "hello"})
            assert echoed.ok and echoed.external and echoed.images == []
            assert json.loads(echoed.json()["contents"]) == {"text": "hello"}

            picture = await skills.call("mcp__kit__web_picture", {})
            assert picture.json()["media"] == [{"type": "image/png", "bytes": 3}]
            (image,) = picture.images
            assert (image.mime_type, image.data) == ("image/png", b"\0\1\2")

    run(work())
    (request,) = asked
    assert (request.origin, request.name) == (tool_server.origin, "KIT_TOKEN")
    assert (request.source_kind, request.plugin, request.server) == ("local", "kit", "web")
    assert set(tool_server.seen) == {"Bearer secret"}


def test_a_session_has_no_servers_and_no_secrets_by_default(
    run: Any, plugin: caproot.LocalSkills, tool_server: ToolServer
) -> None:
    async def work() -> None:
        async with caproot.connect(sources=[plugin]) as skills:
            assert not [tool for tool in skills.tools if tool["name"].startswith("mcp__")]
        # The origin is private, and no option allows it.
        async with caproot.connect(sources=[plugin], plugin_servers=caproot.PluginServers("all")) as skills:
            assert "its URL must use https" in "\n".join(skills.warnings)

    run(work())
    assert tool_server.seen == []


def test_the_tools_of_an_authorized_server_are_a_change(
    run: Any, open_plugin: caproot.LocalSkills, tool_server: ToolServer
) -> None:
    asked: list[caproot.AuthorizationRequest] = []
    servers = caproot.PluginServers("all", private_origins=[tool_server.origin])

    async def work() -> None:
        log_in = asyncio.Event()

        async def authorize(request: caproot.AuthorizationRequest) -> str | None:
            asked.append(request)
            await log_in.wait()
            return "Bearer t1"

        start = caproot.connect(sources=[open_plugin], plugin_servers=servers, authorize=authorize)
        async with start as skills:
            assert not [tool for tool in skills.tools if tool["name"].startswith("mcp__")]
            assert "has not answered yet" in (skills.plugin_servers()[0]["error"] or "")
            fork = skills.fork()
            changes = skills.changes()
            log_in.set()
            async for change in changes:
                if any(tool["name"] == "mcp__kit__web_echo" for tool in skills.tools):
                    assert change == {"kind": "local", "id": "local"}
                    break
            echoed = await skills.call("mcp__kit__web_echo", {"text": "hello"})
            assert echoed.ok, echoed.text
            assert (await fork.call("mcp__kit__web_echo", {})).ok

    run(work())
    (request,) = asked
    assert (request.source_kind, request.plugin, request.server) == ("local", "kit", "web")
    assert (request.origin, request.url) == (tool_server.origin, f"{tool_server.origin}/mcp")
    assert (request.resource_metadata, request.scopes) == (METADATA, ("read", "write"))


def test_a_function_that_fails_is_asked_again_when_told(
    open_plugin: caproot.LocalSkills, tool_server: ToolServer
) -> None:
    answers: list[Any] = [ZeroDivisionError("t1"), "t1", "Bearer t1"]

    def authorize(_: caproot.AuthorizationRequest) -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    servers = caproot.PluginServers("all", private_origins=[tool_server.origin])

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: None)
        start = caproot.connect(sources=[open_plugin], plugin_servers=servers, authorize=authorize)
        async with start as skills:
            for part in ("`authorize` of the program failed", "such as `Bearer …`"):
                while part not in (error := skills.plugin_servers()[0]["error"] or ""):
                    await asyncio.sleep(0.01)
                assert "t1" not in error
                await skills.retry_servers()
            while skills.plugin_servers()[0]["error"] is not None:
                await asyncio.sleep(0.01)
            assert (await skills.call("mcp__kit__web_echo", {})).ok

    asyncio.run(asyncio.wait_for(work(), 60))
    assert answers == []


def test_mistakes_are_config_errors(plugin: caproot.LocalSkills) -> None:
    with pytest.raises(TypeError, match="value must be callable"):
        caproot.PluginServers("all", value="secret")  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="authorize must be callable"):
        caproot.connect(authorize="Bearer t1")  # type: ignore[arg-type]

    async def work() -> None:
        servers = caproot.PluginServers("all", private_origins=["no origin"])
        async with caproot.connect(sources=[plugin], plugin_servers=servers):
            pass

    with pytest.raises(caproot.ConfigError):
        asyncio.run(work())
