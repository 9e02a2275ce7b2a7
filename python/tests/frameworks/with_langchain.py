"""An agent of LangChain with a fake model."""

import json
from typing import Any

from common import READ, own_tools, run
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage

import caproot


class FakeModel(GenericFakeChatModel):
    """Model with messages that are given."""

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        assert len(tools) == 3
        return self


async def work(address: str) -> None:
    async with caproot.connect(address, tools=own_tools()) as skills:
        names = [tool["name"] for tool in skills.tools]
        calls = [
            {"name": names[1], "args": READ, "id": "1", "type": "tool_call"},
            {"name": "count", "args": {"text": "a b c"}, "id": "2", "type": "tool_call"},
            {"name": names[0], "args": {"cursor": "x"}, "id": "3", "type": "tool_call"},
        ]
        messages = iter([AIMessage(content="", tool_calls=calls), AIMessage(content="done")])
        agent = create_agent(FakeModel(messages=messages), skills.langchain())
        prompt = {"role": "user", "content": f"{skills.text}\n\nLook at the log."}
        result = await agent.ainvoke({"messages": [prompt]})
    outputs = {message.tool_call_id: message.content for message in result["messages"] if isinstance(message, ToolMessage)}
    assert "# Triage a log" in json.loads(outputs["1"])["contents"]
    assert json.loads(outputs["2"]) == {"result": 3}
    assert json.loads(outputs["3"])["error"]["code"] == "INVALID_CURSOR"
    assert result["messages"][-1].content == "done"


run(work)
