"""Functions as tools."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import sys
import threading
from typing import Any, Literal, Optional

import pytest
from typing_extensions import TypedDict

import caproot


class Place(TypedDict):
    """A place."""

    city: str
    zip: Optional[int]


@dataclasses.dataclass
class Box:
    """A box."""

    name: str
    inner: list[Place]


@dataclasses.dataclass
class Node:
    value: int
    children: list[Node]


class Unit(enum.Enum):
    METER = "m"
    FOOT = "ft"


def definition(tools: caproot.Tools, name: str, demo: str) -> dict[str, Any]:
    async def work() -> dict[str, Any]:
        async with caproot.connect(demo, tools=tools.copy()) as skills:
            (found,) = [tool for tool in skills.tools if tool["name"] == name]
            return dict(found)

    return asyncio.run(work())


def call(tools: caproot.Tools, demo: str, name: str, arguments: dict[str, Any] | None = None) -> caproot.ToolResult:
    async def work() -> caproot.ToolResult:
        async with caproot.connect(demo, tools=tools.copy()) as skills:
            return await skills.call(name, arguments)

    return asyncio.run(work())


def test_a_schema_comes_from_the_signature(demo: str) -> None:
    tools = caproot.Tools()

    @tools.tool
    async def measure(
        box: Box, unit: Unit = Unit.METER, mode: Literal["fast", "exact"] = "fast", places: int = 2
    ) -> dict[str, Any]:
        """Measures a box.

        Takes its time.

        Args:
            box: Box to measure,
                with all inner boxes.
            unit (Unit): Unit of the result.

        Returns:
            The size.
        """
        return {"box": box.name, "city": box.inner[0]["city"], "unit": unit, "places": places}

    found = definition(tools, "measure", demo)
    assert found["description"] == "Measures a box.\n\nTakes its time."
    schema = found["input_schema"]
    assert schema["required"] == ["box"] and schema["additionalProperties"] is False
    properties = schema["properties"]
    assert properties["box"]["description"] == "Box to measure, with all inner boxes."
    assert properties["unit"]["enum"] == ["m", "ft"] and properties["unit"]["default"] == "m"
    assert properties["mode"]["enum"] == ["fast", "exact"]
    assert properties["box"]["properties"]["inner"]["items"]["properties"]["city"] == {"type": "string"}
    assert "$ref" not in str(schema) and "title" not in str(schema)

    box = {"name": "b", "inner": [{"city": "Ulm", "zip": None}]}
    result = call(tools, demo, "measure", {"box": box, "unit": "ft"})
    assert result.ok and not result.external
    assert result.json() == {"box": "b", "city": "Ulm", "unit": "ft", "places": 2}
    result = call(tools, demo, "measure", {"box": {"name": 5, "inner": []}, "more": 1})
    assert result.json()["error"]["code"] == "INVALID_ARGUMENTS"
    assert "/box/name" in result.text


def test_a_type_that_contains_itself_keeps_its_reference(demo: str) -> None:
    tools = caproot.Tools()

    @tools.tool
    def total(tree: Node) -> int:
        """Sums a tree."""
        return tree.value + sum(total(child) for child in tree.children)

    schema = definition(tools, "total", demo)["input_schema"]
    assert list(schema["$defs"]) == ["Node"]
    arguments = {"tree": {"value": 1, "children": [{"value": 2, "children": []}]}}
    assert call(tools, demo, "total", arguments).json() == {"result": 3}


def test_results_are_json(demo: str) -> None:
    tools = caproot.Tools()
    values: list[object] = [None, 1.5, "text", [1, "ä"], {"a": None}, Box("b", []), {1, 2}]

    @tools.tool
    def value(index: int) -> object:
        """Returns a value."""
        return values[index]

    @tools.tool(time_limit=5)
    async def no_json() -> object:
        """Returns an object."""
        return object()

    @tools.tool
    async def large() -> str:
        """Returns a long text."""
        return "x" * 10_000

    for index, expected in enumerate([None, 1.5, "text", [1, "ä"], {"a": None}, {"name": "b", "inner": []}]):
        result = call(tools, demo, "value", {"index": index}).json()
        assert result in (expected, {"result": expected}), result
    assert call(tools, demo, "no_json").json()["error"]["code"] == "TOOL_INTERNAL_ERROR"
    assert not call(tools, demo, "large").ok


def test_words_and_defects_are_told_apart(demo: str) -> None:
    tools = caproot.Tools()

    @tools.tool
    async def fail(how: str) -> None:
        """Fails."""
        if how == "words":
            raise caproot.ToolError("the text has no words")
        if how == "cancel":
            raise asyncio.CancelledError
        raise ValueError("secret")

    error = call(tools, demo, "fail", {"how": "words"}).json()["error"]
    assert error["code"] == "TOOL_FAILED" and "the text has no words" in error["message"]
    for how in ("bug", "cancel"):
        result = call(tools, demo, "fail", {"how": how})
        assert result.json()["error"]["code"] == "TOOL_INTERNAL_ERROR"
        assert "secret" not in result.text


def test_a_time_limit_cancels_the_coroutine(demo: str) -> None:
    tools = caproot.Tools()
    cancelled = threading.Event()

    @tools.tool(time_limit=0.05)
    async def wait() -> None:
        """Waits."""
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    assert call(tools, demo, "wait").json()["error"]["code"] == "TOOL_TIMED_OUT"
    assert cancelled.wait(10)


def test_the_start_of_a_session_seals_the_tools(demo: str) -> None:
    tools = caproot.Tools()

    @tools.tool(namespace="words", external=True, output_description="The number of words.")
    def count(text: str) -> int:
        """Counts words."""
        return len(text.split())

    assert tools.names == ["words.count"] and not tools.is_sealed

    async def work() -> None:
        async with caproot.connect(demo, tools=tools) as skills:
            assert tools.is_sealed
            for change in (lambda: tools.register(count), lambda: tools.unregister("words.count")):
                with pytest.raises(caproot.SealedError):
                    change()
            assert "The number of words." in skills.text
            name = skills.tools[-1]["name"]
            result = await skills.call(name, {"text": "a b"})
            assert result.external and result.json() == {"result": 2}
            # A fork has the same tools.
            fork = skills.fork()
            await skills.close()
            assert (await fork.call(name, {"text": "a"})).json() == {"result": 1}
            await fork.close()

    asyncio.run(work())
    copy = tools.copy()
    copy.unregister("words.count")
    assert copy.names == [] and tools.names == ["words.count"]
    with pytest.raises(KeyError):
        copy.unregister("words.count")


def test_mistakes_of_a_tool_are_config_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = caproot.Tools()
    schema = {"type": "object"}

    def plain(a: int) -> None:
        """Does nothing."""

    def untyped(a, *rest, **more):  # type: ignore[no-untyped-def]
        """Does nothing."""

    tools.register(plain)
    for function, options, words in (
        (plain, {}, "there is a tool"),
        (plain, {"name": "a b"}, "a b"),
        (plain, {"name": "other", "namespace": "skills"}, "reserved"),
        (plain, {"name": "other", "time_limit": 0}, "time limit"),
        (plain, {"name": "other", "time_limit": -1}, "time limit"),
        (plain, {"name": "other", "input_schema": {"type": "string"}}, "object"),
        (lambda: None, {"name": "other", "input_schema": schema}, "description"),
        (plain, {"name": "other", "description": "x" * 5_000}, "4096"),
    ):
        with pytest.raises(caproot.ConfigError, match=words):
            tools.register(function, **options)
    with pytest.raises(caproot.ConfigError) as error:
        tools.register(untyped)
    assert len(error.value.mistakes) == 3
    with pytest.raises(TypeError, match="function"):
        tools.register(5)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="time_limit"):
        tools.register(plain, time_limit="5")  # type: ignore[arg-type]
    assert tools.names == ["plain"]

    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(caproot.ConfigError, match="input_schema=, or the package pydantic"):
        tools.register(plain, name="other")
    tools.register(plain, name="other", input_schema=schema)
