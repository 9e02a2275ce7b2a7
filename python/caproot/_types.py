"""Plain data that the caller and the package make, and protocols of the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

if TYPE_CHECKING:
    from typing_extensions import Required

    from ._line_types import ChangedPlugin, SessionPlugin
    from ._results import ToolResult


class ToolDefinition(TypedDict):
    """Tool for a model."""

    name: str
    description: str
    input_schema: dict[str, Any]
    """JSON Schema of the arguments."""


class Choice(TypedDict, total=False):
    """Skills of a session, out of all skills of its sources. A rule is `name:NAME`, `handle:HANDLE` or
    `source:KIND/ID`, where KIND is `executor`, `local`, `mcp` or `site`."""

    include: list[str]
    """Rules that include skills; every skill by default."""
    exclude: list[str]
    """Rules that exclude skills. They take precedence."""
    pin: list[str]
    """Rules of skills that the text never cuts while another skill is in the text."""
    name_only: list[str]
    """Rules of skills that the text lists without a description."""
    manual: list[str]
    """Rules of skills that are hidden from models. A person or the program may still name them."""
    enable: list[str]
    """Rules of skills that are offered to models although they are switched off by default."""


class Change(TypedDict):
    """Source whose skills or state changed."""

    kind: Literal["executor", "local", "mcp", "site"]
    id: str
    """Id of the source; the environment of an executor."""


class PluginChanges(TypedDict):
    """Changes of the plugins."""

    added: list[SessionPlugin]
    """New plugins."""
    changed: list[ChangedPlugin]
    """Plugins that differ from before."""
    removed: list[SessionPlugin]
    """Plugins that are gone, or whose source is unavailable."""


class PendingCall(TypedDict):
    """Tool call that waits for its answer."""

    request_id: str
    """Id of at most 512 bytes, which the platform never gives another call."""
    session_id: str
    """Id of the thread, as the platform has it."""
    tool: str
    arguments: Any


class PendingPage(TypedDict, total=False):
    """Page of pending calls. Without `next_token`, the page is the last."""

    calls: Required[list[PendingCall]]
    next_token: str | None


class Manager(Protocol):
    """Pending calls of a platform. A method that raises an error is called again."""

    async def list_pending(self, token: str | None, limit: int) -> PendingPage:
        """Returns a page of about `limit` calls, from the beginning or from a token on."""

    async def submit_result(
        self, request_id: str, result: ToolResult
    ) -> Literal["not_found", "already_answered"] | None:
        """Takes the answer of a call, or says why the platform needs none."""


class Thread(Protocol):
    """Thread of a platform's agent."""

    async def send_turn(self, turn: Any) -> None:
        """Sends a turn, once."""

    async def status(self) -> str:
        """Returns the name of the thread's status."""


class Store(Protocol):
    """Store of saved sessions. A method that raises an error did not store or delete. A call ends after 30 s."""

    async def put(self, id: str, saved: str) -> None:
        """Stores a saved session, in place of the one before."""

    async def get(self, id: str) -> str | None:
        """Returns the saved session, or `None`."""

    async def delete(self, id: str) -> None:
        """Deletes the saved session, if there is one."""
