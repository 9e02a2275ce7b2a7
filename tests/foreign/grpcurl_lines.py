#!/usr/bin/env python3
"""Runs the grpcurl lines of the documentation with a real grpcurl, and compares the output with the
output in the pages. The lines use TCP, a Unix socket, mutual TLS and TCP with a bearer token. The
openssl lines of the recipe create the certificates.

    grpcurl_lines.py GRPCURL CAPROOT

Run this at the top of a checkout. The script starts its own daemons with tests/trees/demo. Needs
openssl 3.
"""

import os
import re
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

# Pages, each with the id of the published root in its lines. In some pages 127.0.0.1:7421 has a rule
# with a token.
PAGES = {
    "README.md": "demo",
    "docs/quickstart.md": "skills",
    "docs/grpc/service.md": "demo",
    "docs/operate/install.md": "demo",
    "docs/operate/access.md": "demo",
    "docs/operate/tls.md": "team",
    "docs/operate/recipe.md": "team",
}
# Output lines that differ between daemons.
VOLATILE = re.compile(r'"(epoch|revision|nextCursor|nextPageToken|resumeToken)":|^-----$')
CURSOR = re.compile(r'"cursor":"[^"]*"')


def fail(message):
    sys.exit(f"grpcurl_lines: {message}")


def shown_commands(page):
    """Yields each command of a console block with its output lines."""
    for block in re.findall(r"^```console\n(.*?)^```$", page, re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            lines = part.splitlines()
            end = next(at for at, line in enumerate(lines) if not line.endswith("\\"))
            yield "\n".join(lines[: end + 1]), lines[end + 1 :]


class Daemon:
    """Daemon with the demo tree. `address` is its TCP listener."""

    def __init__(self, caproot, root, *flags):
        command = [caproot, "serve", "--root", f"{root}=tests/trees/demo"]
        self.process = subprocess.Popen(
            [*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.address = None

    def __enter__(self):
        # The timer kills a daemon that prints nothing, which ends the loop.
        timer = threading.Timer(60, self.process.kill)
        timer.start()
        for line in self.process.stdout:
            if line.startswith("listening tcp:"):
                timer.cancel()
                self.address = line.strip().removeprefix("listening tcp:")
                return self
        timer.cancel()
        fail(f"the daemon does not start: {self.process.communicate()[1]}")

    def __exit__(self, *_):
        self.process.terminate()
        log = self.process.communicate(timeout=60)[1]
        if self.process.returncode != 0:
            fail(f"the daemon ended with {self.process.returncode}: {log}")


def run(command, shown, directory, environment):
    """Runs a command. A stream is ended as soon as its output has all shown lines."""
    process = subprocess.Popen(
        ["bash", "-c", f"exec {command}" if command.startswith("grpcurl") else command],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    timer = threading.Timer(60, process.kill)
    timer.start()
    output, missing = "", stable_lines(shown)
    for line in process.stdout:
        output += line
        if missing and missing[0] == line.strip():
            missing.pop(0)
        if command.endswith("/WatchSkills") and not missing:
            process.kill()
    process.wait()
    timer.cancel()
    if missing:
        fail(f"{command}\nthe output lacks a line of the page, or has it out of order: {missing[0]}\n{output}")
    return process.returncode, output


def stable_lines(shown):
    """Returns the lines of a page that are the same for every daemon."""
    return [line for line in map(str.strip, shown) if line != "…" and not VOLATILE.search(line)]


def check_status(command, shown, code, output):
    """Checks that the command fails exactly if the page shows an error."""
    is_error = bool(shown) and shown[0].startswith(("ERROR:", "Failed"))
    if (code != 0) != is_error and not command.endswith("/WatchSkills"):
        fail(f"{command}\nends with {code}:\n{output}")
    if '"@value"' in output:
        fail(f"{command}\ngrpcurl does not decode a detail:\n{output}")


def check_page(page, commands, addresses, directory, environment):
    """Runs the grpcurl lines of a page. Returns how many there are."""
    count, cursor = 0, ""
    for command, shown in commands:
        line = re.sub(r"^sudo -u \S+ ", "", command)
        if not re.match(r"(TOKEN=\S+ \S+ )?grpcurl ", line):
            continue
        address = next((address for address in addresses if address in line), None)
        if address is None:
            fail(f"{page}: no listener replaces the address in: {command}")
        flags, listener = addresses[address]
        line = CURSOR.sub(f'"cursor":"{cursor}"', line.replace(address, flags + listener))
        shown = [text.replace(address, listener) for text in shown]
        code, output = run(line, shown, directory, environment)
        check_status(line, shown, code, output)
        found = re.search(r'"nextCursor": "([^"]*)"', output)
        cursor = found.group(1) if found else ""
        count += 1
    return count


def main(grpcurl, caproot):
    commands = {page: list(shown_commands(Path(page).read_text())) for page in PAGES}
    with tempfile.TemporaryDirectory() as top:
        directory = Path(top)
        (directory / "bin").mkdir()
        (directory / "bin/grpcurl").symlink_to(Path(grpcurl).resolve())
        environment = {
            **os.environ,
            "PATH": f"{directory / 'bin'}:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": top,
        }
        for command, _ in commands["docs/operate/recipe.md"]:
            if command.startswith("openssl req"):
                code, output = run(command, [], directory, environment)
                if code != 0:
                    fail(f"{command}\nends with {code}:\n{output}")
        token = directory / "job.token"
        token.touch(mode=0o600)
        token.write_text("correct-horse-battery-staple\n")
        config = directory / "caproot.yaml"
        config.write_text("callers: [{name: job, token_file: job.token}]\n")
        tls = [f"--tls-cert={directory}/server.pem", f"--tls-key={directory}/server.key"]
        free_port = ("--listen", "tcp:127.0.0.1:0")
        for page, root in PAGES.items():
            with ExitStack() as running:

                def start(*flags):
                    return running.enter_context(Daemon(caproot, root, *flags)).address

                plain = start("--listen", f"unix:{directory}/caproot.sock", *free_port)
                mutual = start(*free_port, *tls, f"--tls-client-ca={directory}/ca.pem")
                # The addresses in the pages, and the flags and listeners that replace them here.
                addresses = {
                    "127.0.0.1:50051": ("", plain),
                    "executor.example.org:7420": ("-servername executor.example.org ", mutual),
                    "127.0.0.1:7421": ("", start(*free_port, f"--config={config}")),
                    "$XDG_RUNTIME_DIR/caproot.sock": ("", "$XDG_RUNTIME_DIR/caproot.sock"),
                    "/run/caproot/caproot.sock": ("", f"{directory}/caproot.sock"),
                }
                count = check_page(page, commands[page], addresses, directory, environment)
                if count == 0:
                    fail(f"{page} shows no grpcurl line")
                print(f"{page}: {count} grpcurl lines")


if len(sys.argv) != 3:
    sys.exit(__doc__)
main(*sys.argv[1:])
