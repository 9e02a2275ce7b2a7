"""An agent of Pydantic AI with a fake model."""

import json
from typing import Any

from common import READ, own_tools, run
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

import caproot


async def work(address: str) -> None:
    turns: list[Any] = []

    async def respond(messages: list[Any], info: Any) -> ModelResponse:
        turns.append(messages)
        names = [tool.name for tool in info.function_tools]
        assert len(names) == 3
        if len(turns) == 1:
            calls = [ToolCallPart(names[1], READ), ToolCallPart("count", {"text": "a b c"})]
            return ModelResponse(parts=calls)
        return ModelResponse(parts=[TextPart("done")])

    async with caproot.connect(address, tools=own_tools()) as skills:
        agent = Agent(FunctionModel(respond), tools=skills.pydantic_ai())
        result = await agent.run(f"{skills.text}\n\nLook at the log.")
    assert result.output == "done"
    outputs = [part.content for part in turns[1][-1].parts if isinstance(part, ToolReturnPart)]
    assert "# Triage a log" in json.loads(outputs[0])["contents"]
    assert json.loads(outputs[1]) == {"result": 3}


run(work)
