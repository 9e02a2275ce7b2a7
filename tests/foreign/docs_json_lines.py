#!/usr/bin/env python3
"""Runs docs/orchestrate/json-lines.md: the console commands, whose output is compared with the page, and
the Python program, with a model that reads every skill. Then runs the Python program of
docs/orchestrate/json-lines-sessions.md with tools that succeed, fail and have a bug.

    docs_json_lines.py CAPROOT

Run this at the top of a checkout. The script starts its own daemon with tests/trees/demo.
"""

import json
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
TOOLS_PAGE = "docs/orchestrate/json-lines-sessions.md"


def write_plugin(directory, url):
    """Writes a plugin with an MCP server."""
    servers = {"web": {"type": "http", "url": url}}
    (directory / ".claude-plugin").mkdir(parents=True, exist_ok=True)
    manifest = directory / ".claude-plugin" / "plugin.json"
    manifest.write_text(json.dumps({"name": "new", "mcpServers": servers}))


def run_events(command, shown, demo, variables):
    """Adds a skill or changes a plugin during `caproot call --events`, and removes it."""
    new, has_plugins = demo / "new", "--plugins" in command
    if has_plugins:
        write_plugin(new, "https://one.example/mcp")
        run(["caproot", "list", "--fresh"], env=variables)
    process = subprocess.Popen(
        command.split(), env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    lines = OutputLines(process.stdout)
    # The response shows that the session has begun.
    print('{"id":1,"method":"tools"}', file=process.stdin, flush=True)
    lines.wait_for('{"id":1,')
    if has_plugins:
        write_plugin(new, "https://two.example/mcp")
    else:
        write_skill(new, "new", "A new skill.")
    event = lines.wait_for('"event":"plugins"' if has_plugins else '"event"')
    process.stdin.close()
    lines.rest()
    if process.wait(timeout=TIMEOUT) != 0:
        fail(f"{command} ended with {process.returncode}")
    check_output(command, shown, event)
    shutil.rmtree(new)
    run(["caproot", "list", "--fresh"], env=variables)


class Model:
    """Lists all skills, reads each skill page by page, and then makes three calls that must fail."""

    def __init__(self):
        self.skills, self.text, self.files, self.errors, self.reading = None, "", {}, [], None
        nowhere = {"authority": {"kind": "executor", "id": "none"}, "package": "skill://none/none", "resource": ""}
        self.bad_calls = [("skills_read", nowhere), ("skills_list", {"more": 1}), ("skills_none", {})]

    def __call__(self, message):
        if self.skills is None:
            names = [tool["name"] for tool in message["tools"]]
            assert names == ["skills_list", "skills_read", "skills_search"], names
            assert "triage-logs" in message["instructions"]
            assert [fragment["name"] for fragment in message["skills"]] == ["triage-logs"]
            self.skills = []
            return "skills_list", {}
        assert message["externalContext"] is True
        result = message["result"]
        if not message["success"]:
            self.errors.append(result["error"]["code"])
        elif "skills" in result:
            self.skills += result["skills"]
            if result["next_cursor"]:
                return "skills_list", {"cursor": result["next_cursor"]}
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
        return "skills_read", fields | {"resource": ""} | more


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


def run_tools(top, variables):
    """Runs the program with a tool of its own."""
    program = programs(TOOLS_PAGE)["tools.py"]
    Path(top, "tools.py").write_text(program)
    # A tool with a bug: the model does not get the text of the exception.
    Path(top, "broken.py").write_text(program.replace("if not text.split():", "if text.missing:"))
    (definitions,) = [text for language, text in blocks(TOOLS_PAGE) if language == "json"]
    Path(top, "tools.json").write_text(definitions)
    (shown,) = [
        output
        for language, console in blocks(TOOLS_PAGE)
        if language == "console"
        for command, output in commands(console)
        if command == 'python tools.py "three short words"'
    ]

    def output(name, text):
        return run([sys.executable, name, text], cwd=top, env=variables).decode()

    check_output("tools.py", shown, output("tools.py", "three short words"))
    assert "the text has no words" in output("tools.py", " ")
    broken = output("broken.py", "text")
    assert "TOOL_INTERNAL_ERROR" in broken and "missing" not in broken, broken


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
            run_tools(top, variables)
            # The program finds the daemon and caproot by its own environment.
            os.environ.update(variables)
            read = run_session(program.read_text(), demo, variables)
    print(f"{PAGE}: {count} commands print the output of the page; the session reads {read} whole skills")


if len(sys.argv) != 2:
    sys.exit(__doc__)
main(*sys.argv[1:])
