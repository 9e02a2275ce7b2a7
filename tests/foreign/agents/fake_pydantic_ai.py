"""Fake model of Pydantic AI."""

from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from received import READ, Received, run
from with_pydantic_ai import answer

received = Received()


async def respond(messages, info):
    received.add_tools((tool.name, tool.description) for tool in info.function_tools)
    results = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    received.results += [str(part.content) for part in results]
    return ModelResponse(parts=[TextPart("done") if results else ToolCallPart("skills_read", READ)])


run(answer, FunctionModel(respond), received)
