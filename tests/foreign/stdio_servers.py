"""Uses stdio MCP servers of a plugin as ordinary stdio servers of a FastMCP client, through `caproot exec --server`:
one with FastMCP in Python, and one in Node.

    stdio_servers.py CAPROOT NODE

Run this with a Python that has fastmcp.
"""

import asyncio
import json
import os
import pathlib
import subprocess
import sys
import tempfile

PYTHON_SERVER = """
import os, pathlib
from fastmcp import FastMCP

server = FastMCP("notes")

@server.tool
def remember(text: str) -> str:
    "Remembers a text, and returns all."
    notes = pathlib.Path(os.environ["CLAUDE_PLUGIN_DATA"], "notes")
    with notes.open("a") as out:
        out.write(text + "\\n")
    return notes.read_text()

server.run(show_banner=False)
"""

NODE_SERVER = """
import { createInterface } from 'node:readline';
import { readFileSync } from 'node:fs';
const word = readFileSync(new URL('word.txt', import.meta.url), 'utf8').trim();
const schema = { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] };
const results = {
  initialize: (params) => ({
    protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'echo', version: '1' },
  }),
  'tools/list': () => ({ tools: [{ name: 'echo', description: 'Returns a text.', inputSchema: schema }] }),
  'tools/call': (params) => ({
    content: [{ type: 'text', text: `${word} ${params.arguments.text} ${process.env.MODE} ${process.env.HIDDEN}` }],
  }),
};
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue;
  const result = results[method]?.(params);
  const answer = result ? { result } : { error: { code: -32601, message: 'no such method' } };
  process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, ...answer }) + '\\n');
}
"""


SERVERS = {
    "notes": {"command": "python3", "args": ["${CLAUDE_PLUGIN_ROOT}/servers/notes.py"]},
    "echo": {"command": "node", "args": ["./echo.mjs"], "cwd": "./servers", "env": {"MODE": "${MODE:-read}"}},
}


def write_plugin(kit, servers):
    """Writes a plugin with the programs of both servers, which declares these servers."""
    for name, text in {
        ".claude-plugin/plugin.json": json.dumps({"name": kit.name}),
        ".mcp.json": json.dumps({"mcpServers": servers}),
        "servers/notes.py": PYTHON_SERVER,
        "servers/echo.mjs": NODE_SERVER,
        "servers/word.txt": "said",
    }.items():
        path = kit / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def call(command, variables, tool, text):
    """Starts a server by a command, and calls its only tool with FastMCP's client."""
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    transport = StdioTransport(command[0], command[1:], env=variables, keep_alive=False)
    async with Client(transport, timeout=60) as client:
        tools = await client.list_tools()
        assert [found.name for found in tools] == [tool], tools
        result = await client.call_tool(tool, {"text": text})
        return result.content[0].text


async def check(caproot, node, top):
    socket = f"unix:{top}/run/caproot.sock"
    (top / "run").mkdir(mode=0o700)
    write_plugin(top / "r" / "kit", SERVERS)
    daemon = subprocess.Popen(
        [caproot, "serve", "--root", f"r={top}/r", "--listen", socket], stdout=subprocess.PIPE, text=True
    )
    try:
        for line in daemon.stdout:
            if "listening" in line:
                break
        path = [os.path.dirname(sys.executable), os.path.dirname(node), os.environ["PATH"]]
        variables = {"PATH": ":".join(path), "HOME": str(top), "CAPROOT_ENDPOINT": socket, "HIDDEN": "x"}
        command = [caproot, "exec", "--server"]
        said = await call([*command, "skill://r/kit#echo"], variables, "echo", "hello")
        assert said == "said hello read undefined", said
        # The data of a server outlives its process.
        for text, expected in [("one", "one\n"), ("two", "one\ntwo\n")]:
            said = await call([*command, "skill://r/kit#notes"], variables, "remember", text)
            assert said == expected, said
    finally:
        daemon.terminate()
        daemon.wait()


def main():
    caproot, node = sys.argv[1:]
    with tempfile.TemporaryDirectory() as top:
        asyncio.run(check(caproot, node, pathlib.Path(top)))
    print("stdio servers of a plugin: ok")


if __name__ == "__main__":
    main()
