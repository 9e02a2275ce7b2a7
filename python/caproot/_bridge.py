"""Bridge between the runtime of the extension module and an event loop of asyncio."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import logging
import os
import weakref
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from typing import Any

from . import _caproot
from ._errors import ToolError

Handler = Callable[[Any], Awaitable[Any]]
"""Asynchronous function from JSON to JSON that the extension module calls."""

_DONE, _FAILED, _CALLBACK, _CANCELLED = range(4)
_RESULT, _WORDS, _DEFECT = range(3)

_logger = logging.getLogger("caproot")
_bridges: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Bridge] = weakref.WeakKeyDictionary()
_handlers: weakref.WeakValueDictionary[int, HandlerEntry] = weakref.WeakValueDictionary()
_handler_numbers = itertools.count(1)


class HandlerEntry:
    """A function with its number. The function can be called while the entry exists."""

    __slots__ = ("__weakref__", "function", "name", "number")

    def __init__(self, name: str, function: Handler) -> None:
        self.name = name
        self.function = function
        self.number = next(_handler_numbers)
        _handlers[self.number] = self


class Bridge:
    """Bridge of one event loop. All sessions of the loop share it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # A strong reference would keep the loop: the table of all bridges refers to this object.
        self._loop = weakref.ref(loop)
        self._mailbox = _caproot.Mailbox()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._contexts: dict[int, Context] = {}
        self._users = 0
        self._has_ended = False
        self._pid = os.getpid()
        self._descriptor = self._mailbox.fileno()
        loop.add_reader(self._descriptor, self._deliver)

    @staticmethod
    def acquire() -> Bridge:
        """Returns the bridge of the running loop for one more user."""
        loop = asyncio.get_running_loop()
        bridge = _bridges.get(loop)
        if bridge is None:
            bridge = _bridges[loop] = Bridge(loop)
        bridge._users += 1
        return bridge

    def retain(self) -> None:
        """Adds a user."""
        self._users += 1

    def release(self) -> None:
        """Removes a user. The bridge ends with its last user, once nothing waits."""
        if self._pid != os.getpid():
            # The descriptors of the loop belong to the parent, too.
            return
        loop = self._loop()
        if loop is None or loop.is_closed() or loop is asyncio._get_running_loop():
            self._drop_user()
            return
        try:
            loop.call_soon_threadsafe(self._drop_user)
        except RuntimeError:
            # The loop was closed meanwhile.
            self._drop_user()

    def _drop_user(self) -> None:
        self._users -= 1
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        if self._users > 0 or self._has_ended:
            return
        loop = self._loop()
        is_alive = loop is not None and not loop.is_closed()
        if is_alive and (self._waiting or self._tasks):
            return
        self._has_ended = True
        if loop is not None and _bridges.get(loop) is self:
            del _bridges[loop]
        if loop is not None and is_alive:
            loop.remove_reader(self._descriptor)
        self._mailbox.close()

    def check_loop(self) -> asyncio.AbstractEventLoop:
        """Returns the loop, which must be the running loop."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop():
            raise RuntimeError(
                "the session belongs to another event loop: begin a session in this loop, or use "
                "asyncio.run_coroutine_threadsafe or caproot.sync"
            )
        return loop

    async def run(self, begin: Callable[..., Any], *arguments: Any) -> Any:
        """Runs an operation: `begin` gets the number of the operation and the arguments, and returns
        the result, or `None` if the operation goes on."""
        loop = self.check_loop()
        number = next(self._numbers)
        result = begin(number, *arguments)
        if result is None:
            result = await self._wait(loop, number)
        return result

    async def run_in_context(self, begin: Callable[..., Any], *arguments: Any) -> Any:
        """Runs an operation whose callbacks see the context variables of the caller. `begin` gets the
        number of the context after the number of the operation."""
        loop = self.check_loop()
        number = next(self._numbers)
        self._contexts[number] = copy_context()
        try:
            result = begin(number, number, *arguments)
            if result is None:
                result = await self._wait(loop, number)
            return result
        finally:
            del self._contexts[number]

    async def open(self, begin: Callable[..., Any], *arguments: Any) -> Any:
        """Runs an operation that gets the mailbox before its number."""
        return await self.run(lambda number: begin(self._mailbox, number, *arguments))

    async def _wait(self, loop: asyncio.AbstractEventLoop, number: int) -> Any:
        future = self._waiting[number] = loop.create_future()
        try:
            return await future
        finally:
            if self._waiting.pop(number, None) is not None:
                self._mailbox.abort(number)
                self._end_if_unused()

    def _deliver(self) -> None:
        """Handles everything that waits in the mailbox."""
        for message in self._mailbox.take():
            kind, number = message[0], message[1]
            if kind == _DONE or kind == _FAILED:
                future = self._waiting.pop(number, None)
                if future is None or future.done():
                    continue
                if kind == _DONE:
                    future.set_result(message[2])
                else:
                    future.set_exception(message[2])
            elif kind == _CALLBACK:
                self._begin_callback(*message[1:])
            elif kind == _CANCELLED:
                task = self._tasks.get(number)
                if task is not None:
                    task.cancel()
            else:
                _logger.log(number, "%s", message[2])
        self._end_if_unused()

    def _begin_callback(self, call: int, handler: int, context: int, payload: str) -> None:
        entry = _handlers.get(handler)
        loop = self._loop()
        if entry is None or loop is None:
            self._mailbox.answer(call, _DEFECT, "the function is gone")
            return
        work = self._answer(loop, call, entry, payload)
        task = loop.create_task(work, context=self._contexts.get(context))
        self._tasks[call] = task
        task.add_done_callback(functools.partial(self._end_callback, call))

    def _end_callback(self, call: int, task: asyncio.Task[None]) -> None:
        del self._tasks[call]
        self._end_if_unused()

    async def _answer(
        self, loop: asyncio.AbstractEventLoop, call: int, entry: HandlerEntry, payload: str
    ) -> None:
        """Calls a function, and answers with its result, its words or its defect."""
        try:
            result = await entry.function(json.loads(payload))
            text = json.dumps(result, allow_nan=False, ensure_ascii=False)
        except ToolError as error:
            self._mailbox.answer(call, _WORDS, str(error) or "the tool failed")
        except asyncio.CancelledError:
            self._mailbox.answer(call, _DEFECT, f"{entry.name} was cancelled")
            raise
        except Exception as error:
            self._mailbox.answer(call, _DEFECT, f"{entry.name} raised {error!r}")
            loop.call_exception_handler({"message": f"{entry.name} has a defect", "exception": error})
        except BaseException as error:
            self._mailbox.answer(call, _DEFECT, f"{entry.name} raised {error!r}")
            raise
        else:
            self._mailbox.answer(call, _RESULT, text)
