"""An agent of LangChain with a fake model."""

import json
from typing import Any

from common import READ, own_tools, page_program, run
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage

import caproot

RESULTS: dict[str, str] = {}


class FakeModel(GenericFakeChatModel):
    """Model with messages that are given."""

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        assert len(tools) == 4
        return self

    def _generate(self, messages: Any, *rest: Any, **more: Any) -> Any:
        assert "- triage-logs:" in messages[0].content and messages[0].type == "human"
        RESULTS.update(
            {message.tool_call_id: str(message.content) for message in messages if isinstance(message, ToolMessage)}
        )
        return super()._generate(messages, *rest, **more)


async def work() -> None:
    calls = [
        {"name": "skills_read", "args": READ, "id": "1", "type": "tool_call"},
        {"name": "count", "args": {"text": "a b c"}, "id": "2", "type": "tool_call"},
        {"name": "skills_list", "args": {"cursor": "x"}, "id": "3", "type": "tool_call"},
    ]
    messages = iter([AIMessage(content="", tool_calls=calls), AIMessage(content="done")])
    await page_program("LangChain")(FakeModel(messages=messages), ["Look at the log."], own_tools())
    assert "# Triage a log" in json.loads(RESULTS["1"])["contents"]
    assert json.loads(RESULTS["2"]) == {"result": 3}
    assert json.loads(RESULTS["3"])["error"]["code"] == "INVALID_CURSOR"

    # A synchronous call is refused.
    async with caproot.connect() as skills:
        try:
            skills.langchain()[0].invoke({})
        except NotImplementedError:
            return
    raise AssertionError("a synchronous call")


run(work)
