#!/usr/bin/env python3
"""Runs the programs of docs/grpc/python.md, or of typescript.md and the page after it, unchanged.

    docs_programs.py PAGE[,PAGE] CAPROOT RUNNER...

RUNNER is the command that runs a program, and replaces `python` or `npx tsx` of the page. Programs in
TypeScript are checked by the compiler first, because the runner ignores types. Their generated types are
made by the command of the page. Then the commands of the page are run with tests/trees/demo, and their output is compared with the page. Then the programs are
run with more skills and files: a list must equal `caproot list`, and each read must equal the file.
Between the program and the daemon is a proxy, which records the streams and cuts them: each stream must
begin with the last resume token, and no change may be lost or repeated. Run this at the top of a
checkout. Needs grpcio-tools.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import quote

import grpc

from docs_page import (
    TIMEOUT, Daemon, OutputLines, blocks, check_output, commands, fail, programs, run, write_skill,
)

sys.path.append("proto")
messages, _ = grpc.protos_and_services("caproot/v1/capability_service.proto")

# Beginning of the command that generates types.
GENERATOR = "npx proto-loader-gen-types "
PACKAGE = "skill://demo/odd"
ODD_NAMES = ["plain.md", "one two (3)!*'.md", "käse~100%.md", "a+b&c=d,e;f@g$h.md", "..what?.md", "#1.md"]


def check(condition, message):
    if not condition:
        fail(message)


class Proxy(grpc.GenericRpcHandler):
    """Forwards calls to the daemon. Records the streams, and cuts them at `cut`."""

    def __init__(self, address, endpoint):
        self.channel = grpc.insecure_channel(endpoint)
        self.requests, self.events = [], []
        self.is_open = threading.Event()
        self.is_open.set()
        self.after_read = None
        self.server = grpc.server(ThreadPoolExecutor(4))
        self.server.add_generic_rpc_handlers([self])
        self.server.add_insecure_port(address)
        self.server.start()

    def service(self, details):
        if details.method.endswith("/WatchSkills"):
            return grpc.unary_stream_rpc_method_handler(partial(self.watch, details.method))
        return grpc.unary_unary_rpc_method_handler(partial(self.forward, details.method))

    def forward(self, method, request, context):
        try:
            response = self.channel.unary_unary(method)(request, timeout=TIMEOUT, wait_for_ready=True)
        except grpc.RpcError as error:
            context.set_trailing_metadata(error.trailing_metadata())
            context.abort(error.code(), error.details())
        if method.endswith("/ReadResource") and self.after_read:
            self.after_read, change = None, self.after_read
            change()
        return response

    def watch(self, method, request, context):
        self.requests.append(messages.WatchSkillsRequest.FromString(request))
        self.events.append([])
        self.is_open.wait(TIMEOUT)
        self.stream = self.channel.unary_stream(method)(request, wait_for_ready=True)
        try:
            for event in self.stream:
                self.events[-1].append(messages.WatchSkillsResponse.FromString(event))
                yield event
        except grpc.RpcError:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the connection was cut")

    def close(self):
        """Makes new streams wait until `is_open` is set."""
        self.is_open.clear()

    def cut(self):
        self.close()
        self.stream.cancel()

    def last_token(self, stream):
        """Returns the last resume token that a stream sent."""
        for event in reversed(self.events[stream]):
            kind = event.WhichOneof("event")
            if kind in ("synced", "bookmark"):
                return getattr(event, kind).resume_token
        return fail("a stream without a token")

    def changes(self, stream):
        """Returns the upserted and the removed packages of a stream, with repetitions."""
        deltas = [event.delta for event in self.events[stream] if event.WhichOneof("event") == "delta"]
        upserted = sorted(skill.package for delta in deltas for skill in delta.upserted)
        return upserted, sorted(removed.package for delta in deltas for removed in delta.removed)

    def resets(self, stream):
        kinds = [event for event in self.events[stream] if event.WhichOneof("event") == "reset"]
        return [messages.ResetReason.Name(event.reset.reason) for event in kinds]


class Programs:
    """Programs of pages in a directory, and the command that runs them."""

    def __init__(self, pages, directory, runner):
        self.directory, self.runner = directory, runner
        for page in pages:
            for name, text in programs(page).items():
                (directory / name).write_text(text)
        self.suffix = Path(next(iter(programs(pages[0])))).suffix

    def command(self, name, *arguments):
        return [*self.runner, str(self.directory / name), *arguments]

    def run(self, stem, *arguments):
        return run(self.command(stem + self.suffix, *arguments), cwd=self.directory)

    def start(self, name, *arguments):
        process = subprocess.Popen(
            self.command(name, *arguments), cwd=self.directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True,
        )
        return process, OutputLines(process.stdout)


def check_types(pages, page_programs):
    """Generates types as the page does, and checks programs in TypeScript with all strict rules."""
    directory = page_programs.directory
    found = [command for page in pages for language, text in blocks(page) if language == "console"
             for command, _ in commands(text) if command.startswith(GENERATOR)]  # fmt: skip
    check(len(found) == 1, f"not one command generates the types: {found}")
    run(["bash", "-c", f"node_modules/.bin/{found[0].removeprefix('npx ')}"], cwd=directory)
    options = ["--strict", "--noEmit", "--allowImportingTsExtensions", "--module", "nodenext"]
    files = sorted(directory.glob("*.ts"))
    run(["node_modules/.bin/tsc", *options, *(file.name for file in files)], cwd=directory)
    for file in files:
        check(not re.search(r"([:<|,] ?|as )any\b", file.read_text()), f"{file.name} has the type any")


def run_token_program(page_programs, caproot, name, demo):
    """Runs a program with a token against a daemon that requires the token. Returns its output."""
    directory = page_programs.directory
    token = directory / "job.token"
    token.write_text("right\n")
    token.chmod(0o600)
    config = directory / "callers.yaml"
    config.write_text(f"callers: [{{name: job, token_file: {token}, roots: [demo]}}]\n")
    with Daemon(caproot, directory / "token.sock", demo, config=config) as daemon:
        output = run(page_programs.command(name, daemon.endpoint, str(token)), cwd=directory)
        wrong = directory / "wrong.token"
        wrong.write_text("wrong")
        done = subprocess.run(
            page_programs.command(name, daemon.endpoint, str(wrong)),
            cwd=directory, capture_output=True, text=True, timeout=TIMEOUT, check=False,
        )
        check(done.returncode != 0 and "CALLER_UNKNOWN" in done.stderr, f"a wrong token: {done}")
    return output


def run_page(page, page_programs, caproot, daemon, demo):
    """Runs the commands of the page, and compares their output."""
    count = 0
    for _, console in filter(lambda block: block[0] == "console", blocks(page)):
        for command, shown in commands(console):
            program = re.fullmatch(r"(?:python|npx tsx) (\w+\.\w+) 127\.0\.0\.1:50051(.*)", command)
            if not program:
                is_other = re.match(r"(pip|npm) install ", command) or command.startswith(GENERATOR)
                check(is_other, f"not a program: {command}")
                continue
            name, rest = program.groups()
            count += 1
            if name.startswith("watch"):
                run_watch_of_page(page_programs, name, command, shown, daemon, demo)
                continue
            if rest.endswith(" job.token"):
                output = run_token_program(page_programs, caproot, name, demo)
            else:
                command_line = page_programs.command(name, daemon.endpoint, *shlex.split(rest))
                output = run(command_line, cwd=page_programs.directory)
            check_output(command, shown, output.decode())
    return count


def run_watch_of_page(page_programs, name, command, shown, daemon, demo):
    """Adds a skill, and restarts the daemon without it, as the page describes."""
    process, lines = page_programs.start(name, daemon.endpoint)
    lines.wait_for("triage-logs")
    write_skill(demo / "new", "new", "A new skill.")
    lines.wait_for("'new'")
    daemon.stop()
    lines.wait_for("reconnecting")
    shutil.rmtree(demo / "new")
    daemon.start()
    lines.wait_for("triage-logs")
    # Not SIGKILL: tsx passes SIGTERM on to its child.
    process.terminate()
    lines.rest()
    process.wait(timeout=TIMEOUT)
    check_output(command, shown, "".join(lines.seen))


def listed(caproot, endpoint):
    """Returns the names and packages of the skills of `caproot list --fresh` that a model may choose."""
    command = [caproot, "list", "--fresh", "--output", "json", "--endpoint", endpoint]
    skills = json.loads(run(command))["skills"]
    return [(skill["name"], skill["package"]) for skill in skills]


def check_list(page_programs, caproot, endpoint):
    output = page_programs.run("list", endpoint).decode()
    skills = [tuple(line.split()) for line in output.splitlines()]
    check(len(skills) > 200 and skills == listed(caproot, endpoint), f"another list:\n{output}")
    check("hidden" not in output, "a skill for people is in the list for a model")
    return len(skills)


def check_reads(page_programs, proxy, address, demo):
    """Reads files with odd names, of many pages, and a file that changes after its first page."""
    references = demo / "odd/references"
    contents = {name: f"This is {name}.\n".encode() for name in ODD_NAMES}
    contents |= {"text.md": ("käse " * 40_000).encode(), "data.bin": os.urandom(200_000)}
    for name, content in contents.items():
        (references / name).write_bytes(content)
        link = f"references/./{quote(name)}?raw#part"
        output = page_programs.run("read", address, PACKAGE, link)
        check(output == content, f"the read of {name} differs from the file")
    check(page_programs.run("read", address, PACKAGE) == (demo / "odd/SKILL.md").read_bytes(), "another SKILL.md")
    for link in ("../other/SKILL.md", "references/../../other/SKILL.md", "/etc/passwd"):
        done = subprocess.run(
            page_programs.command("read" + page_programs.suffix, address, PACKAGE, link),
            cwd=page_programs.directory, capture_output=True, timeout=TIMEOUT, check=False,
        )
        check(done.returncode != 0 and b"leads out of the package" in done.stderr, f"{link} is not rejected")
    new = ("neu " * 30_000).encode()
    proxy.after_read = lambda: (references / "text.md").write_bytes(new)
    output = page_programs.run("read", address, PACKAGE, "references/text.md")
    check(output == new and proxy.after_read is None, "a file that changed during the read is not one version")
    return len(contents) + 2


def names_of(line):
    return re.findall(r"'([^']*)'", line)


def check_watch(page_programs, proxy, address, daemon, caproot, root):
    """Changes skills during a stream, while the stream is cut, and while the daemon is stopped."""
    process, lines = page_programs.start("watch" + page_programs.suffix, address)
    states = [names_of(lines.wait_for("'a'"))]
    write_skill(root / "b", "b", "Added during the stream.")
    states.append(names_of(lines.wait_for("'b'")))

    proxy.cut()
    lines.wait_for("reconnecting")
    write_skill(root / "a", "a", "Changed while the stream is cut.")
    write_skill(root / "c", "c", "Added while the stream is cut.")
    shutil.rmtree(root / "b")
    listed(caproot, daemon.endpoint)
    proxy.is_open.set()
    states.append(names_of(lines.wait_for("'c'")))

    proxy.close()
    daemon.stop()
    lines.wait_for("reconnecting")
    write_skill(root / "d", "d", "Added while the daemon is stopped.")
    shutil.rmtree(root / "c")
    daemon.start()
    listed(caproot, daemon.endpoint)
    proxy.is_open.set()
    states.append(names_of(lines.wait_for("'d'")))
    process.terminate()
    lines.rest()
    process.wait(timeout=TIMEOUT)

    expected = [["a"], ["a", "b"], ["a", "c"], ["a", "d"]]
    check([sorted(state) for state in states] == expected, f"other states: {states}")
    printed = [line for line in lines.seen if line.startswith("[")]
    check(len(printed) == len(states), f"a state is repeated: {lines.seen}")
    tokens = [request.resume_token for request in proxy.requests]
    check(tokens == ["", proxy.last_token(0), proxy.last_token(1)], "a stream does not begin with the last token")
    check(tokens[1] and tokens[2], "an empty token")
    check(proxy.resets(0) == ["RESET_REASON_INITIAL"], f"{proxy.resets(0)}")
    first = (["skill://demo/a", "skill://demo/b", "skill://demo/hidden"], [])
    check(proxy.changes(0) == first, f"{proxy.changes(0)}")
    # The stream resumes: only the missed changes are sent.
    check(proxy.resets(1) == [], f"{proxy.resets(1)}")
    missed = (["skill://demo/a", "skill://demo/c"], ["skill://demo/b"])
    check(proxy.changes(1) == missed, f"{proxy.changes(1)}")
    # The restarted daemon sends the whole state.
    check(proxy.resets(2) == ["RESET_REASON_EPOCH_CHANGED"], f"{proxy.resets(2)}")
    last = (["skill://demo/a", "skill://demo/d", "skill://demo/hidden"], [])
    check(proxy.changes(2) == last, f"{proxy.changes(2)}")


def main(page_list, caproot, *runner):
    pages = page_list.split(",")
    page = pages[0]
    with tempfile.TemporaryDirectory() as top:
        top = Path(top)
        # Programs run at the top of a checkout. Node looks for packages next to the program.
        (top / "proto").symlink_to(Path("proto").resolve())
        (top / "node_modules").symlink_to(Path(".tools/clients/node_modules").resolve())
        page_programs = Programs(pages, top, runner)
        if page_programs.suffix == ".ts":
            check_types(pages, page_programs)
        demo, many, watched = top / "demo", top / "many/demo", top / "watched/demo"
        shutil.copytree("tests/trees/demo", demo)
        with Daemon(caproot, top / "page.sock", demo) as daemon:
            count = sum(run_page(page, page_programs, caproot, daemon, demo) for page in pages)
        print(f"{page}: {count} commands print the output of the page")

        for number in range(250):
            write_skill(many / f"skill-{number:03}", f"skill-{number:03}", "One of many skills.")
        write_skill(many / "odd", "odd", "Has files with odd names.")
        (many / "odd/references").mkdir()
        write_skill(many / "hidden", "hidden", "For people.", "disable-model-invocation: true\n")
        address = f"unix:{top}/proxy.sock"
        with Daemon(caproot, top / "many.sock", many) as daemon:
            skills = check_list(page_programs, caproot, daemon.endpoint)
            proxy = Proxy(address, daemon.endpoint)
            reads = check_reads(page_programs, proxy, address, many)
            proxy.server.stop(None).wait()
        print(f"{page}: {skills} skills in pages equal `caproot list`, {reads} reads equal the files")

        write_skill(watched / "a", "a", "Exists from the start.")
        write_skill(watched / "hidden", "hidden", "For people.", "disable-model-invocation: true\n")
        with Daemon(caproot, top / "watched.sock", watched) as daemon:
            proxy = Proxy(address, daemon.endpoint)
            check_watch(page_programs, proxy, address, daemon, caproot, watched)
            proxy.server.stop(None).wait()
        print(f"{page}: a stream resumes after a cut and after a restart of the daemon")


if len(sys.argv) < 4:
    sys.exit(__doc__)
main(*sys.argv[1:])
