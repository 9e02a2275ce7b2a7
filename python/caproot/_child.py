"""One process of `caproot call`: requests, answers and events as lines of JSON."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import itertools
import json
import logging
import os
import re
import select
import signal
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from ._errors import ConfigError, Error, ProgramError, Refused
from ._lines import JsonText, write_line
from ._results import ResultImage, ToolResult

if TYPE_CHECKING:
    from ._line_types import AnswerImage, ProgramState, RequestError

MAX_LINE_BYTES = 128 << 20
"""Limit of a line of the program: a file of 16 MiB in which each byte is escaped."""
PROGRAM_TIMEOUT = 10.0
"""Seconds within which the program must show that it runs."""
EXIT_TIMEOUT = 5.0
"""Seconds that the program gets to end."""
_MAX_STDERR = 4096
"""End of stderr that an error quotes."""
_CHUNK = 1 << 16
_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031
_URGENT = frozenset({"hello", "tool_result", "cancel"})
"""Requests that the program answers however many others are in flight."""
_RESERVED = 16
"""Requests in flight that are kept for threads that wait."""
_TOOL_RESULT = re.compile(rb'\{"id":(\d+),"success":(true|false),"externalContext":(true|false),"result":')

_logger = logging.getLogger("caproot")


class ProgramAnswer:
    """Answer of a request."""

    __slots__ = ("_line", "_message", "_start")

    def __init__(self, line: bytes, message: dict[str, Any], start: int = 0) -> None:
        self._line = line
        self._message = message
        # Place of the result in the line.
        self._start = start

    @property
    def result(self) -> Any:
        """Parsed result. Raises the error of the answer."""
        error = self._message.get("error")
        if error is not None:
            raise to_exception(error)
        return self._message["result"]

    @property
    def result_text(self) -> str:
        """Result as the program wrote it. Raises the error of the answer."""
        error = self._message.get("error")
        if error is not None:
            raise to_exception(error)
        start = self._start
        if not start:
            key = b'"result":'
            start = self._line.index(key) + len(key)
        return self._line[start:-1].decode()

    def tool_result(self) -> ToolResult:
        """Returns the result of a tool."""
        text = self.result_text
        message = self._message
        return ToolResult(message["success"], message["externalContext"], text, read_images(message.get("images")))


class PendingRequest:
    """Request without an answer."""

    __slots__ = ("context", "future", "loop", "outcome")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop | None = None,
        future: asyncio.Future[ProgramAnswer] | None = None,
        context: Context | None = None,
    ) -> None:
        self.loop = loop
        self.future = future
        # Context variables of the caller of a tool.
        self.context = context
        # Answer for a thread that waits.
        self.outcome: ProgramAnswer | Exception | None = None

    def end(self, outcome: ProgramAnswer | Exception) -> None:
        """Gives the outcome to the caller."""
        self.outcome = outcome
        if self.future is not None and self.loop is not None:
            run_in_loop(self.loop, self._end_future, outcome)

    def _end_future(self, outcome: ProgramAnswer | Exception) -> None:
        future = self.future
        if future is None or future.done():
            return
        if isinstance(outcome, Exception):
            future.set_exception(copy_error(outcome))
        else:
            future.set_result(outcome)


class LoopReader:
    """Reader of the program in one event loop. Each loop has a descriptor of its own, which it closes itself."""

    def __init__(self, child: CallChild, loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
        self._child = child
        self._loop = loop
        self._descriptor: int | None = descriptor
        loop.add_reader(descriptor, self._read)

    def _read(self) -> None:
        if self._descriptor is not None and not self._child.read(self._descriptor):
            self.close()

    def close(self) -> None:
        """Ends the reader. Runs in the loop, or after the loop."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        if not self._loop.is_closed():
            self._loop.remove_reader(descriptor)
        os.close(descriptor)

    # A loop that was closed drops its readers.
    __del__ = close

    def forget(self) -> None:
        """Closes the descriptor in a child of this process, which shares the loop's selector with its parent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


class CallChild:
    """Process of `caproot call`. Every thread may send requests. Event loops read the answers, and a thread of this
    class the log and the end of the process."""

    def __init__(
        self,
        program: str,
        on_event: Callable[[CallChild, dict[str, Any]], None],
        on_exit: Callable[[CallChild, Exception], None],
    ) -> None:
        self.program = program
        self._pid = os.getpid()
        self._on_event = on_event
        self._on_exit = on_exit
        self._lock = threading.RLock()
        self._pending: dict[int, PendingRequest] = {}
        self._in_flight: set[int] = set()
        # Requests that wait for room in the program.
        self._queue: deque[tuple[int, bytes]] = deque()
        self._numbers = itertools.count(1)
        self._max_in_flight = 1 + _RESERVED
        self._max_line_bytes = 1 << 20
        # Whether the program has the version of this package.
        self.is_checked = False
        self._chunks: list[bytes] = []
        self._chunk_bytes = 0
        self._unsent = b""
        self._is_flushing = False
        self._has_input = True
        self._stderr = b""
        self._failure: Exception | None = None
        self._silence = PROGRAM_TIMEOUT / 2
        # Start of the silence, and whether the program was asked since.
        self._silent_since = time.monotonic()
        self._is_pinged = False
        self._readers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopReader] = weakref.WeakKeyDictionary()
        self.exited: concurrent.futures.Future[None] = concurrent.futures.Future()

        # Executors are named by requests, so that no variable names one.
        names = ("ENDPOINT", "CA", "CERT", "KEY", "TOKEN_FILE")
        environment = {name: value for name, value in os.environ.items() if name not in {f"CAPROOT_{end}" for end in names}}
        try:
            self._process = subprocess.Popen(
                [program, "call", "--no-session"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=environment,
            )
        except OSError as error:
            raise ProgramError(f"the program {program} cannot be started: {error}") from error
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._stdin = self._process.stdin.fileno()
        self._stdout = self._process.stdout.fileno()
        for descriptor in (self._stdin, self._stdout, self._process.stderr.fileno()):
            os.set_blocking(descriptor, False)
        _enlarge_pipe(self._stdin)
        self._supervisor = threading.Thread(target=self._supervise, name="caproot", daemon=True)
        self._supervisor.start()

    @property
    def is_alive(self) -> bool:
        """Whether the program takes requests."""
        return self._failure is None

    @property
    def is_own(self) -> bool:
        """Whether this process started the program."""
        return self._pid == os.getpid()

    @property
    def exit_code(self) -> int | None:
        """Exit code, once the program has ended."""
        return self._process.returncode

    def set_limits(self, hello: ProgramState) -> None:
        """Takes the limits of the program from its first answer."""
        self._max_in_flight = hello["maxInFlight"]
        self._max_line_bytes = hello["maxLineBytes"]
        self.is_checked = True

    async def request(
        self,
        method: str,
        fields: dict[str, Any],
        context: Context | None = None,
        last: tuple[str, JsonText] | None = None,
    ) -> ProgramAnswer:
        """Sends a request, and waits for its answer. Cancels the request with the caller."""
        loop = asyncio.get_running_loop()
        self._attach(loop)
        future: asyncio.Future[ProgramAnswer] = loop.create_future()
        number = self._send(method, fields, PendingRequest(loop, future, context), last)
        try:
            return await future
        except asyncio.CancelledError:
            self._abandon(number)
            raise

    def request_now(self, method: str, fields: dict[str, Any]) -> ProgramAnswer:
        """Sends a request, and waits in this thread. The program answers without an answer of this process."""
        pending = PendingRequest()
        self._send(method, fields, pending, is_urgent=True)
        poller = select.poll()
        poller.register(self._stdout, select.POLLIN)
        while pending.outcome is None:
            # Another thread may read the answer, so that nothing more comes.
            poller.poll(10)
            with self._lock:
                if self._failure is None:
                    self.read(self._stdout)
        if isinstance(pending.outcome, Exception):
            raise copy_error(pending.outcome)
        return pending.outcome

    def send(self, method: str, fields: dict[str, Any]) -> None:
        """Sends a request whose answer nobody needs."""
        # The exit of the program has its own reason.
        with contextlib.suppress(Error):
            self._send(method, fields, PendingRequest(), is_urgent=True)

    def answer_call(
        self, call: int, outcome: dict[str, Any], last: tuple[str, JsonText] | None = None
    ) -> None:
        """Answers a call of the program by an event."""
        try:
            self._send("tool_result", {"call": call, **outcome}, PendingRequest(), last)
        except (Error, ValueError) as error:
            if self.is_alive and "bug" not in outcome:
                self.answer_call(call, {"bug": str(error)})

    def context_of(self, request: object) -> Context | None:
        """Returns the context of the caller of a tool, if the request is in flight."""
        pending = self._pending.get(request) if isinstance(request, int) else None
        return None if pending is None else pending.context

    def kill(self) -> None:
        """Ends the program at once, also if it is stopped."""
        self._process.kill()

    async def end(self) -> None:
        """Ends the program after its requests, and waits for its exit."""
        self.close_input()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self.exited)), EXIT_TIMEOUT)
        if not self.exited.done():
            self.kill()
            await asyncio.wrap_future(self.exited)
        self.detach(asyncio.get_running_loop())

    def end_now(self) -> None:
        """Ends the program, and waits for its exit in this thread."""
        self.close_input()
        with contextlib.suppress(concurrent.futures.TimeoutError):
            self.exited.result(EXIT_TIMEOUT)
        if not self.exited.done():
            self.kill()
            self.exited.result()
        for reader in list(self._readers.values()):
            reader.close()

    def close_input(self) -> None:
        """Says that no request follows."""
        with self._lock:
            self._has_input = False
            if not self._is_flushing:
                self._close_stdin()

    def detach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ends the reader of a loop."""
        reader = self._readers.pop(loop, None)
        if reader is not None:
            reader.close()

    def forget(self) -> None:
        """Leaves the program to the parent of this process."""
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        for reader in list(self._readers.values()):
            reader.forget()
        # A destructor would warn about a process that still runs.
        self._process.returncode = 0

    def read(self, descriptor: int) -> bool:
        """Reads and delivers the lines of the program. Returns whether more may come."""
        with self._lock:
            while True:
                try:
                    data = os.read(descriptor, _CHUNK)
                except BlockingIOError:
                    return True
                except OSError:
                    return False
                if not data:
                    return False
                if self._failure is None:
                    self._take(data)
                if len(data) < _CHUNK:
                    return True

    def _attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Reads the program in a loop, too."""
        if loop not in self._readers:
            with self._lock:
                if self._failure is not None:
                    raise copy_error(self._failure)
                self._readers[loop] = LoopReader(self, loop, os.dup(self._stdout))

    def _send(
        self,
        method: str,
        fields: dict[str, Any],
        pending: PendingRequest,
        last: tuple[str, JsonText] | None = None,
        is_urgent: bool = False,
    ) -> int:
        with self._lock:
            number = next(self._numbers)
            line = write_line({"id": number, "method": method, **fields}, last)
            if self._failure is not None:
                raise copy_error(self._failure)
            if len(line) > self._max_line_bytes:
                sentence = f"the request has {len(line)} bytes, and its limit is {self._max_line_bytes} bytes"
                raise Refused(sentence, "TOO_LARGE", "Send less at once.")

            if not self._pending:
                self._silent_since = time.monotonic()
                self._is_pinged = False
            self._pending[number] = pending
            if is_urgent or method in _URGENT:
                self._write(line)
            elif len(self._in_flight) < self._max_in_flight - _RESERVED:
                self._in_flight.add(number)
                self._write(line)
            else:
                self._queue.append((number, line))
            return number

    def _abandon(self, number: int) -> None:
        """Cancels a request whose caller has gone."""
        with self._lock:
            pending = self._pending.get(number)
            if pending is None or self._failure is not None:
                return
            for queued in self._queue:
                if queued[0] == number:
                    self._queue.remove(queued)
                    del self._pending[number]
                    return
            # The answer with the error CANCELLED still counts as in flight.
            pending.future = None
            self.send("cancel", {"request": number})

    def _close_stdin(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _write(self, line: bytes) -> None:
        """Writes a line. A thread writes what a full pipe does not take."""
        if not self._has_input:
            return
        self._unsent += line
        if self._is_flushing:
            return
        self._flush_some()
        if self._unsent:
            self._is_flushing = True
            threading.Thread(target=self._flush, name="caproot-write", daemon=True).start()

    def _flush_some(self) -> None:
        try:
            sent = os.write(self._stdin, self._unsent)
        except BlockingIOError:
            return
        except OSError:
            # The exit of the program has the reason.
            sent = len(self._unsent)
        self._unsent = self._unsent[sent:]

    def _flush(self) -> None:
        poller = select.poll()
        poller.register(self._stdin, select.POLLOUT)
        while True:
            poller.poll()
            with self._lock:
                if self._failure is None:
                    self._flush_some()
                if self._unsent and self._failure is None:
                    continue
                self._is_flushing = False
                if not self._has_input:
                    self._close_stdin()
                return

    def _take(self, data: bytes) -> None:
        """Delivers the whole lines of what was read."""
        self._silent_since = time.monotonic()
        self._is_pinged = False
        parts = data.split(b"\n")
        self._chunks.append(parts[0])
        self._chunk_bytes += len(parts[0])
        for part in parts[1:]:
            line = b"".join(self._chunks) if len(self._chunks) > 1 else self._chunks[0]
            self._chunks = [part]
            self._chunk_bytes = len(part)
            if line and self._failure is None:
                self._read_line(line)
        if self._chunk_bytes > MAX_LINE_BYTES:
            self._fail(ProgramError(f"the program caproot wrote a line over {MAX_LINE_BYTES} bytes"))

    def _read_line(self, line: bytes) -> None:
        # The result of a tool is not parsed: its text is the answer.
        found = _TOOL_RESULT.match(line)
        if found is not None:
            message: dict[str, Any] = {"success": found[2] == b"true", "externalContext": found[3] == b"true"}
            self._end_request(int(found[1]), ProgramAnswer(line, message, found.end()))
            return
        try:
            message = json.loads(line)
            if not isinstance(message, dict):
                raise ValueError("no object")
        except (ValueError, RecursionError):
            start = line[:200].decode(errors="replace")
            self._fail(ProgramError(f"the program caproot wrote a line that is no JSON object: {start}"))
            return
        if "event" in message:
            self._on_event(self, message)
        else:
            self._end_request(message.get("id"), ProgramAnswer(line, message))

    def _end_request(self, number: Any, answer: ProgramAnswer) -> None:
        pending = self._pending.pop(number, None)
        self._in_flight.discard(number)
        if pending is not None:
            pending.end(answer)
        if self._queue and len(self._in_flight) < self._max_in_flight - _RESERVED:
            number, line = self._queue.popleft()
            self._in_flight.add(number)
            self._write(line)

    def _supervise(self) -> None:
        """Reads the log of the program, asks a silent program, and waits for the end."""
        stderr = self._process.stderr
        assert stderr is not None
        poller = select.poll()
        poller.register(stderr.fileno(), select.POLLIN)
        # Without an event, the end of the output is still reported.
        poller.register(self._stdout, 0)
        while True:
            for descriptor, _ in poller.poll(self._silence * 1000):
                if descriptor == self._stdout:
                    self._finish()
                    return
                if not self._read_log():
                    poller.unregister(descriptor)
            self._check_silence()

    def _check_silence(self) -> None:
        with self._lock:
            if self._failure is not None or not self._pending:
                return
            if time.monotonic() - self._silent_since < self._silence:
                return
            # A loop that is busy or has ended reads nothing.
            self.read(self._stdout)
            if time.monotonic() - self._silent_since < self._silence or not self._pending:
                return
            if self._is_pinged:
                self._fail(ProgramError(f"the program caproot did not answer within {2 * self._silence:g} s"))
                return
            self._silent_since = time.monotonic()
            self._is_pinged = True
            self.send("hello", {})

    def _read_log(self) -> bool:
        """Reads what waits on stderr. Returns whether more may come."""
        stderr = self._process.stderr
        assert stderr is not None
        while True:
            try:
                data = os.read(stderr.fileno(), _CHUNK)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._stderr = (self._stderr + data)[-_MAX_STDERR:]
            for line in data.decode(errors="replace").splitlines():
                if line.strip():
                    _logger.log(logging.ERROR if " ERROR " in line else logging.WARNING, "%s", line)

    def _finish(self) -> None:
        """Waits for the exit of a program that closed its output, and fails the requests in flight."""
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        # A server that the program started may keep the pipe open.
        self._read_log()
        with self._lock:
            self.read(self._stdout)
            self._fail(self._exit_reason())
            self._has_input = False
            for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
                if pipe is not None:
                    pipe.close()
        self.exited.set_result(None)

    def _exit_reason(self) -> ProgramError:
        code = self._process.returncode
        words = " ".join(self._stderr.decode(errors="replace").split())
        how = f"the exit code {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                how = signal.Signals(-code).name
        return ProgramError(f"the program caproot ended with {how}" + (f": {words}" if words else ""))

    def _fail(self, reason: Exception) -> None:
        """Fails everything that waits. Only the first reason counts."""
        if self._failure is not None:
            return
        self._failure = reason
        pending = list(self._pending.values())
        self._pending.clear()
        self._in_flight.clear()
        self._queue.clear()
        for request in pending:
            request.end(reason)
        self._on_exit(self, reason)
        if self._process.returncode is None:
            self.kill()


def run_in_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: object) -> bool:
    """Runs a function in a loop: now, if this thread runs the loop. Returns `False` if the loop has ended."""
    if loop is asyncio._get_running_loop():
        function(*arguments)
        return True
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        return False
    return True


def read_images(images: list[AnswerImage] | None) -> list[ResultImage]:
    """Decodes the images of a line."""
    if not images:
        return []
    from base64 import b64decode

    return [ResultImage(image["mimeType"], b64decode(image["data"])) for image in images]


def copy_error(error: Exception) -> Exception:
    """Returns an error for one more caller, as a traceback belongs to one."""
    return type(error)(*error.args)


def to_exception(error: RequestError) -> Exception:
    """Returns the exception of the error of an answer."""
    code, message = error["code"], error["message"]
    if code == "BAD_CONFIG":
        mistakes = error.get("mistakes") or [message]
        # The address is the field `endpoint` of a line.
        return ConfigError([re.sub(r"(^|: )endpoint: ", r"\1address: ", mistake) for mistake in mistakes])
    if code == "BAD_REQUEST":
        return ValueError(message)
    if code == "FAILED":
        return Error(message)
    return Refused(message, code, error.get("next", ""))


def _enlarge_pipe(descriptor: int) -> None:
    """Lets a pipe take a large request at once, where the system can."""
    import fcntl

    # A limit of the user may be smaller.
    with contextlib.suppress(OSError):
        fcntl.fcntl(descriptor, getattr(fcntl, "F_SETPIPE_SZ", _F_SETPIPE_SZ), _PIPE_BYTES)
