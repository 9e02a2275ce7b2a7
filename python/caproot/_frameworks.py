"""Adapters: the tools of a session as the tools of agent frameworks. Each framework is imported when its
adapter is called."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._session import Session

CLAUDE_SERVER = "caproot"
"""Name of the server in a Claude agent, which calls its tools `mcp__caproot__NAME`."""
RESULTS_HEADING = "\n## Results of tools\n"
"""Line before the results of own tools in the text of a session."""


def openai_agents(session: Session) -> list[Any]:
    """Returns `FunctionTool`s of openai-agents."""
    from agents import FunctionTool

    def make(name: str, description: str, schema: dict[str, Any]) -> Any:
        async def invoke(_: Any, arguments: str) -> str:
            return (await session.call(name, arguments)).text

        return FunctionTool(
            name=name,
            description=description,
            params_json_schema=schema,
            on_invoke_tool=invoke,
            # Strict schemas have no optional arguments.
            strict_json_schema=False,
        )

    return [make(tool["name"], tool["description"], tool["input_schema"]) for tool in session.tools]


def langchain(session: Session) -> list[Any]:
    """Returns `StructuredTool`s of langchain-core."""
    from langchain_core.tools import StructuredTool

    def make(name: str, description: str, schema: dict[str, Any]) -> Any:
        async def invoke(**arguments: Any) -> str:
            return (await session.call(name, arguments)).text

        return StructuredTool.from_function(
            coroutine=invoke, name=name, description=description, args_schema=schema
        )

    return [make(tool["name"], tool["description"], tool["input_schema"]) for tool in session.tools]


def pydantic_ai(session: Session) -> list[Any]:
    """Returns `Tool`s of pydantic-ai."""
    from pydantic_ai import Tool

    def make(name: str, description: str, schema: dict[str, Any]) -> Any:
        async def invoke(**arguments: Any) -> str:
            return (await session.call(name, arguments)).text

        return Tool.from_schema(invoke, name=name, description=description, json_schema=schema)

    return [make(tool["name"], tool["description"], tool["input_schema"]) for tool in session.tools]


def claude_tools(session: Session) -> list[Any]:
    """Returns `SdkMcpTool`s of claude-agent-sdk."""
    from claude_agent_sdk import SdkMcpTool

    def make(name: str, description: str, schema: dict[str, Any]) -> Any:
        async def invoke(arguments: dict[str, Any]) -> dict[str, Any]:
            result = await session.call(name, arguments)
            return {"content": [{"type": "text", "text": result.text}], "is_error": not result.ok}

        # The framework puts the prefix in front of the name again.
        short = name.removeprefix(f"mcp__{CLAUDE_SERVER}__")
        return SdkMcpTool(name=short, description=description, input_schema=schema, handler=invoke)

    return [make(tool["name"], tool["description"], tool["input_schema"]) for tool in session.tools]


def claude(session: Session) -> Any:
    """Returns an in-process MCP server of claude-agent-sdk, whose tools are always loaded."""
    from claude_agent_sdk import create_sdk_mcp_server

    server = create_sdk_mcp_server(name=CLAUDE_SERVER, tools=claude_tools(session))
    # Otherwise a model has to search for the tools first, and does not know that they exist.
    return {**server, "alwaysLoad": True}


def claude_text(session: Session) -> str:
    """Returns the text of a session with the names that a Claude agent gives to the tools."""
    return rename_tools(session, session.text, lambda name: f"mcp__{CLAUDE_SERVER}__{name}")


def rename_tools(session: Session, text: str, rename: Callable[[str], str]) -> str:
    """Returns a text of a session with other names of its tools. Lines of skills stay as they are, as third parties
    wrote them."""
    names = "|".join(re.escape(tool["name"]) for tool in session.tools)

    def replace(match: re.Match[str]) -> str:
        return match[1] + rename(match[2])

    skills, heading, results = text.partition(RESULTS_HEADING)
    lines = [
        line if line.startswith("- ") else re.sub(rf"(`)({names})(?=`)", replace, line) for line in skills.split("\n")
    ]
    return "\n".join(lines) + heading + re.sub(rf"^(- )({names})(?=:)", replace, results, flags=re.MULTILINE)
