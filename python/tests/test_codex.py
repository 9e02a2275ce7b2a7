"""A session as the parts of `codex app-server`, and the program of the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import TOP

import caproot

PAGE = (TOP / "docs/orchestrate/codex.md").read_text(encoding="utf-8")


def test_the_program_of_the_page_drives_codex(demo: str, tmp_path: Path) -> None:
    (program,) = re.findall(r"^```python\n# orchestrate\.py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len([line for line in program.splitlines() if line.strip()]) <= 20
    (tmp_path / "orchestrate.py").write_text(program, encoding="utf-8")
    (tmp_path / "codex").symlink_to(TOP / "tests/foreign/codex/app_server.py")
    environment = {
        **os.environ, "CAPROOT_ENDPOINT": demo, "PYTHONPATH": os.pathsep.join(sys.path),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "orchestrate.py", "Triage the log."],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ran.stdout == "Triage a log\n", ran.stderr


def test_codex_has_the_skills_of_its_product(tree: Path, served: str, run: Any) -> None:
    tools = caproot.Tools()

    @tools.tool(description="Counts.", input_schema={"type": "object"}, output_description="The count.")
    def count() -> int:
        return 7

    async def work() -> None:
        async with caproot.connect(served, tools=tools) as skills:
            codex = skills.codex()
            namespace, function = codex.tools
            assert [tool["name"] for tool in namespace["tools"]] == ["list", "read", "search"]
            assert (function["type"], function["name"], function["deferLoading"]) == ("function", "count", False)
            assert "`skills.read`" in codex.text and "\n- count: The count." in codex.text
            assert "- first: " in codex.text and "- other" not in codex.text
            assert "- other: " in skills.text

            read = {"namespace": "skills", "tool": "read", "arguments": {"package": "first"}}
            answer = await codex.answer(read)
            assert answer["success"] and "# Body" in answer["contentItems"][0]["text"]
            assert (await codex.answer({"tool": "count", "arguments": {}}))["success"]
            (package,) = [skill.package for skill in await skills.list() if skill.name == "other"]
            hidden = await codex.answer({**read, "arguments": {"package": package}})
            assert not hidden["success"] and "PACKAGE_NOT_FOUND" in hidden["contentItems"][0]["text"]
            with pytest.raises(TypeError, match="params"):
                await codex.answer("read")  # type: ignore[arg-type]
        assert not (await codex.answer(read))["success"]

    other = tree / "other"
    (other / "agents").mkdir(parents=True)
    (other / "agents/openai.yaml").write_text("policy:\n  products: [chatgpt]\n", encoding="utf-8")
    (other / "SKILL.md").write_text("---\nname: other\ndescription: For another product.\n---\n", encoding="utf-8")
    run(wait_for_text(served, "other", work))


async def wait_for_text(address: str, part: str, work: Any) -> None:
    """Runs `work` once a session of the daemon lists a skill."""
    async with caproot.connect(address) as skills:
        changes = skills.changes()
        while part not in skills.text:
            await anext(changes)
    await work()
