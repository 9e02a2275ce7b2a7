"""Programs that are missing, broken, stopped or killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import run_with_asyncio, write_skill

import caproot
from caproot import _child, _host, _program

HELLO = json.dumps({"id": 1, "result": {"version": caproot.__version__, "maxInFlight": 256, "maxLineBytes": 5242880}})
OTHER = json.dumps({"id": 1, "result": {"version": "9.9.9"}})
UNKNOWN = json.dumps({"id": 1, "error": {"code": "BAD_REQUEST", "message": "unknown method"}})
OLD = 'if [ "$1" = --version ]; then echo "caproot 0.0.9"; else echo "unexpected argument" >&2; exit 2; fi'


def children(pid: int | None = None) -> list[int]:
    """Returns the programs `caproot call` of a process."""
    found = []
    for name in os.listdir("/proc"):
        try:
            stat = Path(f"/proc/{name}/stat").read_text()
            command = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        parent = int(stat.rpartition(")")[2].split()[1])
        if parent == (pid or os.getpid()) and b"call" in command:
            found.append(int(name))
    return found


@pytest.fixture
def short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_child, "PROGRAM_TIMEOUT", 0.5)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (f"read line; echo '{OTHER}'; cat >/dev/null", r"wrong version: .* is 9\.9\.9; install the wheel"),
        (OLD, r"wrong version: .* is 0\.0\.9"),
        (f"read line; echo '{UNKNOWN}'; cat >/dev/null", "wrong version: .* is of an older version"),
        ("read line; echo 'Hello!'; cat >/dev/null", "no JSON object: Hello!"),
        ("read line; echo '[1]'; cat >/dev/null", "no JSON object"),
        ("head -c 140000000 /dev/zero | tr '\\0' x; cat >/dev/null", "a line over 134217728 bytes"),
        ("echo 'cannot start: no memory' >&2; exit 7", "exit code 7: cannot start: no memory"),
        ("kill -9 $$", "ended with SIGKILL"),
        ("exec sleep 100", "did not answer within 0.5 s"),
        (f"read line; echo '{HELLO}'; exec sleep 100", "did not answer within 0.5 s"),
        ("exec >&-; exec sleep 100", "ended with SIGKILL"),
    ],
)
def test_a_broken_program_is_an_error(
    run: Any, script: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_time: None
) -> None:
    program = tmp_path / "caproot"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(_host, "find_programs", lambda: iter([str(program)]))

    async def work() -> None:
        with pytest.raises(caproot.ProgramError, match=words):
            await caproot.connect("unix:/none")

    run(work())
    assert children() == []


def test_a_program_of_another_version_is_passed_over(
    demo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = _program.find_program()
    (tmp_path / "caproot").write_text(f"#!/bin/sh\nread line; echo '{OTHER}'; cat >/dev/null\n")
    (tmp_path / "caproot").chmod(0o755)
    monkeypatch.setattr("sysconfig.get_path", lambda *_: str(tmp_path / "none"))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.path.dirname(own)}")

    async def work() -> None:
        async with caproot.connect(demo) as skills:
            assert len(await skills.list()) == 3

    run_with_asyncio(work())
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with pytest.raises(caproot.ConfigError, match="neither in the wheel nor on PATH: install the wheel"):
        run_with_asyncio(work())


def test_a_call_fails_with_its_program_and_the_next_restores_the_session(run: Any, demo: str) -> None:
    tools = caproot.Tools()

    @tools.tool(description="Kills the program.", input_schema={"type": "object"})
    async def die() -> None:
        os.kill(children()[0], signal.SIGKILL)
        await asyncio.Event().wait()

    @tools.tool(description="Returns 1.", input_schema={"type": "object"})
    async def one() -> int:
        return 1

    async def work() -> None:
        choice: Any = {"exclude": ["name:triage-logs"]}
        async with caproot.connect(demo, tools=tools, id="kept", choice=choice) as skills:
            fork = skills.fork()
            died, _ = await asyncio.gather(skills.call("die"), skills.list(), return_exceptions=True)
            assert isinstance(died, caproot.ProgramError) and "ended with SIGKILL" in str(died)
            with pytest.raises(caproot.ProgramError, match="await a method"):
                skills.save()
            for session in (fork, skills):
                assert len(await session.list()) == 2
                assert (await session.call("one")).json() == {"result": 1}
            assert skills.id == "kept" and json.loads(skills.save())["id"] == "kept"
            assert len(children()) == 1
            await fork.close()

    run(work())
    assert children() == []


def test_an_iteration_goes_on_with_a_new_program(run: Any, served: str, tree: Path) -> None:
    async def work() -> None:
        async with caproot.connect(served) as skills:
            changes = skills.changes()
            # A program that ends within a second is not started again.
            skills._state._attached_at -= 1
            os.kill(children()[0], signal.SIGKILL)
            assert await anext(changes) == {"kind": "executor", "id": "local"}
            write_skill(tree, "later")
            while "- later:" not in skills.text:
                await anext(changes)

        async with caproot.connect(served) as skills:
            changes = skills.changes()
            os.kill(children()[0], signal.SIGKILL)
            with pytest.raises(caproot.ProgramError, match="SIGKILL"):
                await anext(changes)
            # The session can still be used.
            assert len(await skills.list()) == 2

    run(work())


def test_a_stopped_program_is_killed(run: Any, demo: str, short_time: None) -> None:
    async def work() -> None:
        async with caproot.connect(demo) as skills:
            os.kill(children()[0], signal.SIGSTOP)
            calls = await asyncio.gather(*(skills.list() for _ in range(600)), return_exceptions=True)
            assert all("did not answer within 0.5 s" in str(call) for call in calls)
            assert len(await skills.list()) == 3

            os.kill(children()[0], signal.SIGSTOP)
            with pytest.raises(caproot.ProgramError, match="did not answer"):
                skills.executors()
            assert len(await skills.list()) == 3
            os.kill(children()[0], signal.SIGSTOP)

    run(work())
    assert children() == []


def test_sessions_of_all_loops_and_threads_share_one_program(demo: str) -> None:
    import caproot.sync

    async def work() -> None:
        async with caproot.connect(demo) as skills:
            (program,) = children()
            with caproot.sync.connect(demo) as other:
                assert len(other.list()) == 3 and len(other.executors()) == 1
                answers: list[int] = []

                async def use() -> None:
                    async with caproot.connect(demo) as own:
                        for _ in range(50):
                            answers.append(len(await own.list()) + len(own.executors()))

                threads = [threading.Thread(target=lambda: asyncio.run(use())) for _ in range(4)]
                for thread in threads:
                    thread.start()
                for _ in range(50):
                    assert len(await skills.list()) == 3
                for thread in threads:
                    await asyncio.to_thread(thread.join, 30)
                assert answers == [4] * 200
                assert children() == [program]
            assert len(await skills.list()) == 3

    run_with_asyncio(work())
    assert children() == []


def test_more_calls_than_the_program_takes_wait(run: Any, demo: str) -> None:
    tools = caproot.Tools()

    async def work() -> None:
        release = asyncio.Event()

        @tools.tool(description="Waits.", input_schema={"type": "object"})
        async def wait() -> None:
            await release.wait()

        async with caproot.connect(demo, tools=tools) as skills:
            calls = [asyncio.ensure_future(skills.list()) for _ in range(600)]
            waiting = [asyncio.ensure_future(skills.call("wait")) for _ in range(60)]
            await asyncio.gather(*calls)
            # A thread that waits has room in the program.
            assert skills.executors()
            waiting[0].cancel()
            release.set()
            results = await asyncio.gather(*waiting[1:])
            assert all(result.ok for result in results)

    run(work())


def test_deep_and_large_arguments_are_results(run: Any, demo: str) -> None:
    tools = caproot.Tools()

    @tools.tool(description="Returns a deep value.", input_schema={"type": "object"})
    async def deep() -> Any:
        value: Any = 1
        for _ in range(500):
            value = [value]
        return value

    async def work() -> None:
        async with caproot.connect(demo, tools=tools) as skills:
            for arguments in ("[" * 500 + "]" * 500, "[" * 100_000, '{"a": NaN}', "\ud800", '{\n"more": [1]\n}'):
                result = await skills.call("skills_list", arguments)
                assert result.json()["error"]["code"] == "INVALID_ARGUMENTS", arguments[:20]
            assert (await skills.call("skills_list", '{\n}\n')).ok
            value: Any = {}
            for _ in range(200):
                value = {"a": value}
            assert not (await skills.call("skills_list", value)).ok
            assert (await skills.call("deep")).json()["error"]["code"] == "TOOL_INTERNAL_ERROR"
            with pytest.raises(caproot.Refused, match="TOO_LARGE"):
                await skills.call("skills_list", {"a": "x" * 6_000_000})
            large = await skills.call("skills_list", {"a": "x" * 4_000_000})
            assert not large.ok

    run(work())


def test_a_killed_process_leaves_no_program_of_its_tools(demo: str) -> None:
    program = (
        "import asyncio, sys, caproot\n"
        "tools = caproot.Tools()\n"
        "@tools.tool(description='Waits.', input_schema={'type': 'object'})\n"
        "async def wait():\n"
        "    print('waiting', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "async def main():\n"
        "    async with caproot.connect(sys.argv[1], tools=tools) as skills:\n"
        "        await skills.call('wait')\n"
        "asyncio.run(main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, demo]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == "waiting\n"
        (child,) = children(parent.pid)
        process = os.pidfd_open(child)
        assert demo.encode() not in Path(f"/proc/{child}/cmdline").read_bytes()
        parent.kill()
    import select

    # The descriptor is readable once the program has ended.
    ready, _, _ = select.select([process], [], [], 30)
    os.close(process)
    assert ready


def test_secrets_are_in_no_argument_and_no_variable(run: Any, guarded: str) -> None:
    async def work() -> None:
        async with caproot.connect(guarded, token="right") as skills:
            (child,) = children()
            for part in ("cmdline", "environ"):
                assert b"right" not in Path(f"/proc/{child}/{part}").read_bytes().replace(b"copyright", b"")
            assert len(await skills.list()) == 3

    run(work())
