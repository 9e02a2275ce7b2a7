"""The in-process server of claude-agent-sdk, without the SDK's command line."""

import json
from collections.abc import AsyncIterator
from typing import Any

from common import READ, own_tools, page_program, run

import caproot
from caproot import _frameworks


async def work() -> None:
    prompts: list[str] = []

    async def query(prompt: str, options: Any) -> AsyncIterator[str]:
        prompts.append(prompt)
        assert options.mcp_servers["caproot"]["type"] == "sdk"
        yield "done"

    await page_program("Claude Agent SDK")(["Look at the log."], own_tools(), query)
    assert "- triage-logs:" in prompts[0]

    async with caproot.connect(tools=own_tools()) as skills:
        server = skills.claude()
        assert server["type"] == "sdk" and server["name"] == "caproot" and server["alwaysLoad"] is True

        tools = {tool.name: tool for tool in _frameworks.claude_tools(skills)}
        listing, read, _search, count = tools.values()
        assert f"`mcp__caproot__{read.name}`" in skills.claude_text
        assert skills.claude_text.replace("mcp__caproot__", "") == skills.text
        page = await read.handler(READ)
        assert "# Triage a log" in json.loads(page["content"][0]["text"])["contents"]
        assert not page["is_error"]
        assert json.loads((await count.handler({"text": "a b c"}))["content"][0]["text"]) == {"result": 3}
        assert (await listing.handler({"cursor": "x"}))["is_error"]


run(work)
