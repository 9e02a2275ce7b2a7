"""Sessions without asyncio: the methods of `caproot.Session` as plain functions.

```python
with caproot.sync.connect() as skills:
    for skill in skills.list():
        print(skill.name, skills.read(skill))
```

A thread of this module runs an event loop for all sessions. A session may be used from any thread.
"""

from __future__ import annotations

import asyncio
import builtins
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from . import _session

if TYPE_CHECKING:
    from types import TracebackType

    from . import _codex
    from ._line_types import (
        ExecutorState,
        InjectedSkills,
        InstructionUpdate,
        McpServerStatus,
        ReinjectedSkills,
        SavedChanges,
        SessionPlugin,
        SourceState,
        UsageEvent,
        UsedSkill,
    )
    from ._results import Skill, ToolResult
    from ._types import Change, PluginChanges, ToolDefinition

__all__ = ["Session", "connect", "restore"]

P = ParamSpec("P")
T = TypeVar("T")


def _takes_arguments_of(_: Callable[P, object]) -> Callable[[Callable[..., T]], Callable[P, T]]:
    return lambda function: function


@_takes_arguments_of(_session.connect)
def connect(*arguments: Any, **options: Any) -> Session:
    """Begins a session with the arguments of `caproot.connect`. Use it with `with`, or call `close`."""
    return Session(_run(_begin(_session.connect, *arguments, **options)))


@_takes_arguments_of(_session.Session.restore)
def restore(*arguments: Any, **options: Any) -> Session:
    """Restores a session with the arguments of `caproot.Session.restore`."""
    return Session(_run(_session.Session.restore(*arguments, **options)))


async def _begin(connect: Callable[..., Any], *arguments: Any, **options: Any) -> _session.Session:
    return await connect(*arguments, **options)  # type: ignore[no-any-return]


class Session:
    """Skills of one conversation, for programs without asyncio. The methods are those of
    `caproot.Session`."""

    def __init__(self, inner: _session.Session) -> None:
        self._inner = inner

    @property
    def id(self) -> str:
        """Id of the session."""
        return self._inner.id

    @property
    def text(self) -> str:
        """Text of now that describes the skills to a model."""
        return self._inner.text

    @property
    def tools(self) -> builtins.list[ToolDefinition]:
        """Tools for a model."""
        return self._inner.tools

    @property
    def warnings(self) -> builtins.list[str]:
        """Executors and saved parts without which the session began."""
        return self._inner.warnings

    @property
    def is_closed(self) -> bool:
        """Whether the session is closed."""
        return self._inner.is_closed

    def call(self, name: str, arguments: Mapping[str, object] | str | None = None) -> ToolResult:
        """Calls a tool for a model."""
        return _run(self._inner.call(name, arguments))

    def list(self) -> builtins.list[Skill]:
        """Returns all skills that a model may use."""
        return _run(self._inner.list())

    def read(self, skill: Skill | str, path: str = "") -> str:
        """Returns a text file of a skill."""
        return _run(self._inner.read(skill, path))

    def codex(self) -> Codex:
        """Returns the parts of a thread of `codex app-server`."""
        return Codex(_run(_now(self._inner, self._inner.codex)))

    def changes(self) -> Iterator[Change]:
        """Returns the changes from now on, until the session is closed."""
        return _iterate(self._inner.changes)

    def plugins(self) -> builtins.list[SessionPlugin]:
        """Returns the plugins."""
        return _run(_now(self._inner, self._inner.plugins))

    def plugin_servers(self) -> builtins.list[McpServerStatus]:
        """Returns the MCP servers of plugins with their origins, tools and errors."""
        return _run(_now(self._inner, self._inner.plugin_servers))

    def retry_servers(self) -> builtins.list[dict[str, Any]]:
        """Tries again to use the MCP servers that cannot be used."""
        return _run(self._inner.retry_servers())

    def plugin_changes(self) -> Iterator[PluginChanges]:
        """Returns the changes of plugins from now on, until the session is closed."""
        return _iterate(self._inner.plugin_changes)

    def usage(self) -> Iterator[UsageEvent]:
        """Returns the uses of skills from now on, until the session is closed."""
        return _iterate(self._inner.usage)

    def inject(
        self,
        text: str,
        *,
        mentions: Iterable[Mapping[str, str]] = (),
        connectors: Iterable[str] = (),
        caller_skills: Iterable[str] = (),
        arguments: str = "",
    ) -> InjectedSkills:
        """Reads the skills that a user mentions."""
        return _run(
            self._inner.inject(
                text,
                mentions=mentions,
                connectors=connectors,
                caller_skills=caller_skills,
                arguments=arguments,
            )
        )

    def instruction_text(self, budget: int = 8000, *, known: str | None = None) -> InstructionUpdate:
        """Returns the text with its counts and warnings."""
        return _run(_now(self._inner, self._inner.instruction_text, budget, known=known))

    def used_skills(self) -> builtins.list[UsedSkill]:
        """Returns the files of skills that the model read or was given."""
        return _run(self._inner.used_skills())

    def reinject(self, budget: int = 32_000) -> ReinjectedSkills:
        """Returns these files again."""
        return _run(self._inner.reinject(budget))

    def executors(self) -> builtins.list[ExecutorState]:
        """Returns the state of each executor."""
        return _run(_now(self._inner, self._inner.executors))

    def source_states(self) -> builtins.list[SourceState]:
        """Returns the state of each source."""
        return _run(_now(self._inner, self._inner.source_states))

    def fork(
        self,
        *,
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        pin: Iterable[str] = (),
        name_only: Iterable[str] = (),
        manual: Iterable[str] = (),
        enable: Iterable[str] = (),
        roots: Iterable[str] | None = None,
        product: str = "",
    ) -> Session:
        """Returns a session with all roots and skills or some of them."""
        return Session(
            _run(
                _now(
                    self._inner,
                    self._inner.fork,
                    include=include,
                    exclude=exclude,
                    pin=pin,
                    name_only=name_only,
                    manual=manual,
                    enable=enable,
                    roots=roots,
                    product=product,
                )
            )
        )

    def save(self) -> str:
        """Returns the session as a text of JSON."""
        return _run(_now(self._inner, self._inner.save))

    def changes_since_save(self) -> builtins.list[SavedChanges]:
        """Returns the changes of each executor since the save."""
        return _run(_now(self._inner, self._inner.changes_since_save))

    def persist(self) -> None:
        """Saves the session in its store."""
        _run(self._inner.persist())

    def close(self, *, delete: bool = False) -> None:
        """Closes the session."""
        _run(self._inner.close(delete=delete))

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<caproot.sync.Session {self._inner.id}>"


