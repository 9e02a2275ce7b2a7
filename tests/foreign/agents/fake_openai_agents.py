"""Fake model of openai-agents."""

import json

from agents import ModelResponse, Usage, set_tracing_disabled
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from received import READ, Received, run
from with_openai_agents import answer

set_tracing_disabled(True)
received = Received()


class FakeModel(Model):
    """Reads a skill, and ends."""

    async def get_response(self, system_instructions, input, model_settings, tools, *rest, **more):
        received.add_tools((tool.name, tool.description) for tool in tools)
        outputs = [item["output"] for item in input if isinstance(item, dict) and item.get("type") == "function_call_output"]
        received.results += [json.dumps(output) if not isinstance(output, str) else output for output in outputs]
        if outputs:
            text = ResponseOutputText(type="output_text", text="done", annotations=[])
            output = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        else:
            arguments = json.dumps(READ)
            output = ResponseFunctionToolCall(type="function_call", call_id="c", name="skills_read", arguments=arguments)
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_, **__):
        raise NotImplementedError


run(answer, FakeModel(), received)
