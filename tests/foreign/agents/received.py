"""What a fake model received, and the prompts that it gets: one, and more after a change of the skills until the
model receives the new skill."""

import asyncio
import os
import sys
from pathlib import Path

TREE = Path(os.environ["TREE"])
READ = {"package": "skill://demo/triage-logs"}
NEW = "rotate-keys"


class Received:
    """Tools of each request, by name, and the results of the model's calls."""

    def __init__(self):
        self.tools = []
        self.results = []

    def add_tools(self, tools):
        self.tools.append(dict(tools))

    async def prompts(self):
        yield "Look at the log."
        write_skill(NEW)
        while NEW not in self.tools[-1]["skills_read"]:
            yield "Look again."


def write_skill(name):
    """Saves a skill by rename, as editors do."""
    directory = TREE / name
    directory.mkdir()
    draft = directory / ".draft"
    draft.write_text(f"---\nname: {name}\ndescription: Rotates keys. Use when a key is old.\n---\n")
    draft.rename(directory / "SKILL.md")


def run(answer, model, received):
    """Runs the program of the page, checks what its model received, and prints the transcript."""
    asyncio.run(asyncio.wait_for(answer(model, received.prompts()), 60))
    check(received)


def check(received):
    first, last = received.tools[0], received.tools[-1]
    assert set(first) == {"skills_list", "skills_read", "skills_search"}, first
    assert os.environ["SHOWN"] in first["skills_read"], first
    assert NEW not in first["skills_read"] and NEW in last["skills_read"], last
    assert "# Triage a log" in received.results[0], received.results
    print(f"== {Path(sys.argv[0]).stem}: the model received")
    for name, description in first.items():
        print(f"{name}: {description}")
    print(f"result of skills_read: {received.results[0][:200]}…")
    print(f"== after a change: {last['skills_read'].splitlines()[-1]}")
