"""Errors of the package. A call of a tool raises none of them: its result has the error."""

from __future__ import annotations


class Error(Exception):
    """An operation failed. All other errors of the package are below this class, except `ToolError`."""


class ConfigError(Error):
    """A selection, fleet, tool, source or saved session has mistakes."""

    mistakes: tuple[str, ...]
    """All mistakes, one sentence each."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__(mistakes)
        self.mistakes = tuple(mistakes)

    def __str__(self) -> str:
        return "; ".join(self.mistakes)


class Refused(Error):
    """The session, an executor or a source refused an operation."""

    code: str
    """Code, such as `EXECUTOR_UNAVAILABLE`, `RESOURCE_NOT_FOUND` or `SESSION_CLOSED`."""
    next: str
    """What to do next, as a sentence."""

    def __init__(self, message: str, code: str, next: str) -> None:
        super().__init__(message, code, next)
        self.code = code
        self.next = next

    def __str__(self) -> str:
        return f"{self.code}: {self.args[0]}. {self.next}"


class ProgramError(Error):
    """The program `caproot` has another version, died or does not answer. The next call of a session starts the
    program again."""


class SealedError(Error):
    """A session began with the tools, so they do not change any more."""


class ForkedError(Error):
    """The object belongs to the parent of this process. A child begins a session of its own."""


class StoreError(Error):
    """A store failed. The cause is the exception of the store, if it raised one."""


class DispatchError(Error):
    """Pending calls cannot be answered, or a turn did not end."""


class ToolError(Exception):
    """An own tool raises this error with words that the model may read. Every other exception of a
    tool is a defect: the model only learns that the tool failed."""
