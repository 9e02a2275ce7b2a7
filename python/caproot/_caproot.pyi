"""Extension module. Use the package `caproot`, which has the documented interface."""

from collections.abc import Sequence
from typing import Any, final

__all__ = [
    "Authority",
    "ChangeWatch",
    "Dispatcher",
    "Fleet",
    "Mailbox",
    "PluginChangeWatch",
    "ResultImage",
    "Session",
    "Skill",
    "ToolRegistry",
    "ToolResult",
    "UsageEventWatch",
    "__version__",
    "start_session",
]

__version__: str

@final
class ToolResult:
    """Result of a tool for a model."""

    def __new__(
        cls, ok: bool, external: bool, text: str, images: Sequence[ResultImage] = ...
    ) -> ToolResult: ...
    @property
    def ok(self) -> bool:
        """Whether the call succeeded. If not, `text` has the error and the next step."""

    @property
    def external(self) -> bool:
        """Whether third parties wrote the result, so that a model should follow no instruction in it."""

    @property
    def text(self) -> str:
        """One JSON object of at most `result_bytes` of the session."""

    @property
    def images(self) -> list[ResultImage]:
        """Images and sounds that `text` names by type and size. Only tools of MCP servers have images."""

    def json(self) -> Any:
        """Returns the parsed object."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class ResultImage:
    """Image or sound of a tool's result."""

    def __new__(cls, mime_type: str, data: bytes) -> ResultImage: ...
    @property
    def mime_type(self) -> str:
        """Type as the server names it, such as `image/png`."""

    @property
    def data(self) -> bytes:
        """Content."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class Authority:
    """Authority of a skill."""

    @property
    def kind(self) -> str:
        """`executor`, `local`, `mcp` or `site`."""

    @property
    def id(self) -> str:
        """Id of the selected root, of the directory, of the server or of the site."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...

@final
class Skill:
    """Skill of a list."""

    @property
    def name(self) -> str:
        """Name, which may begin with the name of a plugin: `deploy-kit:deploy`."""

    @property
    def description(self) -> str:
        """Description by the author of the skill."""

    @property
    def package(self) -> str:
        """Handle of the skill."""

    @property
    def main_resource(self) -> str:
        """Handle of its SKILL.md."""

    @property
    def environments(self) -> dict[str, str]:
        """Package in each environment, if several environments have the skill; otherwise empty."""

    @property
    def authority(self) -> Authority:
        """Authority that lists the skill."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...

@final
class Mailbox:
    def __new__(cls) -> Mailbox: ...
    def fileno(self, /) -> int: ...
    def take(self, /) -> list[tuple[Any, ...]]: ...
    def answer(self, /, call: int, kind: int, text: str) -> None: ...
    def abort(self, /, operation: int) -> None: ...
    def close(self, /) -> None: ...

@final
class Fleet:
    @staticmethod
    def open(mailbox: Mailbox, operation: int, spec: str) -> Any: ...
    def environment_ids(self, /) -> list[str]: ...

@final
class ToolRegistry:
    def __new__(cls) -> ToolRegistry: ...
    def register(self, /, spec: str, handler: int) -> None: ...
    def unregister(self, /, name: str) -> None: ...
    def names(self, /) -> list[str]: ...
    def is_sealed(self, /) -> bool: ...
    def is_own(self, /) -> bool: ...

@final
class Session:
    @property
    def id(self) -> str: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def warnings(self) -> list[str]: ...
    def tools(self, /) -> str: ...
    def text(self, /) -> str: ...
    def instruction_text(self, /, budget: int, known: str | None) -> str: ...
    def executors(self, /) -> str: ...
    def metrics(self, /) -> str: ...
    def plugins(self, /) -> str: ...
    def plugin_servers(self, /) -> str: ...
    def save(self, /) -> str: ...
    def changes_since_save(self, /) -> str: ...
    def fork(self, /, roots: list[str] | None, rules: str) -> Session: ...
    def call(self, /, operation: int, context: int, name: str, arguments: str) -> Any: ...
    def list(self, /, operation: int) -> Any: ...
    def read(
        self, /, operation: int, authority: tuple[str, str] | None, skill: str, path: str
    ) -> Any: ...
    def inject(self, /, operation: int, prompt: str) -> Any: ...
    def used_skills(self, /, operation: int) -> Any: ...
    def reinject(self, /, operation: int, budget: int) -> Any: ...
    def persist(self, /, operation: int) -> Any: ...
    def close(self, /, operation: int, delete: bool) -> Any: ...
    def dispatcher(self, /, thread_id: str, handler: int, limits: str) -> Dispatcher: ...
    def watch(self, /) -> ChangeWatch: ...
    def watch_plugins(self, /) -> PluginChangeWatch: ...
    def watch_usage(self, /) -> UsageEventWatch: ...

@final
class Dispatcher:
    def drain(self, /, operation: int) -> Any: ...
    def dispatch(self, /, operation: int, call: str) -> Any: ...
    def run_turn(self, /, operation: int, turn: str | None, until: list[str]) -> Any: ...

@final
class ChangeWatch:
    def next(self, /, operation: int) -> Any: ...

@final
class PluginChangeWatch:
    def next(self, /, operation: int) -> Any: ...

@final
class UsageEventWatch:
    def next(self, /, operation: int) -> Any: ...

def start_session(
    mailbox: Mailbox,
    operation: int,
    fleet: Fleet | None,
    tools: ToolRegistry | None,
    spec: str,
) -> Any: ...
