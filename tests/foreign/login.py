"""Runs the program in Python of docs/orchestrate/authorization.md against a FastMCP server with an authorization
server of its own. Only the origin, the port and the directory of the plugin differ from the page.

    login.py CAPROOT

Run this at the top of a checkout, with a Python that has fastmcp.
"""

import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request

PAGE = pathlib.Path("docs/orchestrate/authorization.md")
TOOL = "mcp__kit__fast_add"


def serve():
    """Serves until the process is terminated, and prints `listening URL`."""
    import asyncio

    from fastmcp import FastMCP
    from fastmcp.server.auth.auth import ClientRegistrationOptions
    from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider

    listener = socket.create_server(("127.0.0.1", 0))
    origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
    registration = ClientRegistrationOptions(enabled=True, valid_scopes=["read"])
    provider = InMemoryOAuthProvider(
        base_url=origin, client_registration_options=registration, required_scopes=["read"]
    )
    server = FastMCP("fast", auth=provider)

    @server.tool
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    print(f"listening {origin}/mcp", flush=True)
    asyncio.run(
        server.run_http_async(show_banner=False, log_level="warning", path="/mcp", sockets=[listener])
    )


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def page_program(url, tree):
    """Returns the program of the page for a server and a directory with its plugin."""
    found = re.search(r"^```python\n(# log_in\.py\n.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    program, origin = found[1], url.removesuffix("/mcp")
    for old, new in [
        ("https://mcp.tracker.example", origin),
        ("PORT = 8765", f"PORT = {free_port()}"),
        ('PluginServers("all")', f'PluginServers("all", private_origins=["{origin}"])'),
        ("connect(", f'connect(sources=[caproot.LocalSkills({{"tools": {tree!r}}})], '),
    ]:
        assert program.count(old) == 1, old
        program = program.replace(old, new)
    return program


@contextlib.contextmanager
def running(command, **options):
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options) as process:
        # A program that waits for a login ends here.
        timer = threading.Timer(120, process.kill)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            process.terminate()


def main():
    if sys.argv[1] == "--serve":
        serve()
        return
    if sys.argv[1] == "--browse":
        urllib.request.urlopen(sys.argv[2], timeout=30).read()
        return

    caproot = pathlib.Path(sys.argv[1]).resolve()
    itself = [sys.executable, os.path.abspath(__file__)]
    with tempfile.TemporaryDirectory() as tree, running([*itself, "--serve"]) as server:
        url = server.stdout.readline().strip().removeprefix("listening ")
        manifest = pathlib.Path(tree, "kit/.codex-plugin/plugin.json")
        manifest.parent.mkdir(parents=True)
        manifest.write_text(json.dumps({"name": "kit", "mcpServers": {"fast": {"url": url}}}))
        env = os.environ | {
            "PATH": f"{caproot.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.path.abspath("python"),
            "BROWSER": " ".join([*itself, "--browse", "%s"]),
        }
        with running([sys.executable, "-u", "-c", page_program(url, tree)], env=env) as program:
            line = next((line for line in program.stdout if TOOL in line), "")
        assert line, "the session has no tool of the server"
        print(f"the program of the page logged in: {line.strip()}")


if __name__ == "__main__":
    main()
