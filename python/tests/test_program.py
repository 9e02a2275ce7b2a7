"""The bridge between the runtime and asyncio."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import weakref
from typing import Any

import pytest
from conftest import run_with_asyncio

import caproot
from caproot import _host


def count_descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_many_calls_at_once(run: Any, demo: str) -> None:
    async def work() -> None:
        async with caproot.connect(demo) as skills:
            read = skills.tools[1]["name"]
            skill = (await skills.list())[1]
            arguments = {
                "authority": {"kind": "executor", "id": "demo"},
                "package": skill.package,
                "resource": "",
            }
            results = await asyncio.gather(*(skills.call(read, arguments) for _ in range(200)))
            assert all(result.ok for result in results)
            assert len({result.text for result in results}) == 1

    run(work())


def test_a_cancelled_call_cancels_the_tool(run: Any, demo: str) -> None:
    tools = caproot.Tools()
    seen: list[str] = []

    async def work() -> None:
        started, ended = asyncio.Event(), asyncio.Event()

        @tools.tool(description="Waits.", input_schema={"type": "object"})
        async def wait() -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise
            finally:
                ended.set()

        async with caproot.connect(demo, tools=tools) as skills:
            call = asyncio.ensure_future(skills.call("wait"))
            await started.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await ended.wait()
            # Other calls go on.
            assert len(await skills.list()) == 3

            # The end of the session, too.
            started.clear()
            ended.clear()
            call = asyncio.ensure_future(skills.call("wait"))
            await started.wait()
        assert (await call).json()["error"]["code"] == "SESSION_CLOSED"
        await ended.wait()

    run(work())
    assert seen == ["cancelled", "cancelled"]


def test_a_session_belongs_to_its_loop(run: Any, demo: str) -> None:
    sessions: list[caproot.Session] = []

    async def begin() -> None:
        sessions.append(await caproot.connect(demo))

    async def use() -> None:
        for work in (sessions[0].list, lambda: sessions[0].call("x")):
            with pytest.raises(RuntimeError, match="another event loop"):
                await work()
        with pytest.raises(RuntimeError, match="another event loop"):
            sessions[0].changes()

    run(begin())
    run(use())
    # The loop of the session is closed, and the session can be dropped.
    assert "triage-logs" in sessions[0].text
    sessions.clear()
    gc.collect()
    with pytest.raises(RuntimeError, match="no running event loop"):
        caproot.connect(demo).__await__().send(None)


def test_another_thread_may_call(demo: str) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        async with caproot.connect(demo) as skills:

            def from_thread() -> int:
                future = asyncio.run_coroutine_threadsafe(skills.list(), loop)
                return len(future.result(30))

            assert await asyncio.to_thread(from_thread) == 3

    run_with_asyncio(work())


def test_sessions_leave_no_descriptor_and_no_cycle(run: Any, demo: str) -> None:
    async def work() -> None:
        fleet = caproot.Fleet({"local": demo})
        location = {"type": "environment", "environmentId": "local", "path": "published:demo"}
        roots = [{"id": "demo", "location": location}]
        first = await caproot.connect(fleet=fleet, roots=roots)
        before = count_descriptors()
        sessions = [await caproot.connect(fleet=fleet, roots=roots) for _ in range(1000)]
        assert count_descriptors() == before
        assert len(await sessions[-1].list()) == 3

        # Without the collector of cycles, the last reference ends a session.
        gc.collect()
        gc.disable()
        try:
            watched = [weakref.ref(session) for session in sessions]
            sessions.clear()
            assert not any(reference() for reference in watched)
            for _ in range(10):
                async with caproot.connect(demo) as skills:
                    await skills.list()
        finally:
            gc.enable()
        await first.close()

    before = count_descriptors()
    run(work())
    assert count_descriptors() <= before
    assert _host.ProgramHost.current().states == {}


def test_calls_take_no_memory(demo: str) -> None:
    tools = caproot.Tools()

    @tools.tool(description="Returns its argument.", input_schema={"type": "object"})
    async def echo(**arguments: Any) -> Any:
        return arguments

    async def work() -> int:
        async with caproot.connect(demo, tools=tools) as skills:
            listing = skills.tools[0]["name"]

            async def repeat(count: int) -> int:
                for _ in range(count):
                    assert (await skills.call(listing, {})).ok
                for _ in range(count // 100):
                    await asyncio.gather(*(skills.call("echo", {"a": 1}) for _ in range(5)))
                return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

            before = await repeat(5_000)
            return await repeat(100_000 if "CAPROOT_LONG_TESTS" in os.environ else 10_000) - before

    assert asyncio.run(work()) < 4_096  # KiB


def test_logs_reach_logging(run: Any, demo: str, caplog: pytest.LogCaptureFixture) -> None:
    tools = caproot.Tools()
    problems: list[dict[str, Any]] = []

    @tools.tool(description="Fails.", input_schema={"type": "object"})
    async def fail() -> None:
        raise KeyError("secret")

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, problem: problems.append(problem))
        async with caproot.connect(demo, tools=tools) as skills:
            result = await skills.call("fail")
            assert result.json()["error"]["code"] == "TOOL_INTERNAL_ERROR"
            assert "secret" not in result.text
            while not any("secret" in record.getMessage() for record in caplog.records):
                await skills.call("fail")

    with caplog.at_level(logging.WARNING, logger="caproot"):
        run(work())
    assert isinstance(problems[0]["exception"], KeyError)
    assert problems[0]["exception"].__traceback__ is not None


def test_a_child_begins_a_session_of_its_own(demo: str) -> None:
    tools = caproot.Tools()

    @tools.tool(description="Returns the process.", input_schema={"type": "object"})
    async def process() -> int:
        return os.getpid()

    fleet = caproot.Fleet({"local": demo})

    async def in_child() -> None:
        async with caproot.connect(fleet=fleet, tools=tools) as skills:
            assert len(await skills.list()) == 3
            assert os.getpid() in (await skills.call("process")).json().values()

    async def work() -> None:
        async with caproot.connect(fleet=fleet, tools=tools) as skills:
            await skills.list()
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    for use in (lambda: skills.text, lambda: skills.tools, skills.fork, skills.changes):
                        with pytest.raises((caproot.ForkedError, RuntimeError)):
                            use()
                    with pytest.raises(caproot.ForkedError):
                        skills.save()
                    # In a thread, as the loop of the parent runs in this one.
                    errors: list[BaseException] = []

                    def begin() -> None:
                        try:
                            run_with_asyncio(in_child())
                        except BaseException as error:
                            errors.append(error)

                    thread = threading.Thread(target=begin)
                    thread.start()
                    thread.join(30)
                    assert not errors and not thread.is_alive(), errors
                    code = 0
                except BaseException:
                    import traceback

                    traceback.print_exc()
                finally:
                    os._exit(code)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
            # The parent's session goes on.
            assert len(await skills.list()) == 3
            assert os.getpid() in (await skills.call("process")).json().values()

    run_with_asyncio(work())


PROGRAM = """
import asyncio, signal, sys, caproot

