"""Sessions: skills of one conversation."""

from __future__ import annotations

import asyncio
import builtins
import json
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Generator, Iterable, Mapping
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar, Union

from ._changes import ChangeReader
from ._check import arguments_json, check_budget, check_strings, check_type, span, to_json
from ._errors import ConfigError, StoreError
from ._fleet import Executor, Fleet, Path, Token, to_fleet
from ._host import ProgramHost
from ._results import Skill, ToolResult
from ._servers import AuthorizationFunction, PluginServers
from ._sources import describe_sources
from ._state import SessionState
from ._tools import Tools

if TYPE_CHECKING:
    from types import TracebackType

    from ._codex import Codex
    from ._dispatch import Dispatcher
    from ._line_types import (
        ExecutorState,
        FileText,
        InjectedSkills,
        InstructionUpdate,
        McpServerStatus,
        ReinjectedSkills,
        SavedChanges,
        SessionPlugin,
        SourceState,
        ToolPayload,
        UsageEvent,
        UsedSkill,
    )
    from ._sources import LocalSkills, McpServer, Site
    from ._types import Change, Choice, Manager, PluginChanges, Store, Thread, ToolDefinition

T = TypeVar("T")

STORE_TIMEOUT = 30.0
"""Seconds within which a store must answer."""
_CLOSED_RESULT = '{"error":{"code":"SESSION_CLOSED","message":"the session is closed","next":"Go on without it."}}'
"""Result of a tool of a closed session."""

_CREDENTIALS = ("ca", "cert", "key", "server_name", "spiffe_id", "token", "token_file")
_FIELDS: dict[str, tuple[type, ...]] = {
    "plugins": (bool,),
    "scripts": (bool,),
    "ready_only": (bool,),
    "result_bytes": (int,),
}
"""Arguments of `connect` that are fields of the request `start` as they are, with their types."""
_TYPES: dict[str, tuple[type, ...]] = {
    **_FIELDS,
    "tools": (Tools, type(None)),
    "id": (str, type(None)),
    "product": (str,),
    "choice": (Mapping, type(None)),
    "lock": (str, os.PathLike, type(None)),
    "signers": (str, os.PathLike, type(None)),
    "plugin_servers": (PluginServers, type(None)),
    "start_timeout": (int, float),
    "grace_period": (int, float),
}
"""Types of arguments of `connect`."""

Roots = Union[str, Iterable[Mapping[str, Any]], Mapping[str, Any]]
"""Selected roots as a platform made them: the array, an object with `selectedCapabilityRoots`, or the
JSON of one of them."""


def connect(
    address: str | Executor | None = None,
    *,
    fleet: Fleet | Path | Mapping[str, Executor | str] | None = None,
    roots: Roots | None = None,
    tools: Tools | None = None,
    sources: Iterable[LocalSkills | McpServer | Site] = (),
    choice: Choice | None = None,
    store: Store | None = None,
    id: str | None = None,
    product: str = "",
    plugins: bool = False,
    scripts: bool = False,
    ready_only: bool = False,
    result_bytes: int = 8192,
    lock: Path | None = None,
    signers: Path | None = None,
    plugin_servers: PluginServers | None = None,
    authorize: AuthorizationFunction | None = None,
    start_timeout: float = 5.0,
    grace_period: float = 10.0,
    ca: Path | None = None,
    cert: Path | None = None,
    key: Path | None = None,
    server_name: str | None = None,
    spiffe_id: str | None = None,
    token: Token | None = None,
    token_file: Path | None = None,
) -> SessionStart:
    """Begins a session: `async with caproot.connect() as skills:`, or `skills = await caproot.connect()`.

    Without arguments, the session has the published roots of the daemon that the command line would
    find: at `CAPROOT_ENDPOINT`, or at the first default socket that answers.

    Args:
        address: Address of one daemon: `unix:PATH`, `tcp:HOST:PORT` or `tls:HOST:PORT`.
        fleet: Many executors: a `Fleet`, the path of a fleet file, or a mapping from environment ids to
            executors or addresses.
        roots: Selected roots, passed on unchanged; the published roots by default.
        tools: Own tools. They are sealed by the start.
        sources: Local directories and MCP servers next to the executors.
        choice: Rules that include or exclude skills, or change their place in the text.
        store: Store for `persist` and `restore`.
        id: Id of the session; random by default.
        product: Only skills for this product, or for every product.
        plugins: Whether `plugins()` has the plugins of executors.
        scripts: Whether the text says how to run scripts by `caproot exec`: the model has a shell on the
            executors.
        ready_only: Whether the session leaves out skills that miss something on the executor.
        result_bytes: Limit of the result of a tool in bytes, 8,192 to 65,536. A long SKILL.md then needs fewer
            calls.
        lock: Lock of `caproot lock`: only skills that it approves, with its descriptions and verified files.
        signers: Keys that may sign the lock, as a file with the format of `allowed_signers`.
        plugin_servers: HTTP MCP servers of plugins whose tools the session has; none by default.
        authorize: Function that returns `Authorization` for an HTTP MCP server that answered 401 without a credential.
        start_timeout: Seconds to wait for executors that do not answer. Their skills appear later.
        grace_period: Seconds for which the skills of a lost executor stay listed.
        ca, cert, key, server_name, spiffe_id, token, token_file: As for `Executor`.

    Raises, when the session begins:
        TypeError: An argument has a wrong type.
        ConfigError: With all mistakes of the arguments.
        Refused: No daemon answers.
    """
    # Nothing else is local yet.
    arguments = dict(locals())
    given = {name: arguments[name] for name in _CREDENTIALS if arguments[name] is not None}
    options = SessionOptions(_choose_fleet(address, fleet, given), arguments)
    options.is_default_fleet = address is None and fleet is None and not given
    return SessionStart(options)


