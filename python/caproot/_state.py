"""State of a session in the program. The object of the caller is apart, so that its end is the end of the session."""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar

from ._changes import ChangeReader
from ._child import CallChild, ProgramAnswer, copy_error, run_in_loop
from ._errors import ProgramError, Refused
from ._host import Handler, OwnedTools, ProgramHost
from ._lines import JsonText

if TYPE_CHECKING:
    from ._line_types import ChangedEvent, PluginsEvent, SessionId, StartedSession, ToolPayload, WatchedText

Reader = TypeVar("Reader", bound=ChangeReader)


def closed_error() -> Refused:
    """Returns the error of a closed session."""
    return Refused("the session is closed", "SESSION_CLOSED", "Begin another session.")


class SessionState:
    """Session in the program of this process."""

    def __init__(
        self,
        host: ProgramHost,
        settings: dict[str, Any],
        functions: dict[str, tuple[str, Handler]],
        kept: object,
    ) -> None:
        self.host = host
        self.loop = asyncio.get_running_loop()
        self.id = ""
        self.text = ""
        self.tools: list[ToolPayload] = []
        self.warnings: list[str] = []
        self.is_closed = False
        # Fields of the request `start` that a saved session does not have.
        self._settings = settings
        self._functions = functions
        # Functions that the program may call.
        self._kept = kept
        self._owned: OwnedTools | None = None
        self._saved: dict[str, Any] = {}
        self._child: CallChild | None = None
        self._attached_at = 0.0
        self._restoring: asyncio.Task[CallChild] | None = None
        self._change_readers: weakref.WeakSet[ChangeReader] = weakref.WeakSet()
        self._plugin_readers: weakref.WeakSet[ChangeReader] = weakref.WeakSet()
        self._usage_readers: weakref.WeakSet[ChangeReader] = weakref.WeakSet()
        self._watches_usage = False
        host.retain(self.loop)

    @property
    def has_functions(self) -> bool:
        """Whether the session has own tools."""
        return bool(self._functions)

    @property
    def child_now(self) -> CallChild:
        """Program with the session."""
        assert self._child is not None
        return self._child

    def check(self) -> None:
        """Raises an error in a child of the process, and for a closed session."""
        self.host.check_process()
        if self.is_closed:
            raise closed_error()

    def check_loop(self) -> None:
        """Raises an error in another event loop."""
        self.host.check_process()
        if asyncio.get_running_loop() is not self.loop:
            raise RuntimeError(
                "the session belongs to another event loop: begin a session in this loop, or use "
                "asyncio.run_coroutine_threadsafe or caproot.sync"
            )

    async def start(self, selection: dict[str, Any]) -> None:
        """Starts the session in the program."""
        try:
            child = await self.host.child()
            started: StartedSession = (await child.request("start", {**selection, **self._settings})).result
            await self._attach(child, started["session"], started["warnings"])
        except BaseException:
            await self._leave()
            raise

    async def request(
        self,
        method: str,
        fields: dict[str, Any],
        context: Context | None = None,
        last: tuple[str, JsonText] | None = None,
    ) -> ProgramAnswer:
        """Sends a request about the session."""
        self.check_loop()
        child = await self.attached()
        return await child.request(method, {**fields, "session": self.id}, context, last)

    def request_now(self, method: str, fields: dict[str, Any]) -> ProgramAnswer:
        """Sends a request that the program answers at once, and waits in this thread."""
        self.check()
        child = self._child
        if child is None or not child.is_alive:
            raise ProgramError(
                "the program caproot has ended: await a method of the session, such as `list`, which starts the "
                "program again"
            )
        return child.request_now(method, {**fields, "session": self.id})

    async def attached(self) -> CallChild:
        """Returns the program with the session. Restores the session in a new program."""
        self.check()
        child = self._child
        if child is not None and child.is_alive:
            return child
        if self._restoring is None:
            self._restoring = self.loop.create_task(self._restore())
            self._restoring.add_done_callback(self._end_restore)
        # The other callers wait for the same program.
        return await asyncio.shield(self._restoring)

    def fork(self, rules: dict[str, Any]) -> SessionState:
        """Returns the state of a new session with roots and skills of this one."""
        made: SessionId = self.request_now("fork", rules).result
        fork = SessionState(self.host, self._settings, self._functions, self._kept)
        # A fork has the tools of the session that started with them.
        fork._owned = self._owned
        fork._begin_on(self.child_now, made["session"])
        try:
            watched: WatchedText = fork.request_now("watch", {}).result
            fork.text, fork.tools = watched["text"], watched["tools"]
            fork._saved = fork.request_now("save", {}).result
        except BaseException:
            fork.drop()
            raise
        return fork

    def watch_changes(self, reader: Reader) -> Reader:
        """Gives the changes of the sources to a reader, from now on."""
        self._change_readers.add(reader)
        return reader

    def watch_plugins(self, reader: Reader) -> Reader:
        """Gives the changes of the plugins to a reader, from now on."""
        self._plugin_readers.add(reader)
        return reader

    def watch_usage(self, reader: Reader) -> Reader:
        """Gives the uses of skills to a reader, from now on."""
        self._usage_readers.add(reader)
        child = self._child
        if not self._watches_usage and child is not None:
            self._watches_usage = True
            child.send("watch_usage", {"session": self.id})
        return reader

    def take_event(self, event: dict[str, Any]) -> None:
        """Takes an event of the program, in any thread."""
        if event["event"] == "changed":
            self.text = event.get("text") or self.text
            self.tools = event.get("tools") or self.tools
        run_in_loop(self.loop, self._publish, event)

    def take_exit(self, child: CallChild, reason: Exception) -> None:
        """Takes the end of the program, in any thread."""
        if child is self._child:
            run_in_loop(self.loop, self._restore_for_readers, reason)

    async def close(self) -> None:
        """Closes the session, and ends the program with its last session."""
        if self.is_closed:
            return
        child = self._child
        self.is_closed = True
        try:
            if child is not None and child.is_alive:
                await child.request("close", {"session": self.id})
        except (ProgramError, ValueError):
            # A program that has ended has no session.
            pass
        finally:
            for reader in self._readers():
                reader.end()
            await self._leave()

    def drop(self) -> None:
        """Closes a session whose object is gone, without waiting. Runs in any thread."""
        if self.is_closed or self.host.pid != os.getpid():
            return
        try:
            self.loop.call_soon_threadsafe(self._drop_now)
        except RuntimeError:
            # The loop has ended.
            self._drop_now()

    def _drop_now(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if self._child is not None and self._child.is_alive:
            self._child.send("close", {"session": self.id})
        self.host.states.pop(self.id, None)
        last = self.host.drop(self.loop)
        if last is not None:
            last.close_input()
            last.detach(self.loop)

    async def _leave(self) -> None:
        self.host.states.pop(self.id, None)
        last = self.host.drop(self.loop)
        if last is not None:
            await last.end()

    async def _attach(self, child: CallChild, id: str, warnings: list[str]) -> None:
        self._owned = OwnedTools(self.loop, self._functions)
        self.host.owners[id] = self._owned
        self._begin_on(child, id)
        self.warnings = warnings
        fields = {"session": id}
        watch, saved = await asyncio.gather(child.request("watch", fields), child.request("save", fields))
        watched: WatchedText = watch.result
        self.text, self.tools = watched["text"], watched["tools"]
        self._saved = saved.result
        if self._watches_usage:
            await child.request("watch_usage", fields)

    def _begin_on(self, child: CallChild, id: str) -> None:
        self.id = id
        self.host.states[id] = self
        self._child = child
        self._attached_at = time.monotonic()

    async def _restore(self) -> CallChild:
        child = await self.host.child()
        started: StartedSession = (await child.request("start", {"saved": self._saved, **self._settings})).result
        await self._attach(child, started["session"], started["warnings"])
        for changed in started["changes"]:
            self._publish_source("executor", changed["environmentId"])
        return child

    def _end_restore(self, task: asyncio.Task[CallChild]) -> None:
        self._restoring = None
        if not task.cancelled():
            # The callers have the error.
            task.exception()

    def _restore_for_readers(self, reason: Exception) -> None:
        """Restores the session for its readers. A program that ends at once is not started again."""
        if not self._readers() or self.is_closed:
            return
        if time.monotonic() - self._attached_at < 1:
            self._fail_readers(reason)
        else:
            self.loop.create_task(self._restore_or_fail())

    async def _restore_or_fail(self) -> None:
        try:
            await self.attached()
        except Exception as error:
            self._fail_readers(error)

    def _fail_readers(self, reason: Exception) -> None:
        for reader in self._readers():
            reader.end(copy_error(reason))

    def _readers(self) -> list[ChangeReader]:
        return [*self._change_readers, *self._plugin_readers, *self._usage_readers]

    def _publish(self, event: Any) -> None:
        kind = event["event"]
        if kind == "plugins":
            plugins: PluginsEvent = event
            for reader in list(self._plugin_readers):
                reader.push({name: plugins[name] for name in ("added", "changed", "removed")})
        elif kind == "usage":
            used = {name: value for name, value in event.items() if name != "event"}
            for reader in list(self._usage_readers):
                reader.push_use(used)
        elif kind == "changed":
            changed: ChangedEvent = event
            if "source" in changed:
                self._publish_source(changed["source"]["kind"], changed["source"]["id"])
            elif "executor" in changed:
                self._publish_source("executor", changed["executor"]["environmentId"])

    def _publish_source(self, kind: str, id: str) -> None:
        for reader in list(self._change_readers):
            reader.push({"kind": kind, "id": id}, (kind, id))
