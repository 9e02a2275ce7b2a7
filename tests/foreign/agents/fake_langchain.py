"""Fake model of LangChain."""

import itertools

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage

from received import READ, Received, run
from with_langchain import answer

received = Received()
CALL = {"name": "skills_read", "args": READ, "id": "1", "type": "tool_call"}
MESSAGES = itertools.cycle([("", [CALL]), ("done", [])])


class FakeModel(GenericFakeChatModel):
    """Reads a skill, and ends."""

    def bind_tools(self, tools, **_):
        received.add_tools((tool.name, tool.description) for tool in tools)
        return self

    def _generate(self, messages, *rest, **more):
        received.results += [str(message.content) for message in messages if isinstance(message, ToolMessage)]
        return super()._generate(messages, *rest, **more)


messages = (AIMessage(content=content, tool_calls=calls) for content, calls in MESSAGES)
run(answer, FakeModel(messages=messages), received)
