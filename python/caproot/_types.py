"""Plain data of sessions. The keys are those of `caproot call`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

if TYPE_CHECKING:
    from typing_extensions import Required

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


class NoticeChanges(TypedDict):
    """Skills that a notice names."""

    added: list[str]
    """Names of skills that came."""
    changed: list[str]
    """Names of skills whose description or SKILL.md changed."""
    removed: list[str]
    """Names of skills that went."""
    unnamed: int
    """Further changes, which the notice only counts."""


class InstructionText(TypedDict, total=False):
    """Instruction text with counts. `reason` and `changes` may be missing."""

    id: Required[str]
    """Id of the text that the model then has, for the next call."""
    kind: Required[Literal["whole", "notice", "unchanged"]]
    """A whole text replaces the text before. A notice follows the text before."""
    reason: str
    """Reason of a whole text in spite of an id."""
    changes: NoticeChanges
    """Names in a notice."""
    text: Required[str]
    """Whole text, notice of at most 1,024 bytes, or empty text."""
    listed: Required[int]
    """Skills in the whole text."""
    shortened: Required[int]
    """Listed skills with a truncated or removed description."""
    omitted: Required[int]
    """Skills without room."""
    hidden: Required[int]
    """Skills that are hidden from models."""
    warnings: Required[list[str]]
    """Warnings for the program, such as unavailable executors; not in the text."""


class Fragment(TypedDict):
    """Text of a mentioned skill."""

    name: str
    package: str
    text: str
    """Text from `<skill>` to `</skill>`, at most 8,000 bytes."""
    truncated: bool


class Candidate(TypedDict):
    """Skill that a name matches."""

    name: str
    kind: str
    root: str
    package: str
    description: str


class AmbiguousName(TypedDict):
    """Name that matches several skills."""

    name: str
    candidates: list[Candidate]


class OmittedMention(TypedDict):
    """Mentioned skill that could not be read."""

    mention: str
    reason: str


class Injected(TypedDict):
    """Skills that a prompt mentions."""

    fragments: list[Fragment]
    """Texts for a user message, at most 32,000 bytes together."""
    ambiguous: list[AmbiguousName]
    replaced: list[str]
    """Names of the program's skills that a skill of the session replaces."""
    omitted: list[OmittedMention]


class UsedSkill(TypedDict):
    """File of a skill that the model read or was given."""

    name: str
    kind: str
    root: str
    package: str
    resource: str
    """Handle of the file."""
    digest: str
    """Digest that the model has: `sha256:` and the hex digest; empty if the source has none."""
    state: Literal["unchanged", "changed", "gone", "unknown"]
    """State of the file now."""


class ReinjectedFragment(Fragment):
    """Text of a file that the model read or was given before."""

    resource: str
    """Handle of the file."""
    changed: bool
    """Whether the file changed since."""


class Reinjected(TypedDict):
    """Files that the model read or was given before."""

    fragments: list[ReinjectedFragment]
    """Texts for a user message, the most recently used file first."""
    note: str
    """Text for the model about the files that changed or are gone; empty if there are none."""
    omitted: list[OmittedMention]
    """Files without a fragment."""


class ExecutorState(TypedDict, total=False):
    """State of an executor. `reason` is there unless the executor is `live`."""

    environmentId: str
    state: Literal["live", "stale", "connecting"]
    reason: str
    epoch: str
    revision: int
    skills: int


class ExecutorChanges(TypedDict):
    """Changes of an executor between save and restore."""

    environmentId: str
    changes: dict[str, Any] | None
    """`kind` is `known`, with `upserted` and `removed` packages, or `unknown`, with a `reason` and the
    `roots` to read again. `None` until the executor answers."""
    changedAgain: bool
    """Whether the listed skills are newer than the changes."""


class SourceState(TypedDict, total=False):
    """State of a source. `reason` is there if its skills are not listed now."""

    kind: Required[Literal["executor", "local", "mcp", "site"]]
    id: Required[str]
    """Such as the environment of an executor."""
    reason: str
    skills: Required[int]
    """Number of its skills that the session has."""


class UsageEvent(TypedDict, total=False):
    """Use of a skill, without any text. `lost` is there if events before this one are lost, because the
    program read them too slowly."""

    time: Required[str]
    """Time in UTC, such as `2026-11-25T10:30:00.000Z`."""
    kind: Required[Literal["listed", "read", "injected", "searched"]]
    session: Required[str]
    name: Required[str]
    package: Required[str]
    """Handle of the skill."""
    authority: Required[dict[str, str]]
    """`kind` and `id`."""
    digest: Required[str]
    """Digest of the SKILL.md; empty if the source has none."""
    outcome: Required[str]
    """`OK`, the code of the error of a read or an injection, or `DROPPED`."""
    bytes: int
    """Bytes that a read or an injection returned."""
    seconds: float
    """Duration of a read or an injection."""
    lost: int


class Plugin(TypedDict):
    """Plugin of a source."""

    sourceKind: str
    sourceId: str
    plugin: dict[str, Any]
    """JSON of the message `Plugin` of the API."""


class PluginChanges(TypedDict):
    """Changes of the plugins."""

    added: list[Plugin]
    changed: list[dict[str, Any]]
    """Plugins with `components`, the changed components."""
    removed: list[Plugin]


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


class DispatchRecord(TypedDict, total=False):
    """Outcome of one call. `outcome` is `accepted`, `notFound`, `alreadyAnswered`, `failed`, `ignored` for a
    call of another thread, or `alreadyKnown` for a call that is in flight or done."""

    outcome: Required[str]
    requestId: str
    tool: str
    success: bool
    reason: str | None
    attempts: int


class Drained(TypedDict):
    """Counts of answered calls."""

    accepted: int
    notFound: int
    alreadyAnswered: int
    failed: int
    """Answers that the platform did not take. The next drain submits them again."""
    failures: list[DispatchRecord]
    unread: int
    """Calls of the last poll that could not be read."""
    complete: bool
    """Whether the last poll found no new call, and every call could be read."""


class FinishedTurn(TypedDict):
    """End of a turn."""

    status: str
    drained: Drained


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
