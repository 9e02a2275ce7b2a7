"""FastMCP server of Skills over MCP (SEP-2640) for directories of skills, on a free port. Prints
`listening URL` when it is ready, and serves until it is terminated.

    fastmcp_skills.py DIRECTORY…
"""

import asyncio
import pathlib
import socket
import sys

from fastmcp import FastMCP
from fastmcp.server.providers.skills import SkillsDirectoryProvider
from fastmcp.skills.extension import SkillsExtension


def main():
    roots = [pathlib.Path(directory).resolve() for directory in sys.argv[1:]]
    provider = SkillsDirectoryProvider(roots=roots, experimental_skills=True)
    server = FastMCP("skills")
    server.add_provider(provider)
    server.add_extension(SkillsExtension(providers=[provider]))
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"listening http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    serve = server.run_http_async(
        show_banner=False, log_level="warning", path="/mcp", sockets=[listener]
    )
    asyncio.run(serve)


main()
