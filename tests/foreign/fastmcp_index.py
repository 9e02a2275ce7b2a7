"""FastMCP server without the skills extension: `skill://index.json` has the skills below directories,
and each file is a resource. The first skill has the scheme `skill`, the others have `github`. Prints
`listening URL` when it is ready, and serves until it is terminated.

    fastmcp_index.py DIRECTORY…
"""

import asyncio
import json
import pathlib
import socket
import sys

import yaml
from fastmcp import FastMCP
from fastmcp.resources import TextResource


def main():
    server = FastMCP("index")
    entries = []
    for directory in sys.argv[1:]:
        for main_file in sorted(pathlib.Path(directory).rglob("SKILL.md")):
            scheme = "github" if entries else "skill"
            entries.append(add_skill(server, f"{scheme}://Demo/{main_file.parent.name}", main_file))
    add_text(server, "skill://index.json", json.dumps({"skills": entries}))
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"listening http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    serve = server.run_http_async(
        show_banner=False, log_level="warning", path="/mcp", sockets=[listener]
    )
    asyncio.run(serve)


def add_skill(server, base, main_file):
    """Adds the text files of a skill as resources. Returns the entry of the index."""
    for file in main_file.parent.rglob("*"):
        if file.is_file():
            path = file.relative_to(main_file.parent).as_posix()
            add_text(server, f"{base}/{path}", file.read_text())
    fields = yaml.safe_load(main_file.read_text().split("---\n")[1])
    return {
        "type": "skill-md",
        "name": fields["name"],
        "description": fields["description"],
        "url": f"{base}/SKILL.md",
    }


def add_text(server, uri, text):
    server.add_resource(TextResource(uri=uri, name=uri, text=text))


main()
