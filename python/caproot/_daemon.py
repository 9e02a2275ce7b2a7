"""A daemon of this process on a private socket."""

from __future__ import annotations

import atexit
import os
import select
import shutil
import subprocess
import tempfile
import time
import weakref

from ._errors import ConfigError, Error
from ._program import find_program

START_TIMEOUT = 30.0
"""Seconds until a daemon must listen."""
_STOP_TIMEOUT = 5.0


class Daemon:
    """Daemon with published directories. `close` ends it, and so does every end of this process."""

    def __init__(self, root_flags: list[str]) -> None:
        binary = find_program()
        self._pid = os.getpid()
        self._directory = tempfile.mkdtemp(prefix="caproot-")
        self.address = f"unix:{self._directory}/caproot.sock"
        self._log = open(f"{self._directory}/log", "w+b")
        # If this process is killed, the pipe ends, and the daemon with it.
        command = [binary, "serve", "--stop-with-stdin", "--listen", self.address, *root_flags]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
            )
        except OSError as error:
            self._remove_directory()
            raise ConfigError([f"{binary} cannot be started: {error}"]) from error
        _daemons.add(self)

    def wait_until_ready(self) -> None:
        """Waits until the daemon listens. Raises `ConfigError` with the words of the daemon."""
        stdout = self._process.stdout
        assert stdout is not None
        deadline = time.monotonic() + START_TIMEOUT
        said = b""
        while b"listening " not in said:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stdout], [], [], left)[0]:
                self.close()
                raise Error(f"the daemon did not listen within {START_TIMEOUT:g} s")
            part = os.read(stdout.fileno(), 4096)
            if not part:
                words = self._end_of_log()
                self.close()
                raise ConfigError([f"the daemon ended: {words}"])
            said += part

    def close(self) -> None:
        """Ends the daemon. Does nothing in a child of the process that started it."""
        if self._pid != os.getpid() or self not in _daemons:
            return
        _daemons.discard(self)
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._remove_directory()

    def _end_of_log(self) -> str:
        self._process.wait(_STOP_TIMEOUT)
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return " ".join(line.strip() for line in lines[-8:])

    def _remove_directory(self) -> None:
        self._log.close()
        shutil.rmtree(self._directory, ignore_errors=True)


_daemons: weakref.WeakSet[Daemon] = weakref.WeakSet()


def _close_all() -> None:
    for daemon in list(_daemons):
        daemon.close()


def _close_inherited_pipes() -> None:
    """Leaves the life of the daemons to the parent."""
    for daemon in list(_daemons):
        if daemon._process.stdin is not None:
            daemon._process.stdin.close()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_close_inherited_pipes)
