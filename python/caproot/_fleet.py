"""Executors and fleets."""

from __future__ import annotations

import inspect
import os
import weakref
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Union

from ._check import check_strings, check_type, span
from ._host import Handler, HandlerEntry, new_key

if TYPE_CHECKING:
    from ._line_types import FindExecutorEvent

Token = Union[str, Callable[[], Union[str, Awaitable[str]]]]
"""A token, or a function that returns the token. The function may be asynchronous."""

Path = Union[str, "os.PathLike[str]"]
"""Path of a file or directory."""


class Executor:
    """Address and credentials of an executor's daemon.

    `address` is `unix:PATH`, `tcp:HOST:PORT` or `tls:HOST:PORT`. Without an address, it is the first
    default socket that answers. The files are PEM files, and are read again for each connection.
    """

    __slots__ = ("_spec", "_token")

    def __init__(
        self,
        address: str | None = None,
        *,
        ca: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
        server_name: str | None = None,
        spiffe_id: str | None = None,
        token: Token | None = None,
        token_file: Path | None = None,
        timeout: float | None = None,
    ) -> None:
        """
        Args:
            address: Address of the daemon.
            ca: Authorities that the daemon's certificate must come from; those of the machine by
                default.
            cert: Certificate of the client.
            key: Key of the certificate.
            server_name: Name that the daemon's certificate must have; the host by default.
            spiffe_id: SPIFFE ID that the daemon's certificate must have.
            token: Token of each call. A function is called before each connection.
            token_file: File with the token, which is read again after the daemon rejected the token.
            timeout: Seconds for each call with its retries; 30 by default.
        """
        for name, text in (("address", address), ("server_name", server_name), ("spiffe_id", spiffe_id)):
            check_type(name, text, str, type(None))
        check_type("timeout", timeout, int, float, type(None))
        if token is not None and not callable(token):
            check_type("token", token, str, type(None))
        files = {"ca": ca, "cert": cert, "key": key, "token_file": token_file}
        spec: dict[str, Any] = {name: _path(name, file) for name, file in files.items()}
        spec.update(
            address=address, server_name=server_name, spiffe_id=spiffe_id, timeout=timeout
        )
        if isinstance(token, str):
            spec["token"] = token
        self._spec = {name: value for name, value in spec.items() if value is not None}
        self._token = token if callable(token) else None

    @staticmethod
    def _from_environment() -> Executor:
        """Returns the executor of the environment variables that the command line reads, too."""
        names = {"address": "CAPROOT_ENDPOINT", "ca": "CAPROOT_CA", "cert": "CAPROOT_CERT",
                 "key": "CAPROOT_KEY", "token_file": "CAPROOT_TOKEN_FILE"}  # fmt: skip
        found = {name: os.environ.get(variable) for name, variable in names.items()}
        return Executor(**{name: value for name, value in found.items() if value})  # type: ignore[arg-type]

    def _fields(self) -> dict[str, Any]:
        """Returns the executor as the program reads it."""
        fields = {name: value for name, value in self._spec.items() if name not in ("address", "timeout")}
        if "address" in self._spec:
            fields["endpoint"] = self._spec["address"]
        if "timeout" in self._spec:
            fields["timeout"] = span(self._spec["timeout"])
        return fields

    async def _resolve(self) -> dict[str, Any]:
        """Returns the executor as the program reads it, with the token of now."""
        fields = self._fields()
        if self._token is not None:
            token = self._token()
            if inspect.isawaitable(token):
                token = await token
            check_type("the result of token", token, str)
            fields["token"] = token
        return fields

    def __repr__(self) -> str:
        return f"Executor({self._spec.get('address')!r})"


FindExecutor = Callable[[str], Union["Executor", str, None, Awaitable[Union["Executor", str, None]]]]
"""Function from an environment id to its executor, or to `None`. It may be asynchronous."""