def _choose_fleet(address: str | Executor | None, fleet: object, credentials: dict[str, Any]) -> Fleet:
    check_type("address", address, str, Executor, type(None))
    if fleet is not None:
        if address is not None or credentials:
            names = ["address"] * (address is not None) + list(credentials)
            raise ConfigError([f"`fleet` and `{name}` are both set: set one" for name in names])
        return to_fleet(fleet)
    if isinstance(address, Executor):
        if credentials:
            raise ConfigError(
                [f"`{name}` is set next to an Executor: pass it to Executor" for name in credentials]
            )
        return Fleet._single(address)
    if address is None and not credentials:
        return Fleet._single(Executor._from_environment())
    return Fleet._single(Executor(address, **credentials))


class SessionOptions:
    """Checked arguments of a session that has not begun."""

    def __init__(self, fleet: Fleet | None, arguments: Mapping[str, Any]) -> None:
        for name, types in _TYPES.items():
            check_type(name, arguments[name], *types)
        if arguments["result_bytes"] < 0:
            raise ConfigError([f"result_bytes is {arguments['result_bytes']}; expected 8192 to 65536"])
        self.authorize: AuthorizationFunction | None = arguments["authorize"]
        if self.authorize is not None and not callable(self.authorize):
            raise TypeError(f"authorize must be callable, not {type(self.authorize).__name__}")
        roots, self.plugin_servers = arguments["roots"], arguments["plugin_servers"]
        self.fleet = fleet
        self.is_default_fleet = False
        self.tools: Tools | None = arguments["tools"]
        self.sources = _check_sources(arguments["sources"])
        self.store = _check_store(arguments["store"])
        self.saved: str | None = None
        self.stored_id: str | None = None
        self.roots = None if roots is None else _read_roots(roots)
        choice: Choice | None = arguments["choice"]
        self.selection = {"session_id": arguments["id"], "product": arguments["product"], **_choice_rules(choice or {})}
        self.settings: dict[str, Any] = {
            **{name: arguments[name] for name in _FIELDS},
            **{name: span(arguments[name]) for name in ("start_timeout", "grace_period")},
            "plugin_servers": self.plugin_servers and self.plugin_servers._names,
        }
        files = {name: arguments[name] for name in ("lock", "signers")}
        self.lock_files = {name: None if path is None else os.path.abspath(os.fspath(path)) for name, path in files.items()}

    async def begin(self) -> Session:
        """Begins the session in the running loop."""
        # Checked before the store is asked, as in a thread without a loop.
        asyncio.get_running_loop()
        saved = self.saved if self.stored_id is None else await self._load(self.stored_id)
        selection = {**self.selection, "roots": self.roots} if saved is None else {"saved": _read_saved(saved)}

        sources, source_entry = describe_sources(self.sources, self.plugin_servers, self.authorize)
        executors, fleet_entry = (None, None) if self.fleet is None else self.fleet._describe()
        if executors is not None:
            executors["optional"] = self.is_default_fleet
        definitions, functions = ([], {}) if self.tools is None else self.tools._seal()
        settings = {
            **self.settings,
            "tools": definitions,
            "sources": {**sources, **self.lock_files, "executors": executors},
        }
        state = SessionState(ProgramHost.current(), settings, functions, (self.fleet, fleet_entry, source_entry))
        await state.start(selection)
        return Session(state, self.store)

    async def _load(self, id: str) -> str:
        assert self.store is not None
        saved = await _call_store(self.store.get(id))
        if saved is None:
            raise KeyError(f"the store has no session with the id {id!r}")
        check_type("the result of the store", saved, str)
        return saved


