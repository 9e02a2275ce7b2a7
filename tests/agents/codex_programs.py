#!/usr/bin/env python3
"""Runs the programs of docs/orchestrate/codex.md, unchanged, with the real `codex app-server`, a scripted model and a
real daemon. Runs `codex exec` with the configuration of the page, so that the model calls a tool of a plugin's server.

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
from docs_page import Daemon, blocks, fail, programs  # noqa: E402
from model import Call, Model, Say, Search  # noqa: E402
from stdio_servers import SERVERS, write_plugin  # noqa: E402

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


def converse_with_server():
    """The script of the model: calls the tool of a plugin's server, and answers with its result."""
    request = yield
    if request.find("echo") is None:
        request = yield Search("echo")
    tool = request.find("echo")
    assert tool, f"no tool echo among {sorted(request.tools)}"
    request = yield Call(tool, {"text": "hello"})
    assert "said hello read" in request.results[-1], request.results[-1][:600]
    yield Say(ANSWER)


def write_program(place, name, text):
    make_tree(place / "skills")
    (place / name).write_text(text)
    (place / "node_modules").mkdir()
    (place / "node_modules/caproot").symlink_to(TOP / "js")
    return place / "skills"


def write_server(place):
    """Writes the plugin that the configuration of the page names."""
    write_plugin(place / "team/review-kit", {"review-notes": SERVERS["echo"]})
    return place / "team"


def run(name, write_tree, script, command, caproot, config="", path=""):
    """Runs a command in a new home. Ends the process if its output differs from that of the page. `config` is a further
    part of the configuration of Codex, and `path` a further part of PATH."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        home = place / "home"
        home.mkdir()
        tree = write_tree(place)
        model = Model(answer_with(script), HOST)
        # The commands find the socket as the command line does.
        with Daemon(str(caproot), f"{directory}/caproot.sock", tree):
            environment = {
                "HOME": str(home),
                "PATH": f"{caproot.parent}:{BIN}:{path}:{os.environ['PATH']}",
                "PYTHONPATH": str(TOP / "python"),
                "XDG_RUNTIME_DIR": directory,
                "NO_PROXY": "*",
                **configure_codex(home, model.address, None),
            }
            with (home / ".codex/config.toml").open("a") as out:
                out.write(config)
            command = ["timeout", "--kill-after=5", str(TIMEOUT), *command]
            done = subprocess.run(
                command, cwd=place, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
        model.close()
    if model.failures or done.returncode != 0 or done.stdout.strip() != ANSWER:
        fail(f"{name} ended with {done.returncode} after {len(model.requests)} requests: {done.stdout}{done.stderr}{model.failures}")
    print(f"{name}: {len(model.requests)} requests of Codex, {done.stdout.strip()!r}")


def main():
    caproot = Path(sys.argv[1]).resolve()
    source = TOP / "docs/orchestrate/codex.md"
    page = programs(source)
    for name, runner in (("orchestrate.py", sys.argv[2]), ("orchestrate.ts", sys.argv[3])):
        command = [runner, name, "Triage the log."]
        run(name, lambda place, name=name: write_program(place, name, page[name]), converse(), command, caproot)

    configs = [text for language, text in blocks(source) if language == "toml"]
    command = ["codex", "exec", "--skip-git-repo-check", "Say hello."]
    node = Path(sys.argv[3]).resolve().parent
    run("a plugin's server", write_server, converse_with_server(), command, caproot, configs[0], node)


if __name__ == "__main__":
    main()
