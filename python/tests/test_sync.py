"""Sessions without asyncio."""

from __future__ import annotations

import contextvars
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import write_skill

import caproot
import caproot.sync


def test_the_session_of_a_script(served: str, tree: Path) -> None:
    with caproot.sync.connect(served) as skills:
        assert [skill.name for skill in skills.list()] == ["first"]
        assert skills.read("first", "SKILL.md").endswith("# Body\n")
        assert "- first:" in skills.text and skills.executors()[0]["state"] == "live"
        result = skills.call(skills.tools[0]["name"], {})
        assert result.ok

        changes = skills.changes()
        write_skill(tree, "second")
        for change in changes:
            assert change["id"] == "local"
            if len(skills.list()) == 2:
                break
        assert skills.inject("$second")["fragments"][0]["name"] == "second"
        assert skills.used_skills()[0]["name"] == "second"
        assert skills.reinject()["fragments"][0]["name"] == "second"
        assert skills.source_states()[0]["kind"] == "executor" and skills.instruction_text(0)["text"] == ""

        with skills.fork(exclude=["name:second"]) as fork:
            assert len(fork.list()) == 1
        saved = skills.save()
    assert skills.is_closed
    with caproot.sync.restore(saved, fleet={"local": served}) as skills:
        assert skills.changes_since_save() and skills.warnings == []


def test_modules_are_loaded_when_used() -> None:
    program = (
        "import sys, caproot; assert 'asyncio' not in sys.modules and 'sync' in dir(caproot); "
        "assert caproot.sync.connect and caproot.testing.serve and caproot.connect; "
        "import caproot.sync as sync; assert sync is caproot.sync and not hasattr(caproot, 'none')"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def test_errors_are_those_of_the_package(served: str) -> None:
    with pytest.raises(TypeError, match="address"):
        caproot.sync.connect(5)  # type: ignore[arg-type]
    with pytest.raises(caproot.ConfigError):
        caproot.sync.connect("nowhere")
    with caproot.sync.connect(served) as skills, pytest.raises(caproot.Refused):
        skills.read("none")


def test_tools_of_threads(served: str) -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")
    tools = caproot.Tools()

    @tools.tool
    def whoami() -> str:
        """Returns the user."""
        return user.get()

    @tools.tool
    async def nested() -> str:
        """Uses the session in its own loop."""
        skills.list()
        return ""

    with caproot.sync.connect(served, tools=tools) as skills:
        answers: list[bool] = []

        def use(name: str) -> None:
            user.set(name)
            answers.append(skills.call("whoami").json() == {"result": name})

        threads = [threading.Thread(target=use, args=(f"user-{n}",)) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert answers == [True] * 20
        assert skills.call("nested").json()["error"]["code"] == "TOOL_INTERNAL_ERROR"


def test_a_child_begins_its_own(served: str) -> None:
    with caproot.sync.connect(served) as skills:
        skills.list()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with pytest.raises(caproot.ForkedError):
                    _ = skills.text
                with caproot.sync.connect(served) as own:
                    code = 0 if len(own.list()) == 1 else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(skills.list()) == 1