class SessionStart:
    """Session that has not begun. Use it with `async with` or `await`, once."""

    def __init__(self, options: SessionOptions) -> None:
        self._options = options
        self._session: Session | None = None

    def __await__(self) -> Generator[Any, None, Session]:
        return self._options.begin().__await__()

    async def __aenter__(self) -> Session:
        self._session = await self._options.begin()
        return self._session

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


class Session:
    """Skills of one conversation: a text and tools for a model.

    A session belongs to the event loop in which it began, and each method may be called any number of
    times at once. Skills are external context: third parties wrote them. The text belongs into a
    developer message or a user message, never into the system prompt.
    """

    def __init__(self, state: SessionState, store: Store | None) -> None:
        self._state = state
        self._store = store
        # An older state never replaces a newer one in the store.
        self._storing = asyncio.Lock()
        # Forks of adapters, which end with the session.
        self._forks: builtins.list[Session] = []
        self._finalizer = weakref.finalize(self, state.drop)
        # The exit of the interpreter ends the program.
        self._finalizer.atexit = False

    @staticmethod
    async def start(
        fleet: Fleet | Path | Mapping[str, Executor | str],
        roots: Roots | None = None,
        **options: Any,
    ) -> Session:
        """Begins a session of a fleet. The options are those of `connect`."""
        return await connect(fleet=fleet, roots=roots, **options)

    @staticmethod
    async def restore(
        saved: str,
        *,
        fleet: Fleet | Path | Mapping[str, Executor | str] | None = None,
        **options: Any,
    ) -> Session:
        """Restores a session with its id, product, choice and selection.

        `saved` is a text of `save`, or, with `store=`, the id of a session that was persisted.
        `changes_since_save` has the changes of each executor, and `warnings` the parts that could not be
        restored. The options are those of `connect`.
        """
        check_type("saved", saved, str)
        start = connect(fleet=fleet, **options)
        if saved.lstrip().startswith("{") or options.get("store") is None:
            start._options.saved = saved
        else:
            start._options.stored_id = saved
        return await start

    @property
    def id(self) -> str:
        """Id of the session."""
        self._state.host.check_process()
        return self._state.id

    @property
    def text(self) -> str:
        """Text of now that describes the skills to a model, in at most 8,000 bytes."""
        self._state.check()
        return self._state.text

    @property
    def tools(self) -> builtins.list[ToolDefinition]:
        """Tools for a model: `name`, `description` and `input_schema`, a JSON Schema."""
        self._state.host.check_process()
        return [_tool_definition(tool) for tool in json.loads(json.dumps(self._state.tools))]

    @property
    def warnings(self) -> builtins.list[str]:
        """Executors and saved parts without which the session began, one sentence each."""
        self._state.host.check_process()
        return [*self._state.warnings]

    @property
    def is_closed(self) -> bool:
        """Whether the session is closed."""
        self._state.host.check_process()
        return self._state.is_closed

    async def call(self, name: str, arguments: Mapping[str, object] | str | None = None) -> ToolResult:
        """Calls a tool for a model. An error of the call is a result, too, with the next step.

        Args:
            name: Name of the tool, as in `tools`.
            arguments: Arguments as the model gave them: a mapping, or a text of JSON.
        """
        check_type("name", name, str)
        last = ("arguments", arguments_json(arguments))
        state = self._state
        state.check_loop()
        if state.is_closed:
            return ToolResult(False, True, _CLOSED_RESULT)
        # Without own tools, no tool needs the context.
        context = copy_context() if state.has_functions else None
        return (await state.request("call", {"tool": name}, context, last)).tool_result()

    async def list(self) -> builtins.list[Skill]:
        """Returns all skills that a model may use. Raises `Refused`."""
        return [Skill._from_line(skill) for skill in await self._ask("list")]

    async def read(self, skill: Skill | str, path: str = "") -> str:
        """Returns a text file of a skill, at most 16 MiB.

        Args:
            skill: Skill, or its name or handle.
            path: Path of the file relative to the skill, as its SKILL.md links it, such as
                `references/patterns.md`. The SKILL.md by default.

        Raises:
            Refused: There is no such file, or the executor does not answer.
        """
        check_type("path", path, str)
        check_type("skill", skill, Skill, str)
        if isinstance(skill, str):
            named: dict[str, Any] = {"skill": skill}
        else:
            authority = {"kind": skill.authority.kind, "id": skill.authority.id}
            named = {"skill": skill.package, "authority": authority}
        found: FileText = await self._ask("read", **named, path=path)
        return found["text"]

    def changes(self) -> AsyncIterator[Change]:
        """Returns the changes from now on: `async for change in skills.changes()`. A change names its
        source, and `text`, `tools` and `list` are new. The iteration ends with the session."""
        return self._state.watch_changes(self._reader())

    def plugins(self) -> builtins.list[SessionPlugin]:
        """Returns the plugins, if the session began with `plugins=True`, as JSON of the API."""
        return self._ask_now("plugins")  # type: ignore[no-any-return]

    def plugin_servers(self) -> builtins.list[McpServerStatus]:
        """Returns the MCP servers of plugins with their origins, tools and errors."""
        return self._ask_now("plugin_servers")  # type: ignore[no-any-return]

    async def retry_servers(self) -> builtins.list[dict[str, Any]]:
        """Tries again to use the MCP servers that cannot be used, and returns `plugin_servers()`."""
        return await self._ask("retry_servers")  # type: ignore[no-any-return]

    def plugin_changes(self) -> AsyncIterator[PluginChanges]:
        """Returns the changes of plugins from now on, with `added`, `changed` and `removed`."""
        return self._state.watch_plugins(self._reader())

    def usage(self) -> AsyncIterator[UsageEvent]:
        """Returns the uses of skills from now on: `async for event in skills.usage()`. A skill is used if it
        is listed, read, injected or searched. The iteration ends with the session."""
        return self._state.watch_usage(self._reader())

    async def inject(
        self,
        text: str,
        *,
        mentions: Iterable[Mapping[str, str]] = (),
        connectors: Iterable[str] = (),
        caller_skills: Iterable[str] = (),
        arguments: str = "",
    ) -> InjectedSkills:
        """Reads the skills that a user mentions, for a user message next to the prompt.

        Args:
            text: Prompt. `$name` and `[$name](handle)` mention a skill.
            mentions: Mentions next to the text, each with `name`, `handle` or both.
            connectors: Names that mean a connector if they stand alone.
            caller_skills: Names of skills that the program has.
            arguments: Text for the placeholders of the skills, such as `$ARGUMENTS`.
        """
        check_type("text", text, str)
        check_type("arguments", arguments, str)
        prompt: dict[str, Any] = {
            "text": text,
            "mentions": [dict(mention) for mention in mentions],
            "connectors": check_strings("connectors", connectors),
            "caller_skills": check_strings("caller_skills", caller_skills),
            "arguments": arguments,
        }
        to_json("mentions", prompt)
        return await self._ask("inject", **prompt)  # type: ignore[no-any-return]

    def instruction_text(self, budget: int = 8000, *, known: str | None = None) -> InstructionUpdate:
        """Returns the text of at most `budget` bytes, with its counts and warnings.

        Args:
            budget: Limit of the whole text in bytes.
            known: Id of the text that the model has. The text then is a notice of the changes, empty if
                nothing changed, or whole if that is shorter or the session does not know the id.
        """
        check_budget(budget)
        if known is not None:
            check_type("known", known, str)
        return self._ask_now("instructions", budget=budget, known=known)  # type: ignore[no-any-return]

    async def used_skills(self) -> builtins.list[UsedSkill]:
        """Returns the last 128 files of skills that the model read or was given, the most recently used
        first."""
        return await self._ask("used_skills")  # type: ignore[no-any-return]

    async def reinject(self, budget: int = 32_000) -> ReinjectedSkills:
        """Returns the files of `used_skills` for a model that has forgotten them, such as after a
        compaction.

        Args:
            budget: Limit of the fragments and the note together in bytes, at most 32,000.
        """
        check_budget(budget)
        return await self._ask("reinject", budget=budget)  # type: ignore[no-any-return]

    def executors(self) -> builtins.list[ExecutorState]:
        """Returns the state of each executor."""
        return self._ask_now("state")  # type: ignore[no-any-return]

    def source_states(self) -> builtins.list[SourceState]:
        """Returns the state of each source: executors, directories, MCP servers and sites."""
        return self._ask_now("source_states")  # type: ignore[no-any-return]

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
        """Returns a session with the same tools, such as for a subagent. A fork has the rules of this
        session, too, and no skill that this session does not have.

        Args:
            include: Rules that include skills, as in `Choice`; every skill of this session by default.
            exclude: Rules that exclude skills. They take precedence.
            pin, name_only, manual, enable: Further rules for the text, as in `Choice`.
            roots: Ids of the roots and sources that the fork has; all by default.
            product: Only skills of this session for this product, or for every product.

        Raises:
            ConfigError: A rule is invalid, or this session has no such root.
        """
        rules = {
            "include": include,
            "exclude": exclude,
            "pin": pin,
            "name_only": name_only,
            "manual": manual,
            "enable": enable,
        }
        checked: dict[str, Any] = {name: check_strings(name, given) for name, given in rules.items()}
        check_type("product", product, str)
        ids = None if roots is None else check_strings("roots", roots)
        self._state.check()
        self._state.check_loop()
        state = self._state.fork({**checked, "product": product, "roots": ids})
        return Session(state, self._store)

    def save(self) -> str:
        """Returns the session as a text of JSON without the text of a skill, at most 4 MiB."""
        return self._state.request_now("save", {}).result_text

    def changes_since_save(self) -> builtins.list[SavedChanges]:
        """Returns the changes of each executor since the save; empty if the session was not restored."""
        return self._ask_now("changes")  # type: ignore[no-any-return]

    async def persist(self) -> None:
        """Saves the session in its store. Raises `StoreError`."""
        self._state.check_loop()
        store = self._checked_store()
        async with self._storing:
            saved = (await self._state.request("save", {})).result_text
            await _call_store(store.put(self._state.id, saved))

    async def close(self, *, delete: bool = False) -> None:
        """Closes the session. Calls in flight end with `SESSION_CLOSED`; forks stay open.

        Args:
            delete: Whether the store deletes the saved state. Raises `StoreError`.
        """
        check_type("delete", delete, bool)
        self._state.check_loop()
        for fork in self._forks:
            await fork.close()
        await self._state.close()
        if delete:
            store = self._checked_store()
            async with self._storing:
                await _call_store(store.delete(self._state.id))

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def dispatcher(
        self,
        thread_id: str,
        manager: Manager,
        *,
        thread: Thread | None = None,
        max_in_flight: int = 16,
        max_unsent: int = 1000,
        answer_timeout: float = 120.0,
        manager_timeout: float = 10.0,
        turn_timeout: float = 600.0,
    ) -> Dispatcher:
        """Returns a dispatcher that answers the pending calls of a platform's thread.

        Args:
            thread_id: Id of the thread, as the platform has it. Calls of other threads are ignored.
            manager: Pending calls of the platform.
            thread: Turns of the thread, for `run_turn`.
            max_in_flight: Calls at once.
            max_unsent: Answers that the platform did not take yet.
            answer_timeout: Seconds of a tool.
            manager_timeout: Seconds of a call of the manager.
            turn_timeout: Seconds of a turn.
        """
        from ._dispatch import make_dispatcher

        check_type("thread_id", thread_id, str)
        limits: dict[str, Any] = {"max_in_flight": max_in_flight, "max_unsent": max_unsent}
        for name, count in limits.items():
            check_type(name, count, int)
            if count < 1:
                raise ValueError(f"{name} must be at least 1, and is {count}")
        times = {"answer_timeout": answer_timeout, "manager_timeout": manager_timeout, "turn_timeout": turn_timeout}
        for name, seconds in times.items():
            check_type(name, seconds, int, float)
            limits[name] = span(seconds)
        return make_dispatcher(self, thread_id, manager, thread, limits)

    def openai_agents(self) -> builtins.list[Any]:
        """Returns the tools as `FunctionTool`s of openai-agents, for `Agent(tools=…)`."""
        from . import _frameworks

        return _frameworks.openai_agents(self)

    def langchain(self) -> builtins.list[Any]:
        """Returns the tools as asynchronous `StructuredTool`s of LangChain, for `create_agent`."""
        from . import _frameworks

        return _frameworks.langchain(self)

    def pydantic_ai(self) -> builtins.list[Any]:
        """Returns the tools as `Tool`s of Pydantic AI, for `Agent(tools=…)`."""
        from . import _frameworks

        return _frameworks.pydantic_ai(self)

    def claude(self) -> Any:
        """Returns the tools as an in-process MCP server of claude-agent-sdk, for
        `ClaudeAgentOptions(mcp_servers={"caproot": …})`. The model sees each name after
        `mcp__caproot__`, and all tools from the start."""
        from . import _frameworks

        return _frameworks.claude(self)

    def codex(self) -> Codex:
        """Returns the tools, the text and the answers for a thread of `codex app-server`, with the skills of this
        session for the product `codex`."""
        from ._codex import PRODUCT, Codex

        fork = self.fork(product=PRODUCT)
        self._forks.append(fork)
        return Codex(fork)

    @property
    def claude_text(self) -> str:
        """Text of now as `text`, with the names of the tools as the model of claude-agent-sdk sees them."""
        from . import _frameworks

        return _frameworks.claude_text(self)

    def __repr__(self) -> str:
        return f"<caproot.Session {self._state.id}>"

    async def _ask(self, method: str, **fields: Any) -> Any:
        return (await self._state.request(method, fields)).result

    def _ask_now(self, method: str, **fields: Any) -> Any:
        return self._state.request_now(method, fields).result

    def _reader(self) -> ChangeReader:
        self._state.check()
        self._state.check_loop()
        return ChangeReader(self)

    def _checked_store(self) -> Store:
        if self._store is None:
            raise StoreError("the session has no store: pass `store=`")
        return self._store


