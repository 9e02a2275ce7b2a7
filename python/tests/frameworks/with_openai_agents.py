"""An agent of openai-agents with a fake model."""

import json
from typing import Any

from agents import ModelResponse, Usage, set_tracing_disabled
from agents.models.interface import Model
from common import READ, own_tools, page_program, run
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

set_tracing_disabled(True)


class FakeModel(Model):
    """Reads a skill, counts words, and repeats the results."""

    def __init__(self) -> None:
        self.turns: list[Any] = []
        self.tools: list[str] = []

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> Any:
        self.turns.append(input)
        self.instructions = system_instructions
        tools = more["tools"] if "tools" in more else rest[1]
        self.tools = [tool.name for tool in tools]
        if len(self.turns) == 1:
            calls = [(self.tools[1], READ), ("count", {"text": "a b c"})]
            output: list[Any] = [
                ResponseFunctionToolCall(
                    type="function_call", call_id=f"c{number}", name=name, arguments=json.dumps(arguments)
                )
                for number, (name, arguments) in enumerate(calls)
            ]
        else:
            text = ResponseOutputText(type="output_text", text="done", annotations=[])
            output = [
                ResponseOutputMessage(
                    id="m", type="message", role="assistant", status="completed", content=[text]
                )
            ]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


async def work() -> None:
    model = FakeModel()
    await page_program("OpenAI Agents")(model, ["Look at the log."], own_tools())
    outputs = [item["output"] for item in model.turns[1] if item.get("type") == "function_call_output"]
    assert "# Triage a log" in json.loads(outputs[0])["contents"]
    assert json.loads(outputs[1]) == {"result": 3}
    assert len(model.tools) == 4 and "- triage-logs:" in str(model.turns[0])
    assert not model.instructions


run(work)
