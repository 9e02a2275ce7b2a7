"""An agent of Pydantic AI with a fake model."""

import json
from typing import Any

from common import READ, own_tools, page_program, run
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

import caproot


async def work() -> None:
    turns: list[Any] = []

    async def respond(messages: list[Any], info: Any) -> ModelResponse:
        turns.append(messages)
        names = [tool.name for tool in info.function_tools]
        assert len(names) == 4
        assert "- triage-logs:" in messages[0].parts[0].content and not messages[0].instructions
        if len(turns) == 1:
            calls = [ToolCallPart(names[1], READ), ToolCallPart("count", {"text": "a b c"})]
            return ModelResponse(parts=calls)
        return ModelResponse(parts=[TextPart("done")])

    await page_program("Pydantic AI")(FunctionModel(respond), ["Look at the log."], own_tools())
    outputs = [part.content for part in turns[1][-1].parts if isinstance(part, ToolReturnPart)]
    assert "# Triage a log" in json.loads(outputs[0])["contents"]
    assert json.loads(outputs[1]) == {"result": 3}

    # An agent that was made before gets the tools for a run.
    turns.clear()
    agent = Agent(FunctionModel(respond))
    async with caproot.connect(tools=own_tools()) as skills:
        toolset: Any = FunctionToolset(skills.pydantic_ai())
        result = await agent.run(skills.text, toolsets=[toolset])
    assert result.output == "done" and len(turns) == 2


run(work)
