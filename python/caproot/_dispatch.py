"""Dispatchers: pending calls of a platform, answered by a session."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import _caproot
from ._check import check_strings, check_type, to_json

if TYPE_CHECKING:
    from ._bridge import HandlerEntry
    from ._session import Session
    from ._types import DispatchRecord, Drained, FinishedTurn, Manager, PendingCall, Thread


class Dispatcher:
    """Answers the pending calls of a platform's thread. A tool runs once for a request id, although the
    platform repeats the call or loses the answer. `Session.dispatcher` makes a dispatcher."""

    def __init__(
        self, session: Session, core: _caproot.Dispatcher, entry: HandlerEntry, has_thread: bool
    ) -> None:
        self._session = session
        self._core = core
        # The function by which the dispatcher calls the platform.
        self._entry = entry
        self._has_thread = has_thread

    async def drain(self) -> Drained:
        """Answers all pending calls. Raises `DispatchError`."""
        return json.loads(await self._session._bridge.run(self._core.drain))  # type: ignore[no-any-return]

    async def dispatch(self, call: PendingCall) -> DispatchRecord:
        """Answers a call that the platform pushed. A dispatcher takes pushed calls or drains, not both.
        Raises `DispatchError`."""
        text = to_json("call", call)
        return json.loads(await self._session._bridge.run(self._core.dispatch, text))  # type: ignore[no-any-return]

    async def run_turn(self, turn: Any, until: Iterable[str]) -> FinishedTurn:
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
        text = None if turn is None else to_json("turn", turn)
        return json.loads(await self._session._bridge.run(self._core.run_turn, text, statuses))  # type: ignore[no-any-return]


def platform_entry(manager: Manager, thread: Thread | None) -> HandlerEntry:
    """Returns the entry by which a dispatcher calls a platform."""
    from ._bridge import HandlerEntry
    from ._errors import ToolError

    methods = {"list_pending": manager, "submit_result": manager}
    if thread is not None:
        methods |= {"send_turn": thread, "status": thread}  # type: ignore[dict-item]
    for method, owner in methods.items():
        if not callable(getattr(owner, method, None)):
            name = "manager" if owner is manager else "thread"
            raise TypeError(f"{name} must have the method {method}, and {type(owner).__name__} has not")

    async def answer(request: dict[str, Any]) -> Any:
        try:
            match request["method"]:
                case "list_pending":
                    return await manager.list_pending(request["token"], request["limit"])
                case "submit_result":
                    images = [
                        _caproot.ResultImage(image["mime_type"], b64decode(image["data"]))
                        for image in request["images"]
                    ]
                    result = _caproot.ToolResult(
                        request["ok"], request["external"], request["text"], images
                    )
                    return await manager.submit_result(request["request_id"], result)
                case "send_turn":
                    assert thread is not None
                    return await thread.send_turn(request["turn"])
                case _:
                    assert thread is not None
                    status = await thread.status()
                    check_type("the result of status", status, str)
                    return status
        except Exception as error:
            # The dispatcher repeats the sentence.
            raise ToolError(str(error) or repr(error)) from error

    return HandlerEntry("the platform", answer)
