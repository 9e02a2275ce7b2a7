"""What the programs of the frameworks share."""

import asyncio
import os
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


def run(work: Callable[[str], Coroutine[Any, Any, None]]) -> None:
    """Runs a program with the address of a daemon."""
    os.environ["PATH"] += f":{TOP / 'target/debug'}"
    with testing.serve(DEMO) as daemon:
        asyncio.run(asyncio.wait_for(work(daemon.address), 60))
    print("ok")
