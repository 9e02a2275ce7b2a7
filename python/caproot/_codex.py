"""Session for Codex as an orchestrator: the parts of `codex app-server`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._check import check_type
from ._frameworks import rename_tools

if TYPE_CHECKING:
    from ._session import Session

PRODUCT = "codex"
"""Product of Codex in the policy of a skill."""
_NAMESPACE = "skills"
_DESCRIPTION = "Skills: instructions by third parties for kinds of work."


class Codex:
    """Tools and text of a session for a thread of `codex app-server`, and the answers to its calls. `Session.codex`
    makes the object."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def tools(self) -> list[dict[str, Any]]:
        """Tools for `dynamicTools` of `thread/start`."""
        namespace: dict[str, Any] = {"type": "namespace", "name": _NAMESPACE, "description": _DESCRIPTION, "tools": []}
        tools = [namespace]
        for tool in self._session.tools:
            description = {"description": tool["description"], "inputSchema": tool["input_schema"]}
            short = tool["name"].removeprefix(f"{_NAMESPACE}_")
            # A deferred tool is hidden from the model until the model searches for it.
            function = {"type": "function", "name": short, **description, "deferLoading": False}
            members = tools if short == tool["name"] else namespace["tools"]
            members.append(function)
        return tools

    @property
    def text(self) -> str:
        """Text of now for `developerInstructions` of `thread/start`, with the names of these tools."""
        prefix = f"{_NAMESPACE}_"
        return rename_tools(self._session, self._session.text, lambda name: name.replace(prefix, f"{_NAMESPACE}.", 1))

    async def answer(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the result of the request `item/tool/call` with these parameters."""
        check_type("params", params, Mapping)
        namespace = params.get("namespace")
        name = f"{namespace}.{params['tool']}" if namespace else params["tool"]
        result = await self._session.call(name, params.get("arguments"))
        return {"contentItems": [{"type": "inputText", "text": result.text}], "success": result.ok}
