#!/usr/bin/env python3
"""Checks what agents of other makes do with `caproot mcp`, with a scripted model and a real daemon.

    check.py CAPROOT [AGENT...]

For each agent: the names of skills in the first request, the number of calls until a SKILL.md is read, a reference
file, a search, a script through `caproot exec`, a skill that is added during the conversation, and a start without a
daemon, whose time is printed beside the time of the agent without caproot.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from agents import AGENTS, run  # noqa: E402
from model import Call, Model, Say, Search  # noqa: E402

HOST = "127.61.7.1"
TIMEOUT = 120
MOST_CALLS = 2
SKILLS = {
    "triage-logs": ("Finds the first cause in a long log.", "Read the log from its end.\n\nMarker: GRANITE.\n"),
    "greet-people": ("Greets people by a script.", "Run `scripts/greet.sh`.\n"),
    "write-changelog": ("Writes an entry of a changelog.", "Look at the commits.\n"),
}
ADDED = "weigh-apples"


def write_skill(tree, name, description, text):
    """Writes a skill, whose SKILL.md appears at once."""
    folder = tree / name
    folder.mkdir()
    new = folder / "new"
    new.write_text(f"---\nname: {name}\ndescription: {description}\n---\n\n{text}")
    new.rename(folder / "SKILL.md")


def make_tree(tree):
    tree.mkdir()
    for name, (description, text) in SKILLS.items():
        write_skill(tree, name, description, text)
    (tree / "triage-logs/references").mkdir()
    (tree / "triage-logs/references/levels.md").write_text("Marker: BASALT.\n")
    (tree / "greet-people/scripts").mkdir()
    script = tree / "greet-people/scripts/greet.sh"
    script.write_text("#!/bin/sh\necho Marker: MARBLE.\n")
    script.chmod(0o755)


@dataclass
class Findings:
    """Results of one agent: lines that say what was wrong, and facts for the table."""

    wrong: list = field(default_factory=list)
    finished: bool = False
    calls: int = 0
    seen: bool = False

    def expect(self, fact, sentence):
        if not fact:
            self.wrong.append(sentence)


def converse(agent, tree, findings):
    """The script of the model. A generator: receives requests, and yields actions."""
    request = yield
    everything = request.text + "".join(request.tools.values())
    for name in SKILLS:
        findings.expect(name in everything, f"the first request does not have the name {name}")

    if request.find("skills_read") is None:
        findings.calls += 1
        request = yield Search("read a skill")
    read = request.find("skills_read")
    findings.expect(read, f"no tool skills_read among {sorted(request.tools)}")
    if not read:
        yield Say("done")
        return
    request = yield Call(read, {"package": "triage-logs"})
    findings.calls += 1
    findings.expect("GRANITE" in request.results[-1], f"the SKILL.md was not read: {request.results[-1][:300]}")
    findings.expect(findings.calls <= MOST_CALLS, f"{findings.calls} calls until a SKILL.md was read")

    request = yield Call(read, {"package": "triage-logs", "resource": "references/levels.md"})
    findings.expect("BASALT" in request.results[-1], f"the reference was not read: {request.results[-1][:300]}")

    search = request.find("skills_search")
    if search is None:
        request = yield Search("search skills by their text")
        search = request.find("skills_search")
    request = yield Call(search or "skills_search", {"query": "cause of an error in a log"})
    findings.expect("triage-logs" in request.results[-1], f"the search found nothing: {request.results[-1][:300]}")

    request = yield Call(read, {"package": "greet-people"})
    template = re.search(r"`(caproot exec [^`]*)`", request.text + "".join(request.tools.values()))
    digest = re.search(r"sha256:[0-9a-f]{64}", request.results[-1])
    package = re.search(r"skill://[a-z/-]+(?=/SKILL.md)", request.results[-1])
    findings.expect(template and digest and package, f"no line for a script: {request.results[-1][:600]}")
    if template and digest and package:
        command = template[1].replace("PACKAGE/scripts/run.py", f"{package[0]}/scripts/greet.sh")
        command = command.replace("SKILL_DIGEST", digest[0]).removesuffix(" -- ARGS")
        shell, argument = agent.shell
        request = yield Call(request.find(shell) or shell, {argument: command, "description": "greet"})
        findings.expect("MARBLE" in request.results[-1], f"{command}: {request.results[-1][:600]}")

    write_skill(tree, ADDED, "Weighs apples.", "Use scales.\n")
    # An agent may end a turn in which a model repeats a call, so that the queries differ. A model also takes its time,
    # and no event says when an agent has asked for the tools again.
    end, listed, query = time.monotonic() + 25, False, 0
    while time.monotonic() < end and not (listed and (findings.seen or not agent.sees_changes)):
        query += 1
        time.sleep(0.5)
        request = yield Call(search or "skills_search", {"query": f"apples {query}"})
        listed = listed or ADDED in request.results[-1]
        findings.seen = any(ADDED in description for description in request.tools.values())
    findings.expect(listed, f"a search does not find the added skill: {request.results[-1][:300]}")
    findings.expect(findings.seen or not agent.sees_changes, "the tools do not name the added skill")
    findings.finished = True
    yield Say("done")


def answer_with(script):
    """Returns the function of a model that follows a generator."""
    next(script)

    def answer(request):
        try:
            return script.send(request)
        except StopIteration:
            return Say("done")

    return answer


def start(agent, place, answer, arguments, caproot, prompt):
    """Runs an agent in a new home. Returns the model, the process and the seconds."""
    home, work = place / "home", place / "work"
    home.mkdir()
    work.mkdir()
    model = Model(answer, HOST)
    began = time.monotonic()
    try:
        done = run(agent, home, work, model.address, arguments, caproot, prompt, TIMEOUT)
    finally:
        model.close()
        seconds = time.monotonic() - began
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(work, ignore_errors=True)
    return model, done, seconds


def check(agent, caproot, place):
    findings = Findings()
    tree, socket = place / "skills", place / "caproot.sock"
    make_tree(tree)
    command = [caproot / "caproot", "serve", "--root", f"skills={tree}", "--listen", f"unix:{socket}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as daemon:
        try:
            daemon.stdout.readline()
            endpoint = ["--endpoint", f"unix:{socket}"]
            script = answer_with(converse(agent, tree, findings))
            model, done, _ = start(agent, place, script, endpoint, caproot, "Please help.")
            findings.expect(done.returncode == 0, f"exit code {done.returncode}: {(done.stdout + done.stderr)[-1000:]}")
            findings.expect(findings.finished, f"the agent ended the turn after {len(model.requests)} requests: {(done.stdout + done.stderr)[-1000:]}")
            findings.wrong += model.failures
        finally:
            daemon.terminate()

    times = []
    for arguments in (["--endpoint", f"unix:{place}/nobody.sock"], None):
        _, done, seconds = start(agent, place, lambda _: Say("hello"), arguments, caproot, "Say hello.")
        findings.expect("hello" in done.stdout, f"no answer without a daemon: {(done.stdout + done.stderr)[-600:]}")
        times.append(seconds)
    print(
        f"{agent.name:9} {len(findings.wrong)} wrong, {findings.calls} calls until a SKILL.md, added skill in tools: "
        f"{'yes' if findings.seen else 'no'}, without a daemon {times[0]:.1f} s, without a server {times[1]:.1f} s",
        flush=True,
    )
    for line in findings.wrong:
        print(f"  {line}")
    return not findings.wrong


def main():
    caproot = Path(sys.argv[1]).resolve().parent
    chosen = [agent for agent in AGENTS if not sys.argv[2:] or agent.name in sys.argv[2:]]
    results = []
    for agent in chosen:
        with tempfile.TemporaryDirectory() as place:
            results.append(check(agent, caproot, Path(place)))
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