def _tool_definition(tool: ToolPayload) -> ToolDefinition:
    return {"name": tool["name"], "description": tool["description"], "input_schema": tool["inputSchema"]}


def _read_roots(roots: Roots) -> Any:
    if isinstance(roots, str):
        try:
            return json.loads(roots)
        except ValueError as error:
            raise ConfigError([f"roots: {error}"]) from error
    if not isinstance(roots, Mapping):
        check_type("roots", roots, list, tuple, str, Mapping)
    return json.loads(to_json("roots", roots))


def _read_saved(saved: str) -> Any:
    """Returns a saved session. The program refuses a text without one."""
    try:
        return json.loads(saved)
    except ValueError as error:
        raise ConfigError([f"the saved session cannot be read: {error}"]) from error


async def _call_store(call: Awaitable[T]) -> T:
    """Waits for a store within its time limit."""
    try:
        return await asyncio.wait_for(call, STORE_TIMEOUT)
    except asyncio.TimeoutError as error:
        raise StoreError(f"session store: no answer within {STORE_TIMEOUT:g} s") from error
    except Exception as error:
        raise StoreError(f"session store: {str(error) or repr(error)}") from error


def _choice_rules(choice: Choice) -> dict[str, list[str]]:
    names = ("include", "exclude", "pin", "name_only", "manual", "enable")
    unknown = [name for name in choice if name not in names]
    if unknown:
        raise ConfigError([_unknown_key("choice", name, names) for name in unknown])
    return {name: check_strings(f"choice[{name!r}]", choice.get(name, ())) for name in names}


def _unknown_key(where: str, name: str, names: tuple[str, ...]) -> str:
    """Returns the sentence about a key that does not exist."""
    import difflib

    near = difflib.get_close_matches(str(name), names, 1)
    following = f"did you mean `{near[0]}`?" if near else f"expected one of {', '.join(names)}"
    return f"{where}: unknown option `{name}`; {following}"


def _check_sources(sources: object) -> list[Any]:
    from ._sources import LocalSkills, McpServer, Site

    if isinstance(sources, (str, bytes)) or not hasattr(sources, "__iter__"):
        raise TypeError(f"sources must be an iterable, not {type(sources).__name__}")
    checked = list(sources)
    for source in checked:
        check_type("an element of sources", source, LocalSkills, McpServer, Site)
    return checked


def _check_store(store: Store | None) -> Store | None:
    if store is not None:
        for method in ("put", "get", "delete"):
            if not callable(getattr(store, method, None)):
                raise TypeError(f"store must have the method {method}, and {type(store).__name__} has not")
    return store
