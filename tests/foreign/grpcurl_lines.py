#!/usr/bin/env python3
"""Runs every grpcurl line of README.md with a real grpcurl, and compares the output with the output
in README.md. The lines use TCP, a Unix socket, mutual TLS and TCP with a bearer token. The openssl
lines of README.md create the certificates.

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

# Output lines that differ between daemons.
VOLATILE = re.compile(r'"(epoch|revision|nextCursor|resumeToken)":|^-----$')
CURSOR = re.compile(r'"cursor":"[^"]*"')


def fail(message):
    sys.exit(f"grpcurl_lines: {message}")


def shown_commands(readme):
    """Yields each command of a console block with its output lines."""
    for block in re.findall(r"^```console\n(.*?)^```$", readme, re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            lines = part.splitlines()
            end = next(at for at, line in enumerate(lines) if not line.endswith("\\"))
            yield "\n".join(lines[: end + 1]), lines[end + 1 :]


class Daemon:
    """Daemon with the demo tree. `address` is its TCP listener."""

    def __init__(self, caproot, *flags):
        command = [caproot, "serve", "--root", "tests/trees/demo", "--allow", "tests/trees"]
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


def run(command, directory, environment):
    result = subprocess.run(
        ["bash", "-c", command],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
        text=True,
    )
    return result.returncode, result.stdout


def check_output(command, shown, code, output):
    """Checks that the output has the stable lines of README.md in the same order."""
    is_error = bool(shown) and shown[0].startswith(("ERROR:", "Failed"))
    if (code != 0) != is_error:
        fail(f"{command}\nends with {code}:\n{output}")
    if '"@value"' in output:
        fail(f"{command}\ngrpcurl does not decode a detail:\n{output}")
    output_lines = iter(line.strip() for line in output.splitlines())
    for line in map(str.strip, shown):
        if line != "…" and not VOLATILE.search(line) and line not in output_lines:
            fail(f"{command}\nREADME.md has a line that is missing in the output or out of order: {line}\n{output}")


def main(grpcurl, caproot):
    commands = list(shown_commands(Path("README.md").read_text()))
    with tempfile.TemporaryDirectory() as top, ExitStack() as running:
        directory = Path(top)
        (directory / "bin").mkdir()
        (directory / "bin/grpcurl").symlink_to(Path(grpcurl).resolve())
        environment = {
            **os.environ,
            "PATH": f"{directory / 'bin'}:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": top,
        }
        for command, _ in commands:
            if command.startswith("openssl req"):
                code, output = run(command, directory, environment)
                if code != 0:
                    fail(f"{command}\nends with {code}:\n{output}")
        token = directory / "job.token"
        token.touch(mode=0o600)
        token.write_text("correct-horse-battery-staple\n")
        config = directory / "caproot.yaml"
        config.write_text("callers: [{name: job, token_file: job.token}]\n")

        def start(*flags):
            return running.enter_context(Daemon(caproot, *flags)).address

        free_port = ("--listen", "tcp:127.0.0.1:0")
        plain = start("--listen", f"unix:{directory}/caproot.sock", *free_port)
        tls = [f"--tls-cert={directory}/server.pem", f"--tls-key={directory}/server.key"]
        mutual = start(*free_port, *tls, f"--tls-client-ca={directory}/ca.pem")
        guarded = start(*free_port, f"--config={config}")
        # The addresses in README.md, and the listeners that replace them here.
        addresses = {
            "127.0.0.1:50051": plain,
            "localhost:7420": f"localhost:{mutual.rpartition(':')[2]}",
            "127.0.0.1:7421": guarded,
            "/run/caproot/caproot.sock": f"{directory}/caproot.sock",
            "$XDG_RUNTIME_DIR/caproot.sock": "$XDG_RUNTIME_DIR/caproot.sock",
        }
        counts = dict.fromkeys(addresses, 0)
        cursor = ""
        for command, shown in commands:
            line = command.removeprefix("sudo -u codex ")
            if not re.match(r"(TOKEN=\S+ \S+ )?grpcurl ", line):
                continue
            address = next((address for address in addresses if address in line), None)
            if address is None:
                fail(f"no listener replaces the address in: {command}")
            counts[address] += 1
            line = CURSOR.sub(f'"cursor":"{cursor}"', line.replace(address, addresses[address]))
            code, output = run(line, directory, environment)
            check_output(command, shown, code, output)
            found = re.search(r'"nextCursor": "([^"]*)"', output)
            cursor = found.group(1) if found else ""
        for address, count in counts.items():
            if count == 0:
                fail(f"README.md shows no grpcurl line for {address}")
            print(f"grpcurl over {address}: {count} lines of README.md")


if len(sys.argv) != 3:
    sys.exit(__doc__)
main(*sys.argv[1:])
