"""Adapters: the tools of a session as the tools of agent frameworks. Each framework is imported when its
adapter is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._session import Session

CLAUDE_SERVER = "caproot"
"""Name of the server in a Claude agent, which calls its tools `mcp__caproot__NAME`."""


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
    """Returns an in-process MCP server of claude-agent-sdk."""
    from claude_agent_sdk import create_sdk_mcp_server

    return create_sdk_mcp_server(name=CLAUDE_SERVER, tools=claude_tools(session))
