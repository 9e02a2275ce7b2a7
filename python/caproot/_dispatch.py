"""Dispatchers: pending calls of a platform, answered by a session."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ._check import check_strings, check_type
from ._child import CallChild, read_images
from ._errors import ConfigError, DispatchError, Error, ProgramError, ToolError
from ._host import HandlerEntry
from ._results import ToolResult

if TYPE_CHECKING:
    from ._line_types import (
        DispatchAnswer,
        DispatcherNumber,
        DrainCounts,
        ListPendingEvent,
        SendTurnEvent,
        SubmitResultEvent,
        TurnAnswer,
    )
    from ._session import Session
    from ._types import Manager, PendingCall, Thread

_UNNEEDED = {None: None, "not_found": "notFound", "already_answered": "alreadyAnswered"}
"""Results of `submit_result` by their names in a line."""


class Dispatcher:
    """Answers the pending calls of a platform's thread. A tool runs once for a request id, although the
    platform repeats the call or loses the answer. `Session.dispatcher` makes a dispatcher. If the program
    `caproot` dies, the dispatcher ends with it, as nothing knows any more which tools ran."""

    def __init__(self, session: Session, child: CallChild, number: int, entry: HandlerEntry, has_thread: bool) -> None:
        self._session = session
        self._child = child
        self._number = number
        # The function by which the dispatcher calls the platform.
        self._entry = entry
        self._has_thread = has_thread
        weakref.finalize(self, _close, child, number).atexit = False

    async def drain(self) -> DrainCounts:
        """Answers all pending calls. Raises `DispatchError`."""
        return await self._request("drain", {})  # type: ignore[no-any-return]

    async def dispatch(self, call: PendingCall) -> DispatchAnswer:
        """Answers a call that the platform pushed. A dispatcher takes pushed calls or drains, not both.
        Raises `DispatchError`."""
        check_type("call", call, Mapping)
        try:
            return await self._request("dispatch", {"call": _call_line(call)})  # type: ignore[no-any-return]
        except ValueError as error:
            raise ValueError(f"invalid call: {error}") from None

    async def run_turn(self, turn: Any, until: Iterable[str]) -> TurnAnswer:
        """Sends a turn, once, and answers calls until the thread has one of the statuses.

        Args:
            turn: Turn for the thread, any JSON. `None` waits for a turn that was sent before.
            until: Names of the statuses that end a turn.

        Raises:
            DispatchError: The turn was not sent, or did not end in time. Calls in flight go on.
        """
        statuses = check_strings("until", until)
        if not self._has_thread:
            raise TypeError("the dispatcher has no thread: pass thread= to Session.dispatcher")
        return await self._request("run_turn", {"turn": turn, "until": statuses})  # type: ignore[no-any-return]

    async def _request(self, method: str, fields: dict[str, Any]) -> Any:
        state = self._session._state
        state.check_loop()
        if state.is_closed or not self._child.is_alive:
            raise DispatchError("the dispatcher has ended with its session or the program caproot: make another one")
        try:
            return (await self._child.request(method, {"dispatcher": self._number, **fields})).result
        except Error as error:
            if type(error) is not Error and not isinstance(error, ProgramError):
                raise
            # The program has no session any more that says which tools ran.
            raise DispatchError(str(error)) from error


def _close(child: CallChild, number: int) -> None:
    if child.is_own:
        child.send("close_dispatcher", {"dispatcher": number})


def make_dispatcher(
    session: Session, thread_id: str, manager: Manager, thread: Thread | None, limits: dict[str, Any]
) -> Dispatcher:
    """Makes the dispatcher of a session."""
    entry = _platform_entry(manager, thread)
    state = session._state
    state.check_loop()
    made: DispatcherNumber = state.request_now("dispatcher", {"thread": thread_id, **limits}).result
    number = made["dispatcher"]
    child = state.child_now
    state.host.platforms[number] = entry
    return Dispatcher(session, child, number, entry, thread is not None)


def _platform_entry(manager: Manager, thread: Thread | None) -> HandlerEntry:
    """Returns the entry by which a dispatcher calls a platform."""
    methods = {"list_pending": manager, "submit_result": manager}
    if thread is not None:
        methods |= {"send_turn": thread, "status": thread}  # type: ignore[dict-item]
    for method, owner in methods.items():
        if not callable(getattr(owner, method, None)):
            name = "manager" if owner is manager else "thread"
            raise TypeError(f"{name} must have the method {method}, and {type(owner).__name__} has not")

    async def answer(event: dict[str, Any]) -> Any:
        try:
            return await _call_platform(manager, thread, event)
        except Exception as error:
            # The dispatcher repeats the sentence.
            raise ToolError(str(error) or repr(error)) from error

    return HandlerEntry("the platform", answer)


async def _call_platform(manager: Manager, thread: Thread | None, event: Any) -> Any:
    kind = event["event"]
    if kind == "listPending":
        listed: ListPendingEvent = event
        page = await manager.list_pending(listed["token"], listed["limit"])
        calls = [_call_line(call) for call in page["calls"]]
        return {"calls": calls, "nextToken": page.get("next_token")}
    if kind == "submitResult":
        answer: SubmitResultEvent = event
        images = read_images(answer.get("images"))
        result = ToolResult(answer["success"], answer["externalContext"], answer["result"], images)
        outcome = await manager.submit_result(answer["requestId"], result)
        if outcome not in _UNNEEDED:
            raise ConfigError(
                [f'submit_result returned {outcome!r}: expected None, "not_found" or "already_answered"']
            )
        return _UNNEEDED[outcome]
    assert thread is not None
    if kind == "sendTurn":
        turn: SendTurnEvent = event
        await thread.send_turn(turn["turn"])
        return None
    status = await thread.status()
    check_type("the result of status", status, str)
    return status


def _call_line(call: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a pending call with the names of a line. Unknown names stay, for the message of the program."""
    names = {"request_id": "requestId", "session_id": "sessionId"}
    return {names.get(name, name): value for name, value in call.items()}