class Codex:
    """Tools and text of a session for a thread of `codex app-server`, and the answers to its calls."""

    def __init__(self, inner: _codex.Codex) -> None:
        self._inner = inner

    @property
    def tools(self) -> builtins.list[dict[str, Any]]:
        """Tools for `dynamicTools` of `thread/start`."""
        return self._inner.tools

    @property
    def text(self) -> str:
        """Text of now for `developerInstructions` of `thread/start`."""
        return self._inner.text

    def answer(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the result of the request `item/tool/call` with these parameters."""
        return _run(self._inner.answer(params))


async def _now(session: _session.Session, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Calls a method that needs the program, in the thread of the event loop."""
    if not session.is_closed:
        await session._state.attached()
    return function(*arguments, **options)


async def _call(function: Callable[..., T], **options: Any) -> T:
    """Calls a function in the thread of the event loop."""
    return function(**options)


def _iterate(changes: Callable[[], Any]) -> Iterator[Any]:
    # The watch begins now, and not at the first step of the iterator.
    return _Changes(_run(_call(changes)))


class _Changes:
    def __init__(self, changes: Any) -> None:
        self._changes = changes

    def __iter__(self) -> _Changes:
        return self

    def __next__(self) -> Any:
        found, change = _run(self._next())
        if not found:
            raise StopIteration
        return change

    async def _next(self) -> tuple[bool, Any]:
        try:
            return True, await self._changes.__anext__()
        except StopAsyncIteration:
            return False, None


class _Worker:
    """Thread with the event loop of a process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="caproot-sync", daemon=True)
        self.thread.start()


_worker: _Worker | None = None
_worker_lock = threading.Lock()


def _reset_lock() -> None:
    """Gives a child a lock of its own, as another thread of the parent may have held the lock."""
    global _worker_lock
    _worker_lock = threading.Lock()


os.register_at_fork(after_in_child=_reset_lock)


def _current_worker() -> _Worker:
    global _worker
    with _worker_lock:
        if _worker is None or _worker.pid != os.getpid():
            _worker = _Worker()
        return _worker


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in the event loop, with the context variables of the caller, and waits for it. A
    signal such as Ctrl-C ends the wait and cancels the coroutine."""
    worker = _current_worker()
    if threading.current_thread() is worker.thread:
        work.close()
        raise RuntimeError(
            "caproot.sync was called from its own event loop, such as from an asynchronous tool: use "
            "caproot.connect there"
        )
    outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
    tasks: list[asyncio.Task[T]] = []

    def begin() -> None:
        task = worker.loop.create_task(work)
        tasks.append(task)
        task.add_done_callback(end)

    def end(task: asyncio.Task[T]) -> None:
        if task.cancelled():
            outcome.cancel()
        elif error := task.exception():
            outcome.set_exception(error)
        else:
            outcome.set_result(task.result())

    worker.loop.call_soon_threadsafe(begin, context=copy_context())
    try:
        return outcome.result()
    except BaseException:
        if not outcome.done():
            worker.loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
        raise
