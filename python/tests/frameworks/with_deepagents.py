"""A deep agent with the skills of a session as its own skills."""

from typing import Any

from common import FILE, SKILL, page_program, run
from deepagents import create_deep_agent
from deepagents.backends import CompositeBackend, StateBackend
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage

import caproot
from caproot.deepagents import Backend

PROMPTS: list[str] = []
OUTPUTS: list[str] = []


class FakeModel(GenericFakeChatModel):
    """Model with messages that are given."""

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: Any, *rest: Any, **more: Any) -> Any:
        PROMPTS.append(str(messages[0].content))
        OUTPUTS.extend(str(message.content) for message in messages if isinstance(message, ToolMessage))
        return super()._generate(messages, *rest, **more)


async def work() -> None:
    call = {
        "name": "read_file",
        "args": {"file_path": "/skills/triage-logs/references/patterns.md"},
        "id": "1",
        "type": "tool_call",
    }
    messages = iter([AIMessage(content="", tool_calls=[call]), AIMessage(content="done")])
    await page_program("deepagents")(FakeModel(messages=messages), ["Look at the log."])
    (output,) = OUTPUTS
    assert FILE.splitlines()[0] in output
    for name in ("triage-logs", "write-changelog", "review-diff"):
        assert f"/skills/{name}/SKILL.md" in PROMPTS[0], PROMPTS[0]

    async with caproot.connect() as skills:
        backend = Backend(skills)
        page = await backend.aread("/skills/triage-logs/SKILL.md", 1, 2)
        assert page.file_data is not None and page.next_offset == 3
        assert page.file_data["content"] == "".join(SKILL.splitlines(keepends=True)[1:3])
        (missing, whole) = await backend.adownload_files(["/skills/none/SKILL.md", "/skills/triage-logs/SKILL.md"])
        assert missing.error == "file_not_found" and whole.content == SKILL.encode()
        for path in ("/skills/triage-logs", "/etc/passwd", "/skills/../etc/passwd"):
            assert (await backend.aread(path)).error
        assert (await backend.awrite("/skills/x", "")).error == "permission_denied"
        assert "ainvoke" in str(backend.ls("/skills").error)

        # A route of another backend, whose name is not in the paths of the backend.
        PROMPTS.clear()
        OUTPUTS.clear()
        for route, directory in (("/skills/", "/skills/"), ("/kit/", "/kit/skills/"), ("/kit/", "/kit/")):
            routes: Any = {route: Backend(skills)}
            composite = CompositeBackend(default=StateBackend(), routes=routes)
            path = f"{directory}triage-logs/references/patterns.md"
            again = {**call, "args": {"file_path": path}}
            messages = iter([AIMessage(content="", tool_calls=[again]), AIMessage(content="done")])
            agent: Any = create_deep_agent(FakeModel(messages=messages), backend=composite, skills=[directory])
            await agent.ainvoke({"messages": [("user", "Look at the log.")]})
            assert f"{directory}triage-logs/SKILL.md" in PROMPTS.pop(), route
            assert FILE.splitlines()[0] in OUTPUTS.pop(), route
            PROMPTS.clear()
            OUTPUTS.clear()


run(work)