class Fleet:
    """Executors by environment id. Sessions that share a fleet share its connections.

    A fleet with functions belongs to the event loop in which it is used. A fleet of a parent process
    opens its own connections in a child.
    """

    # Called for the executor of an environment.
    _find: FindExecutor | None

    def __init__(self, executors: Mapping[str, Executor | str]) -> None:
        """
        Args:
            executors: Executor or address of each environment.
        """
        check_type("executors", executors, Mapping)
        table: dict[str, Executor] = {}
        for environment, executor in executors.items():
            check_type("an environment of executors", environment, str)
            table[environment] = _executor(f"executors[{environment!r}]", executor)
        self._prepare({"table": {name: executor._fields() for name, executor in table.items()}}, list(table))
        self._table.update(table)
        if any(executor._token for executor in table.values()):
            self._find = table.__getitem__

    @classmethod
    def from_file(cls, path: Path) -> Fleet:
        """Returns the fleet of a fleet file. The file is read when a session begins, and again when
        it changes."""
        fleet = cls.__new__(cls)
        fleet._prepare({"file": _path("path", path)}, [])
        return fleet

    @classmethod
    def find(cls, function: FindExecutor, environments: Iterable[str] = ()) -> Fleet:
        """Returns a fleet whose executors a function finds, before each connection, within 10 s.

        Args:
            function: Returns the executor of an environment, or `None` if there is none.
            environments: Environments of a session without a selection.
        """
        if not callable(function):
            raise TypeError(f"function must be callable, not {type(function).__name__}")
        fleet = cls.__new__(cls)
        fleet._prepare({}, check_strings("environments", environments))
        fleet._find = function
        return fleet

    @classmethod
    def _single(cls, executor: Executor) -> Fleet:
        """Returns the fleet in which one executor has all environments."""
        fleet = cls.__new__(cls)
        fleet._prepare({"one": executor._fields()}, [])
        if executor._token:
            fleet._find = lambda _: executor
            fleet._is_single = True
        return fleet

    def _prepare(self, origin: dict[str, Any], environments: list[str]) -> None:
        self._origin = origin
        self._environments = environments
        self._table: dict[str, Executor] = {}
        self._find = None
        self._is_single = False
        # Sessions with the same key share the connections. A function has a key for each event loop.
        self._key = new_key()
        self._entries: weakref.WeakKeyDictionary[AbstractEventLoop, HandlerEntry] = weakref.WeakKeyDictionary()

    def _describe(self) -> tuple[dict[str, Any], HandlerEntry | None]:
        """Returns the executors as the program reads them, and the entry of the function."""
        if self._find is None:
            return {"key": self._key, "from": self._origin}, None
        loop = get_running_loop()
        entry = self._entries.get(loop)
        if entry is None:
            # The function does not refer to the fleet, so that no cycle keeps the entry.
            answer = _make_answer(self._find, self._table)
            entry = self._entries[loop] = HandlerEntry("the function of the fleet", answer)
        origin: dict[str, Any] = {"find_one": None} if self._is_single else {"find": sorted(set(self._environments))}
        return {"key": entry.key, "from": origin}, entry


def _make_answer(find: FindExecutor, table: dict[str, Executor]) -> Handler:
    """Returns the function that the program calls."""

    async def answer(event: FindExecutorEvent) -> dict[str, Any] | None:
        environment = event["environmentId"]
        if table and environment not in table:
            return None
        found = find(environment)
        if inspect.isawaitable(found):
            found = await found
        if found is None:
            return None
        return await _executor("the result of the function", found)._resolve()

    return answer


def _executor(name: str, value: object) -> Executor:
    check_type(name, value, Executor, str)
    return Executor(value) if isinstance(value, str) else value  # type: ignore[return-value]


def _path(name: str, value: Path | None) -> str | None:
    check_type(name, value, str, os.PathLike, type(None))
    if value is None:
        return None
    path = os.fspath(value)
    check_type(name, path, str)
    # The program may have another working directory.
    return os.path.abspath(path)


def to_fleet(fleet: object) -> Fleet:
    """Returns the fleet of an argument: a fleet, the path of a fleet file, or a table."""
    check_type("fleet", fleet, Fleet, str, os.PathLike, Mapping)
    if isinstance(fleet, Fleet):
        return fleet
    if isinstance(fleet, Mapping):
        return Fleet(fleet)
    return Fleet.from_file(fleet)  # type: ignore[arg-type]