# A program in the background of a shell ignores Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

async def main():
    skills = await caproot.connect(sys.argv[1])
    await skills.list()
    print("ready", flush=True)
    if sys.argv[2] == "exit":
        sys.exit(7)
    if sys.argv[2] == "wait":
        async for _ in skills.changes():
            pass

if sys.argv[2] == "sync":
    import caproot.sync
    skills = caproot.sync.connect(sys.argv[1])
    print("ready", flush=True)
    for _ in skills.changes():
        pass
if sys.argv[2] == "new":
    loop = asyncio.new_event_loop()
    kept = loop.run_until_complete(caproot.connect(sys.argv[1]))
    loop.close()
else:
    asyncio.run(main())
"""


def run_program(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-X", "dev", "-c", PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(("mode", "code"), [("return", 0), ("exit", 7), ("new", 0)])
def test_the_interpreter_exits_with_open_sessions(demo: str, mode: str, code: int) -> None:
    program = run_program(demo, mode)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == code, errors
    assert "Traceback" not in errors.replace("SystemExit", "") or mode == "exit"


@pytest.mark.parametrize("mode", ["wait", "sync"])
def test_ctrl_c_ends_a_program(demo: str, mode: str) -> None:
    program = run_program(demo, mode)
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert program.returncode in (-signal.SIGINT, 1, 130), errors
    assert "KeyboardInterrupt" in errors


def test_context_variables_reach_a_tool(run: Any, demo: str) -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")
    tools = caproot.Tools()

    @tools.tool(description="Returns the user.", input_schema={"type": "object"})
    async def in_loop() -> str:
        await asyncio.sleep(0)
        return user.get()

    @tools.tool(description="Returns the user.", input_schema={"type": "object"})
    def in_thread() -> str:
        return user.get()

    async def work() -> None:
        async with caproot.connect(demo, tools=tools) as skills:

            async def call(name: str, number: int) -> None:
                user.set(f"user-{number}")
                result = await skills.call(name)
                assert f"user-{number}" in result.text, result

            calls = (call(name, number) for number in range(50) for name in ("in_loop", "in_thread"))
            await asyncio.gather(*calls)

    run(work())
