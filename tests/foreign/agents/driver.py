#!/usr/bin/env python3
"""Runs a program of docs/orchestrate/agents.md with a fake model and a real daemon.

    driver.py CAPROOT PROGRAM COMMAND...

COMMAND runs a file of this directory that imports PROGRAM, such as with_langchain.py, in a directory with both. The
program is that of the page, apart from the socket. Programs in TypeScript find the packages in .tools/agents.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[2]
sys.path.insert(0, str(HERE.parent))

from docs_page import TIMEOUT, Daemon, blocks, fail, programs  # noqa: E402

PAGE = TOP / "docs/orchestrate/agents.md"
ARGUMENTS = '["mcp"]'


def main():
    caproot, name, *command = sys.argv[1:]
    text = programs(PAGE)[name]
    if text.count(ARGUMENTS) != 1:
        fail(f"{name} does not start the server with {ARGUMENTS}")
    shown = [block for language, block in blocks(PAGE) if language == "text"]

    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory) / "demo"
        shutil.copytree(TOP / "tests/trees/demo", tree)
        with Daemon(caproot, f"{directory}/socket", tree) as daemon:
            place = Path(directory) / "programs"
            shutil.copytree(HERE, place)
            (place / "node_modules").symlink_to(TOP / ".tools/agents/node_modules")
            arguments = ARGUMENTS.replace("]", f', "--endpoint", "{daemon.endpoint}"]')
            (place / name).write_text(text.replace(ARGUMENTS, arguments))
            environment = {
                **os.environ,
                "PATH": f"{Path(caproot).resolve().parent}:{os.environ['PATH']}",
                "TREE": str(tree),
                "SHOWN": shown[0].strip(),
            }
            done = subprocess.run(command, cwd=place, env=environment, timeout=2 * TIMEOUT, check=False)
    if done.returncode != 0:
        fail(f"{command} ended with {done.returncode}")


if __name__ == "__main__":
    main()
