"""Reads pages of the documentation for the tests that run them: blocks, programs, and console commands
with their output. Has a daemon for these tests."""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

TIMEOUT = 60


def fail(message):
    sys.exit(f"{Path(sys.argv[0]).stem}: {message}")


def fenced_blocks(text):
    """Returns the language and the text of each fenced block."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)


def blocks(page):
    return fenced_blocks(Path(page).read_text())


def programs(page):
    """Returns the programs of a page by file name. The first line of a program is its file name."""
    found = {}
    for _, text in blocks(page):
        if name := re.match(r"(?:#|//) (\w+\.(?:py|ts))\n", text):
            found[name[1]] = text
    return found


def commands(console):
    """Yields each command of a console block with its output."""
    for part in re.split(r"^\$ ", console, flags=re.M)[1:]:
        lines = part.splitlines()
        end = next(at for at, line in enumerate(lines) if not line.endswith("\\"))
        yield "\n".join(lines[: end + 1]), lines[end + 1 :]


def check_output(command, shown, output):
    """Compares an output with the lines of a page. `…` stands for any lines if it is the whole line,
    otherwise for any text."""
    pattern = ""
    for line in shown:
        if line.strip() == "…":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += re.escape(line).replace("…", ".*") + r"\n"
    text = output if output.endswith("\n") or not output else output + "\n"
    if not re.fullmatch(pattern, text):
        fail(f"the output of `{command}` differs from the page:\n{output}\nThe page has:\n" + "\n".join(shown))


def run(command, **options):
    """Runs a command that must succeed. Returns its output as bytes."""
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False, **options)
    if done.returncode != 0:
        fail(f"{command} ended with {done.returncode}: {done.stdout.decode()}{done.stderr.decode()}")
    return done.stdout


def write_skill(directory, name, description, more=""):
    """Saves a skill by rename, as editors do. `more` has further lines of the frontmatter."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    draft = directory / ".draft"
    draft.write_text(f"---\nname: {name}\ndescription: {description}\n{more}---\n")
    draft.rename(directory / "SKILL.md")


class OutputLines:
    """Lines that a process prints, with a limit on the time to wait for a line."""

    def __init__(self, stream):
        self.lines, self.seen = queue.Queue(), []
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream):
        for line in stream:
            self.lines.put(line)
        self.lines.put("")

    def wait_for(self, text):
        """Returns the next line that contains the text."""
        while True:
            try:
                line = self.lines.get(timeout=TIMEOUT)
            except queue.Empty:
                line = ""
            if not line:
                fail(f"no line with {text!r} in:\n{''.join(self.seen)}")
            self.seen.append(line)
            if text in line:
                return line

    def rest(self):
        """Returns the lines until the end of the output."""
        rest = []
        while line := self.lines.get(timeout=TIMEOUT):
            rest.append(line)
        self.seen += rest
        return rest


class Daemon:
    """Daemon that publishes directories on a Unix socket, and can be restarted. With a config file, the
    daemon has its rules."""

    def __init__(self, caproot, socket, *directories, config=None):
        self.endpoint = f"unix:{socket}"
        self.command = [caproot, "serve", "--listen", self.endpoint]
        if config:
            self.command += ["--config", str(config)]
        for directory in directories:
            self.command += ["--root", str(directory)]

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        # A file, because the pipe of a log that no thread reads can become full.
        self.log = open(self.endpoint.removeprefix("unix:") + ".log", "w+", encoding="utf-8")
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        OutputLines(self.process.stdout).wait_for("listening unix:")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(timeout=TIMEOUT) != 0:
            self.log.seek(0)
            fail(f"the daemon ended with {self.process.returncode}:\n{self.log.read()}")
        self.log.close()


def environment(caproot, endpoint):
    """Returns the environment of a console: the program in PATH, and the endpoint of the daemon."""
    path = f"{Path(caproot).resolve().parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "CAPROOT_ENDPOINT": endpoint}
