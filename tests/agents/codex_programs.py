#!/usr/bin/env python3
"""Runs the programs of docs/orchestrate/codex.md, unchanged, with the real `codex app-server`, a scripted model and a
real daemon.

    codex_programs.py CAPROOT PYTHON NODE

PYTHON and NODE find the packages in `python` and `js` of the checkout.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
sys.path[:0] = [str(HERE), str(TOP / "tests/foreign")]

from agents import BIN, configure_codex  # noqa: E402
from check import HOST, SKILLS, TIMEOUT, answer_with, make_tree  # noqa: E402
from docs_page import Daemon, fail, programs  # noqa: E402
from model import Call, Model, Say  # noqa: E402

ANSWER = "Triage a log"


def converse():
    """The script of the model: reads a skill and its reference, and answers."""
    request = yield
    for name in SKILLS:
        assert name in request.text, f"the instructions do not have the name {name}"
    assert request.namespaces.get("read") == "skills", f"no tool skills.read among {request.namespaces}"
    request = yield Call("read", {"package": "triage-logs"})
    assert "GRANITE" in request.results[-1], request.results[-1][:300]
    request = yield Call("read", {"package": "triage-logs", "resource": "references/levels.md"})
    assert "BASALT" in request.results[-1], request.results[-1][:300]
    yield Say(ANSWER)


def run(name, text, runner, caproot):
    """Runs one program in a new home. Ends the process if its output differs from that of the page."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        tree, home = place / "skills", place / "home"
        make_tree(tree)
        home.mkdir()
        (place / name).write_text(text)
        (place / "node_modules").mkdir()
        (place / "node_modules/caproot").symlink_to(TOP / "js")
        model = Model(answer_with(converse()), HOST)
        # The programs find the socket as the command line does.
        with Daemon(str(caproot), f"{directory}/caproot.sock", tree):
            environment = {
                "HOME": str(home),
                "PATH": f"{caproot.parent}:{BIN}:{os.environ['PATH']}",
                "PYTHONPATH": str(TOP / "python"),
                "XDG_RUNTIME_DIR": directory,
                "NO_PROXY": "*",
                **configure_codex(home, model.address, None),
            }
            command = ["timeout", "--kill-after=5", str(TIMEOUT), runner, name, "Triage the log."]
            done = subprocess.run(
                command, cwd=place, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
        model.close()
    if model.failures or done.returncode != 0 or done.stdout.strip() != ANSWER:
        fail(f"{name} ended with {done.returncode} after {len(model.requests)} requests: {done.stdout}{done.stderr}{model.failures}")
    print(f"{name}: {len(model.requests)} requests of Codex, {done.stdout.strip()!r}")


def main():
    caproot = Path(sys.argv[1]).resolve()
    page = programs(TOP / "docs/orchestrate/codex.md")
    run("orchestrate.py", page["orchestrate.py"], sys.argv[2], caproot)
    run("orchestrate.ts", page["orchestrate.ts"], sys.argv[3], caproot)


if __name__ == "__main__":
    main()
