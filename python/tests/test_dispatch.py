"""Dispatchers with a platform in Python."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import caproot


class Platform:
    """Manager and thread in memory. `broken` makes it fail."""

    def __init__(self) -> None:
        self.pending: dict[str, Any] = {}
        self.answers: dict[str, caproot.ToolResult] = {}
        self.turns: list[Any] = []
        self.broken = False

    def add(self, request_id: str, tool: str, arguments: Any, thread: str = "thread-1") -> None:
        self.pending[request_id] = {
            "request_id": request_id,
            "session_id": thread,
            "tool": tool,
            "arguments": arguments,
        }

    async def list_pending(self, token: str | None, limit: int) -> Any:
        await asyncio.sleep(0)
        if self.broken:
            raise OSError("the platform is down")
        calls = list(self.pending.values())
        first = int(token or 0)
        after = first + 2
        return {"calls": calls[first:after], "next_token": str(after) if after < len(calls) else None}

    async def submit_result(self, request_id: str, result: caproot.ToolResult) -> Any:
        if request_id not in self.pending:
            return "not_found"
        del self.pending[request_id]
        self.answers[request_id] = result
        return None

    async def send_turn(self, turn: Any) -> None:
        if self.broken:
            raise OSError("the platform is down")
        self.turns.append(turn)
        self.add("turn", "count", {"text": "a b"})

    async def status(self) -> str:
        return "completed" if "turn" in self.answers else "running"


def own_tools() -> caproot.Tools:
    tools = caproot.Tools()

    @tools.tool
    async def count(text: str) -> int:
        """Counts words."""
        return len(text.split())

    return tools


def test_pending_calls_are_answered(run: Any, demo: str) -> None:
    platform = Platform()

    async def work() -> None:
        async with caproot.connect(demo, tools=own_tools()) as skills:
            for number in range(5):
                platform.add(f"call-{number}", "count", {"text": "a " * number})
            platform.add("list", skills.tools[0]["name"], {})
            platform.add("unknown", "none", {})
            platform.add("other", "count", {"text": ""}, thread="thread-2")
            dispatcher = skills.dispatcher("thread-1", platform)
            drained = await dispatcher.drain()
            assert (drained["accepted"], drained["failed"], drained["complete"]) == (7, 0, True)
            assert list(platform.pending) == ["other"]
            assert platform.answers["call-3"].json() == {"result": 3}
            assert platform.answers["list"].external and not platform.answers["unknown"].ok

            platform.broken = True
            with pytest.raises(caproot.DispatchError, match="the platform is down"):
                await dispatcher.drain()

    run(work())


def test_pushed_calls_are_answered_once(run: Any, demo: str) -> None:
    platform = Platform()

    async def work() -> None:
        async with caproot.connect(demo, tools=own_tools()) as skills:
            dispatcher = skills.dispatcher("thread-1", platform)
            platform.add("one", "count", {"text": "a"})
            call: Any = platform.pending["one"]
            answer = await dispatcher.dispatch(call)
            assert answer["outcome"] == "accepted" and answer["record"]["success"]
            assert (await dispatcher.dispatch(call))["outcome"] == "alreadyKnown"
            other: Any = {**call, "session_id": "x"}
            assert (await dispatcher.dispatch(other))["outcome"] == "ignored"
            gone: Any = {**call, "request_id": "gone"}
            assert (await dispatcher.dispatch(gone))["outcome"] == "notFound"
            with pytest.raises(caproot.DispatchError):
                await dispatcher.drain()
            invalid: list[Any] = [{}, {**call, "request_id": ""}]
            for bad in invalid:
                with pytest.raises(ValueError, match="invalid call"):
                    await dispatcher.dispatch(bad)

    run(work())


def test_a_turn_runs_to_its_end(run: Any, demo: str) -> None:
    platform = Platform()

    async def work() -> None:
        async with caproot.connect(demo, tools=own_tools()) as skills:
            dispatcher = skills.dispatcher("thread-1", platform, thread=platform)
            turn = await dispatcher.run_turn({"input": "hi"}, ["completed", "failed"])
            assert turn["status"] == "completed" and turn["drained"]["accepted"] == 1
            assert platform.turns == [{"input": "hi"}]
            assert (await dispatcher.run_turn(None, ["completed"]))["status"] == "completed"

            platform.broken = True
            with pytest.raises(caproot.DispatchError, match="the platform is down"):
                await dispatcher.run_turn({}, ["completed"])
            with pytest.raises(caproot.DispatchError, match="no terminal status"):
                await dispatcher.run_turn({}, [])

            slow = skills.dispatcher("thread-1", Platform(), thread=Platform(), turn_timeout=0.2)
            with pytest.raises(caproot.DispatchError, match="no status"):
                await slow.run_turn({}, ["completed"])

    run(work())


def test_mistakes_are_named(run: Any, demo: str) -> None:
    async def work() -> None:
        async with caproot.connect(demo) as skills:
            platform = Platform()
            with pytest.raises(TypeError, match="manager must have the method list_pending"):
                skills.dispatcher("t", object())  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="thread must have the method send_turn"):
                skills.dispatcher("t", platform, thread=object())  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="thread="):
                await skills.dispatcher("t", platform).run_turn({}, ["completed"])
            with pytest.raises(ValueError, match="max_in_flight"):
                skills.dispatcher("t", platform, max_in_flight=0)
            with pytest.raises(caproot.ConfigError) as error:
                skills.dispatcher("t", platform, turn_timeout=-1, answer_timeout=0)
            assert len(error.value.mistakes) == 2

    run(work())
