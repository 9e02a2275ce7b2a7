"""MCP servers of others as tools of a session: a FastMCP server and the reference server
`@modelcontextprotocol/server-everything`, both over HTTP, which a plugin declares. Calls their tools by
`caproot call`, and by the Python package.

    plugin_servers.py CAPROOT NODE EVERYTHING PACKAGE_PYTHON

EVERYTHING is the main file of the reference server. PACKAGE_PYTHON has the Python package.
"""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

# Calls: the name of a tool, its arguments, and a part of the result.
CALLS = [
    ("mcp__kit__fast_add", {"a": 20, "b": 22}, "42"),
    ("mcp__kit__fast_fail", {}, "no such row"),
    ("mcp__kit__everything_echo", {"message": "hello"}, "hello"),
    ("mcp__kit__everything_get-sum", {"a": 2, "b": 3}, "5"),
]


def serve_fastmcp():
    """Serves until the process is terminated, and prints `listening URL`."""
    import asyncio

    from fastmcp import FastMCP
    from fastmcp.exceptions import ToolError

    server = FastMCP("fast")

    @server.tool
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    @server.tool
    def fail() -> str:
        """Fails."""
        raise ToolError("no such row")

    @server.tool
    def write(lines: int) -> str:
        """Writes lines."""
        return "".join(f"line {number}\n" for number in range(lines))

    listener = socket.create_server(("127.0.0.1", 0))
    print(f"listening http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    asyncio.run(
        server.run_http_async(show_banner=False, log_level="warning", path="/mcp", sockets=[listener])
    )


@contextlib.contextmanager
def fastmcp_server():
    command = [sys.executable, __file__, "--fastmcp"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().strip().removeprefix("listening ")
        finally:
            server.terminate()


@contextlib.contextmanager
def everything_server(node, program):
    # The server binds no port 0, so a port that was free a moment ago is used.
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [node, program, "streamableHttp"]
    env = os.environ | {"PORT": str(port)}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env) as server:
        try:
            line = next(line for line in server.stderr if "listening" in line or "Failed" in line)
            assert "listening" in line, line
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.terminate()


def write_plugin(top, urls):
    servers = {name: {"url": url} for name, url in urls.items()}
    manifest = pathlib.Path(top, "kit/.codex-plugin/plugin.json")
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"name": "kit", "mcpServers": servers}))


def origin(url):
    return url.removesuffix("/mcp")


def check_call_command(caproot, tree, urls):
    """Calls the tools by `caproot call`. Returns the names of all tools of the servers."""
    requests = [
        {"id": f"call {number}", "method": "call", "tool": tool, "arguments": arguments}
        for number, (tool, arguments, _) in enumerate(CALLS)
    ]
    requests += [
        {"id": "servers", "method": "plugin_servers"},
        {"id": "image", "method": "call", "tool": "mcp__kit__everything_get-tiny-image", "arguments": {}},
        {"id": "long", "method": "call", "tool": "mcp__kit__fast_write", "arguments": {"lines": 5_000}},
    ]
    command = [caproot, "call", "--local", f"tools={tree}"]
    for name, url in urls.items():
        command += ["--plugin-servers", f"kit/{name}", "--private-origin", origin(url)]
    text = "".join(json.dumps(request) + "\n" for request in requests)
    run = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    answers = {answer["id"]: answer for answer in map(json.loads, run.stdout.splitlines())}

    for number, (tool, _, part) in enumerate(CALLS):
        answer = answers[f"call {number}"]
        assert part in json.dumps(answer["result"]), (tool, answer)
        assert answer["externalContext"] is True, answer
    image = answers["image"]
    assert image["result"]["media"][0]["type"] == "image/png" and image["images"], image
    long = json.dumps(answers["long"]["result"])
    assert len(long) < 20_000 and "next_cursor" in long, long[:200]

    statuses = answers["servers"]["result"]
    assert all(status["error"] is None for status in statuses), statuses
    return [name for status in statuses for name in status["tools"]]


async def call_by_package(tree, urls):
    import caproot

    # A plugin's name alone chooses its server only if there is one.
    names = [f"kit/{name}" for name in urls]
    servers = caproot.PluginServers(names, private_origins=[origin(url) for url in urls.values()])
    source = caproot.LocalSkills({"tools": tree})
    async with caproot.connect(sources=[source], plugin_servers=servers) as session:
        assert not session.warnings, session.warnings
        for tool, arguments, part in CALLS:
            result = await session.call(tool, arguments)
            assert part in result.text, (tool, result)
            assert result.external, result
        image = await session.call("mcp__kit__everything_get-tiny-image", {})
        assert image.images, image
        names = [name for status in session.plugin_servers() for name in status["tools"]]
        print(json.dumps(names))


def main():
    if sys.argv[1] == "--fastmcp":
        serve_fastmcp()
        return
    if sys.argv[1] == "--package":
        import asyncio

        asyncio.run(call_by_package(sys.argv[2], json.loads(sys.argv[3])))
        return

    caproot, node, everything, package_python = sys.argv[1:]
    with (
        tempfile.TemporaryDirectory() as tree,
        fastmcp_server() as fast,
        everything_server(node, everything) as reference,
    ):
        urls = {"fast": fast, "everything": reference}
        write_plugin(tree, urls)
        names = check_call_command(caproot, tree, urls)
        print(f"caproot call: {len(names)} tools")
        command = [package_python, __file__, "--package", tree, json.dumps(urls)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert run.returncode == 0, run.stderr
        assert sorted(json.loads(run.stdout)) == sorted(names), run.stdout
        print("the Python package: the same tools and results")


main()
