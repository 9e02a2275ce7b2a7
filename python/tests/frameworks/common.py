"""What the programs of the frameworks share: they run the programs of the page with fake models."""

import asyncio
import os
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import caproot
from caproot import testing

TOP = Path(__file__).resolve().parents[3]
DEMO = TOP / "tests/trees/demo"
FILE = (DEMO / "triage-logs/references/patterns.md").read_text()
SKILL = (DEMO / "triage-logs/SKILL.md").read_text()
# Arguments of a model that reads a skill.
READ = {
    "authority": {"kind": "executor", "id": "demo"},
    "package": "skill://demo/triage-logs",
    "resource": "",
}


def own_tools() -> caproot.Tools:
    """Returns a tool of the program."""
    tools = caproot.Tools()

    @tools.tool(
        description="Counts words.",
        input_schema={
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
            "additionalProperties": False,
        },
    )
    async def count(text: str) -> int:
        return len(text.split())

    return tools


def page_program(name: str) -> Any:
    """Returns the function of the program in the section of a framework."""
    page = (TOP / "docs/orchestrate/python-frameworks.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {re.escape(name)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    (program,) = re.findall(r"^```python\n# answer\.py\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    scope: dict[str, Any] = {}
    exec(compile(program, name, "exec"), scope)
    return scope["answer"]


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs a program with a daemon, whose address is in the environment."""
    os.environ["PATH"] += f":{TOP / 'target/debug'}"
    with testing.serve(DEMO) as daemon:
        os.environ["CAPROOT_ENDPOINT"] = daemon.address
        asyncio.run(asyncio.wait_for(work(), 60))
    print("ok")
