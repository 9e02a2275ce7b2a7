"""Checks the options of claude-agent-sdk, and the server that they start."""

import asyncio

from mcp import StdioServerParameters
from mcp.client import Client
from received import check, Received, NEW, READ, write_skill
from with_claude import OPTIONS


async def work():
    (name, server), = OPTIONS.mcp_servers.items()
    assert OPTIONS.allowed_tools == [f"mcp__{name}"] and server.pop("type") == "stdio"
    received = Received()
    async with Client(StdioServerParameters(**server)) as client:
        async def add_tools():
            listed = await client.list_tools()
            received.add_tools((tool.name, tool.description) for tool in listed.tools)

        await add_tools()
        result = await client.call_tool("skills_read", READ)
        received.results.append(result.content[0].text)
        write_skill(NEW)
        while NEW not in received.tools[-1]["skills_read"]:
            await add_tools()
    check(received)


asyncio.run(asyncio.wait_for(work(), 60))
