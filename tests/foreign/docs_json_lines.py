#!/usr/bin/env python3
"""Runs docs/orchestrate/json-lines.md: the console commands, whose output is compared with the page, and
the Python program, with a model that reads every skill.

    docs_json_lines.py CAPROOT

Run this at the top of a checkout. The script starts its own daemon with tests/trees/demo.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from docs_page import (
    TIMEOUT, Daemon, OutputLines, blocks, check_output, commands, environment, fail, programs, run, write_skill,
)

PAGE = "docs/orchestrate/json-lines.md"


def run_events(command, shown, demo, variables):
    """Adds a skill during `caproot call --events`, and removes it."""
    process = subprocess.Popen(
        command.split(), env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    lines = OutputLines(process.stdout)
    # The response shows that the session has begun.
    print('{"id":1,"method":"tools"}', file=process.stdin, flush=True)
    lines.wait_for('{"id":1,')
    write_skill(demo / "new", "new", "A new skill.")
    event = lines.wait_for('"event"')
    process.stdin.close()
    lines.rest()
    if process.wait(timeout=TIMEOUT) != 0:
        fail(f"{command} ended with {process.returncode}")
    check_output(command, shown, event)
    shutil.rmtree(demo / "new")
    run(["caproot", "list", "--fresh"], env=variables)


class Model:
    """Lists all skills, reads each skill page by page, and then makes three calls that must fail."""

    def __init__(self):
        self.skills, self.text, self.files, self.errors, self.reading = None, "", {}, [], None
        nowhere = {"authority": {"kind": "executor", "id": "none"}, "package": "skill://none/none", "resource": ""}
        self.bad_calls = [("skills.read", nowhere), ("skills.list", {"more": 1}), ("skills.none", {})]

    def __call__(self, message):
        if self.skills is None:
            names = [f"{tool['namespace']}.{tool['name']}" for tool in message["tools"]]
            assert names == ["skills.list", "skills.read"], names
            assert "triage-logs" in message["instructions"]
            assert [fragment["name"] for fragment in message["skills"]] == ["triage-logs"]
            self.skills = []
            return "skills.list", {}
        assert message["externalContext"] is True
        result = message["result"]
        if not message["success"]:
            self.errors.append(result["error"]["code"])
        elif "skills" in result:
            self.skills += result["skills"]
            if result["next_cursor"]:
                return "skills.list", {"cursor": result["next_cursor"]}
            self.unread = list(self.skills)
        else:
            self.text += result["contents"]
            if result["next_cursor"]:
                return self.read(cursor=result["next_cursor"])
            self.files[self.reading["package"]], self.text = self.text, ""
        if self.unread:
            self.reading = self.unread.pop()
            return self.read()
        return self.bad_calls.pop() if self.bad_calls else None

    def read(self, **more):
        fields = {key: self.reading[key] for key in ("authority", "package")}
        return "skills.read", fields | {"resource": ""} | more


def run_session(program, demo, variables):
    """Runs the session of the page with a model that reads all skills."""
    # A SKILL.md of several pages.
    with open(demo / "triage-logs/SKILL.md", "a", encoding="utf-8") as file:
        file.write("One more line of a long file.\n" * 2000)
    run(["caproot", "list", "--fresh"], env=variables)
    names = {"__name__": "session"}
    exec(compile(program, PAGE, "exec"), names)
    model, session = Model(), names["Session"]()
    names["orchestrate"](session, "use $triage-logs", model)
    assert session.close() == 0
    assert model.errors == ["UNKNOWN_TOOL", "INVALID_ARGUMENTS", "UNKNOWN_AUTHORITY"], model.errors
    assert len(model.files) == len(model.skills) == 3, model.files.keys()
    for package, text in model.files.items():
        file = demo / package.removeprefix("skill://demo/") / "SKILL.md"
        assert text == file.read_text(), package
    return len(model.files)


def main(caproot):
    with tempfile.TemporaryDirectory() as top:
        demo, program = Path(top, "demo"), Path(top, "session.py")
        shutil.copytree("tests/trees/demo", demo)
        program.write_text(programs(PAGE)[program.name])
        with Daemon(caproot, f"{top}/page.sock", demo) as daemon:
            variables = environment(caproot, daemon.endpoint)
            count = 0
            for _, console in filter(lambda block: block[0] == "console", blocks(PAGE)):
                for command, shown in commands(console):
                    count += 1
                    if command.endswith("--events"):
                        run_events(command, shown, demo, variables)
                        continue
                    command = command.replace("python ", f"{sys.executable} {top}/")
                    output = run(["bash", "-c", command], env=variables)
                    check_output(command, shown, output.decode())
            # The program finds the daemon and caproot by its own environment.
            os.environ.update(variables)
            read = run_session(program.read_text(), demo, variables)
    print(f"{PAGE}: {count} commands print the output of the page; the session reads {read} whole skills")


if len(sys.argv) != 2:
    sys.exit(__doc__)
main(*sys.argv[1:])
