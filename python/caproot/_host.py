"""Program of this process: one process of `caproot call` for all sessions. A program that died is started again by the
next call."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import itertools
import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from ._child import CallChild, run_in_loop
from ._errors import ForkedError, ProgramError, ToolError
from ._lines import write_value
from ._program import VERSION, ask_version, find_programs, missing_program

if TYPE_CHECKING:
    from ._line_types import ToolEvent
    from ._state import SessionState

Handler = Callable[[Any], Awaitable[Any]]
"""Asynchronous function from an event of the program to JSON."""

_USAGE = 2
"""Exit code of a program that does not know a flag."""

handlers: weakref.WeakValueDictionary[str, HandlerEntry] = weakref.WeakValueDictionary()
"""Functions that the program may call, by the keys in its events."""
_numbers = itertools.count(1)


def new_key() -> str:
    """Returns a key that no other function or fleet of this process has."""
    return str(next(_numbers))


class HandlerEntry:
    """A function of an event loop with its key. The program can call the function while the entry exists."""

    __slots__ = ("__weakref__", "_loop", "function", "key", "name")

    def __init__(self, name: str, function: Handler) -> None:
        self.name = name
        self.function = function
        self.key = new_key()
        self._loop = weakref.ref(asyncio.get_running_loop())
        handlers[self.key] = self

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """Loop of the function, unless it has ended."""
        return self._loop()


class OwnedTools:
    """Own tools of the session that started with them, and of its forks."""

    __slots__ = ("__weakref__", "functions", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, functions: dict[str, tuple[str, Handler]]) -> None:
        self.loop = loop
        # Names for messages and functions, by the names that a model uses.
        self.functions = functions


class ProgramHost:
    """Program of a process, and the sessions in it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.RLock()
        self.states: dict[str, SessionState] = {}
        # Tools by the ids of the sessions that started with them.
        self.owners: weakref.WeakValueDictionary[str, OwnedTools] = weakref.WeakValueDictionary()
        # Platforms by the numbers of their dispatchers.
        self.platforms: weakref.WeakValueDictionary[int, HandlerEntry] = weakref.WeakValueDictionary()
        self._child: CallChild | None = None
        self._tasks: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._users: dict[asyncio.AbstractEventLoop, int] = {}

    @staticmethod
    def current() -> ProgramHost:
        """Returns the host of this process."""
        global _host
        with _host_lock:
            if _host is None:
                _host = ProgramHost()
            return _host

    def check_process(self) -> None:
        """Raises an error in a child of the process."""
        if self.pid != os.getpid():
            raise ForkedError(
                "the object belongs to the parent of this process: begin a new session after the fork"
            )

    def retain(self, loop: asyncio.AbstractEventLoop) -> None:
        """Adds a session of a loop."""
        with self.lock:
            self._users[loop] = self._users.get(loop, 0) + 1

    def drop(self, loop: asyncio.AbstractEventLoop) -> CallChild | None:
        """Removes a session of a loop. Returns the program if the session was the last: the caller ends it."""
        with self.lock:
            self._users[loop] -= 1
            child = self._child
            if self._users[loop] == 0:
                del self._users[loop]
                if child is not None and self._users:
                    child.detach(loop)
            if self._users:
                return None
            self._child = None
            return child

    async def child(self) -> CallChild:
        """Returns the program. Starts it if it does not run."""
        self.check_process()
        child = self._child
        if child is not None and child.is_alive and child.is_checked:
            return child
        return await self._start()

    async def _start(self) -> CallChild:
        """Starts the first program that has the version of this package."""
        others: list[tuple[str, str | None]] = []
        for program in find_programs():
            with self.lock:
                # Another task may have started a program meanwhile.
                child = self._child
                if child is None or not child.is_alive:
                    child = self._child = CallChild(program, self._on_event, self._on_exit)
            version = await _check_version(child)
            if version == VERSION:
                return child
            others.append((child.program, version))
        raise missing_program(others)

    def _on_event(self, child: CallChild, event: Any) -> None:
        kind = event["event"]
        if kind == "toolCancelled":
            task = self._tasks.pop((id(child), event["call"]), None)
            if task is not None:
                run_in_loop(task.get_loop(), task.cancel)
        elif kind == "tool":
            self._call_tool(child, event)
        elif "call" in event:
            number = event.get("dispatcher")
            entry = handlers.get(event["key"]) if number is None else self.platforms.get(number)
            if entry is None or entry.loop is None:
                child.answer_call(event["call"], {"bug": "the function is gone"})
            else:
                self._begin(child, event["call"], entry.loop, Context(), entry.name, entry.function, event)
        else:
            state = self.states.get(event.get("session", ""))
            if state is not None:
                state.take_event(event)

    def _call_tool(self, child: CallChild, event: ToolEvent) -> None:
        owned = self.owners.get(event["session"])
        found = None if owned is None else owned.functions.get(event["tool"])
        if owned is None or found is None:
            child.answer_call(event["call"], {"bug": "the session has no such tool"})
            return
        name, function = found
        # A call of a dispatcher has no caller.
        context = child.context_of(event["request"]) or Context()
        self._begin(child, event["call"], owned.loop, context, name, function, event["arguments"])

    def _begin(
        self,
        child: CallChild,
        call: int,
        loop: asyncio.AbstractEventLoop,
        context: Context,
        name: str,
        function: Handler,
        argument: Any,
    ) -> None:
        """Begins a call of the program in the loop of its function."""

        def begin() -> None:
            work = self._answer(child, call, name, function, argument)
            # The task has a copy of the context, as calls of one caller may run at once.
            task = context.copy().run(loop.create_task, work)
            # Some loops begin a task at once.
            if not task.done():
                self._tasks[id(child), call] = task

        if not run_in_loop(loop, begin):
            child.answer_call(call, {"bug": f"the event loop of {name} has ended"})

    async def _answer(
        self, child: CallChild, call: int, name: str, function: Handler, argument: Any
    ) -> None:
        """Calls a function, and answers with its result, its words or its defect."""
        try:
            # A result without JSON is a defect of the function.
            result = write_value(await function(argument))
        except ToolError as error:
            child.answer_call(call, {"error": str(error) or "the tool failed"})
        except asyncio.CancelledError:
            child.answer_call(call, {"bug": f"{name} was cancelled"})
            raise
        except Exception as error:
            child.answer_call(call, {"bug": f"{name} raised {error!r}"})
            context = {"message": f"{name} has a defect", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        except BaseException as error:
            child.answer_call(call, {"bug": f"{name} raised {error!r}"})
            raise
        else:
            child.answer_call(call, {}, ("result", result))
        finally:
            # A callback of the task would take one more turn of the loop.
            self._tasks.pop((id(child), call), None)

    def _on_exit(self, child: CallChild, reason: Exception) -> None:
        for key, task in list(self._tasks.items()):
            if key[0] == id(child):
                self._tasks.pop(key, None)
                run_in_loop(task.get_loop(), task.cancel)
        for state in list(self.states.values()):
            state.take_exit(child, reason)

    def end_now(self) -> None:
        """Ends the program with its process."""
        if self.pid == os.getpid() and self._child is not None:
            self._child.end_now()

    def forget(self) -> None:
        """Leaves the program to the parent of this process."""
        if self._child is not None:
            self._child.forget()


async def _check_version(child: CallChild) -> str | None:
    """Returns the version of a program. A program of another version is ended."""
    version: str | None = None
    try:
        hello = (await child.request("hello", {})).result
        version = hello["version"]
        if version == VERSION:
            child.set_limits(hello)
            return version
    except (ValueError, LookupError, TypeError):
        # A very old program does not know the request.
        pass
    except ProgramError:
        await child.end()
        # Another version may not know the flags.
        if child.exit_code != _USAGE:
            raise
        version = await asyncio.to_thread(ask_version, child.program)
        if version == VERSION:
            raise
        return version
    child.kill()
    await child.end()
    return version


_host: ProgramHost | None = None
_host_lock = threading.Lock()
_inherited: list[ProgramHost] = []
"""Hosts of the ancestors of this process."""


def _end_host() -> None:
    if _host is not None:
        _host.end_now()


def _leave_host() -> None:
    """Lets a child of this process start its own program."""
    global _host, _host_lock
    _host_lock = threading.Lock()
    if _host is not None:
        _inherited.append(_host)
        with contextlib.suppress(OSError):
            _host.forget()
        _host = None


atexit.register(_end_host)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_host)
