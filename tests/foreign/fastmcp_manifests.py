"""FastMCP servers without the skills extension: each skill is a SKILL.md, a `_manifest` and a template for
its other files. Reads all skills below directories as a host of MCP, over HTTP and over stdio, and checks
that a file which differs from its manifest is refused.

    fastmcp_manifests.py HOST DIRECTORY…

HOST is the built example `mcp_host`.
"""

import asyncio
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import warnings

from fastmcp import FastMCP
from fastmcp.server.providers.skills import SkillsDirectoryProvider


def serve(mode, directories):
    """Serves until the process is terminated. Prints `listening URL` in the mode http."""
    # Later versions prefer another provider, and keep this form.
    warnings.simplefilter("ignore")
    server = FastMCP("manifests")
    roots = [pathlib.Path(directory).resolve() for directory in directories]
    server.add_provider(SkillsDirectoryProvider(roots=roots))
    if mode == "stdio":
        asyncio.run(server.run_stdio_async(show_banner=False, log_level="warning"))
        return
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"listening http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    asyncio.run(
        server.run_http_async(show_banner=False, log_level="warning", path="/mcp", sockets=[listener])
    )


def run_host(host, server):
    """Reads all files of a server. Returns the exit code, the output, and the number of files read."""
    run = subprocess.run([host, "read", *server], capture_output=True, text=True, timeout=120)
    files = re.search(r"(\d+) skills, (\d+) files read", run.stdout)
    assert files, run.stdout + run.stderr
    return run.returncode, run.stdout, int(files[2])


def read_over_http(host, directories, change=None):
    command = [sys.executable, __file__, "--http", *directories]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = server.stdout.readline().strip().removeprefix("listening ")
            if change:
                change()
            return run_host(host, [url])
        finally:
            server.terminate()


def main():
    if sys.argv[1] in ("--http", "--stdio"):
        serve(sys.argv[1][2:], sys.argv[2:])
        return
    host, *directories = sys.argv[1:]
    code, output, over_http = read_over_http(host, directories)
    print(output.splitlines()[-1])
    assert code == 0 and over_http > 0, output

    stdio = [sys.executable, __file__, "--stdio", *directories]
    code, output, over_stdio = run_host(host, stdio)
    assert code == 0 and over_stdio == over_http, output

    # A running server does not update its manifest.
    with tempfile.TemporaryDirectory() as top:
        skill = pathlib.Path(top, "changed")
        skill.mkdir()
        skill.joinpath("SKILL.md").write_text("---\nname: changed\ndescription: Changes.\n---\nText.\n")
        other = skill / "other.md"
        other.write_text("As listed.\n")
        code, output, _ = read_over_http(host, [top], lambda: other.write_text("Otherwise.\n"))
        assert code == 1 and "NOT_VERIFIED" in output, output
    print(f"{over_http} files over HTTP and stdio; a changed file is refused")


main()
