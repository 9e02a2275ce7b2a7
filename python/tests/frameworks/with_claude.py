"""The in-process server of claude-agent-sdk, without the SDK's command line."""

import json

from common import READ, own_tools, run

import caproot
from caproot import _frameworks


async def work(address: str) -> None:
    async with caproot.connect(address, tools=own_tools()) as skills:
        server = skills.claude()
        assert server["type"] == "sdk" and server["name"] == "caproot"

        tools = {tool.name: tool for tool in _frameworks.claude_tools(skills)}
        listing, read, count = tools.values()
        assert f"`{read.name}`" in skills.text
        page = await read.handler(READ)
        assert "# Triage a log" in json.loads(page["content"][0]["text"])["contents"]
        assert not page["is_error"]
        assert json.loads((await count.handler({"text": "a b c"}))["content"][0]["text"]) == {"result": 3}
        assert (await listing.handler({"cursor": "x"}))["is_error"]


run(work)
