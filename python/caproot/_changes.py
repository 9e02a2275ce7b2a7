"""Iterators over the changes of a session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ._errors import Error

if TYPE_CHECKING:
    from collections.abc import Hashable

MAX_WAITING = 1024
"""Maximum number of changes that wait for their reader."""


class ChangeReader:
    """Changes from now on, until the session is closed."""

    def __init__(self, session: object) -> None:
        # Keeps the session.
        self._session = session
        # Changes by their keys: a newer change of one source replaces the older one.
        self._waiting: dict[Hashable, Any] = {}
        self._wakers: list[asyncio.Future[None]] = []
        self._failure: Exception | None = None
        self._has_ended = False
        # Events that a slow reader lost.
        self._lost = 0

    def push(self, change: Any, key: Hashable = None) -> None:
        """Adds a change. Without a key, each change is kept."""
        if self._has_ended:
            return
        if len(self._waiting) >= MAX_WAITING:
            self.end(Error(f"{MAX_WAITING} changes wait for their reader"))
            return
        self._waiting[object() if key is None else key] = change
        self._wake()

    def push_use(self, event: dict[str, Any]) -> None:
        """Adds a use, with the number of the events that are lost before it."""
        self._lost += event.get("lost", 0)
        if len(self._waiting) >= MAX_WAITING:
            self._lost += 1
            return
        self.push({**event, "lost": self._lost} if self._lost else event)
        self._lost = 0

    def end(self, failure: Exception | None = None) -> None:
        """Ends the iteration, after the changes that wait."""
        if not self._has_ended:
            self._has_ended = True
            self._failure = failure
            self._wake()

    def __aiter__(self) -> ChangeReader:
        return self

    async def __anext__(self) -> Any:
        while not self._waiting:
            if self._has_ended:
                failure, self._failure = self._failure, None
                raise failure or StopAsyncIteration
            waker = asyncio.get_running_loop().create_future()
            self._wakers.append(waker)
            await waker
        first = next(iter(self._waiting))
        return self._waiting.pop(first)

    def _wake(self) -> None:
        wakers, self._wakers = self._wakers, []
        for waker in wakers:
            if not waker.done():
                waker.set_result(None)
