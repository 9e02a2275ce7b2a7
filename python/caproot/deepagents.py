"""Backend of deepagents with the skills of a session, for `create_deep_agent(skills=["/skills/"])`."""

from __future__ import annotations

import posixpath
from collections import Counter
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from deepagents.backends.protocol import (
    BackendProtocol,
    DeleteResult,
    EditResult,
    FileDownloadResponse,
    FileInfo,
    FileUploadResponse,
    GlobResult,
    GrepResult,
    LsResult,
    ReadResult,
    WriteResult,
)

from ._errors import Refused

if TYPE_CHECKING:
    from ._results import Skill
    from ._session import Session

__all__ = ["Backend"]

_READ_ONLY = "permission_denied"
_ASYNCHRONOUS = "the skills can be read by an agent that runs asynchronously: use ainvoke or astream"


class Backend(BackendProtocol):
    """Read-only files: the skills of a session below one directory, each in a directory with the last
    part of its handle. If two skills have the same last part, the directories of both have their whole
    handles, with `-` between the parts. The skills are also below `/`, as a route of `CompositeBackend`
    takes its own name from the paths.

    The list of deepagents stands in the system prompt, which an agent obeys above all, and third parties
    wrote its names and descriptions: use this backend for skills of authors that you trust.
    """

    def __init__(self, session: Session, directory: str = "/skills") -> None:
        self._session = session
        self._directory = "/" + directory.strip("/")

    async def als(self, path: str) -> LsResult:
        """Lists the directories of the skills, or the SKILL.md of a skill."""
        try:
            directories = await self._directories()
        except Refused as error:
            return LsResult(error=str(error))
        place = posixpath.normpath(path)
        if place in ("/", self._directory):
            base = place.rstrip("/")
            entries = [FileInfo(path=f"{base}/{name}", is_dir=True) for name in sorted(directories)]
            return LsResult(entries=entries)
        found = self._locate(directories, place)
        if found is not None and not found[1]:
            return LsResult(entries=[FileInfo(path=f"{place}/SKILL.md", is_dir=False)])
        return LsResult(error=f"{path} is not a directory of a skill")

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """Reads lines of a file of a skill."""
        try:
            text = await self._read(file_path)
        except Refused as error:
            return ReadResult(error=str(error))
        lines = text.splitlines(keepends=True)
        first = max(offset, 0)
        shown = lines[first : first + limit] if limit > 0 else []
        if not shown:
            empty = {"content": "", "encoding": "utf-8"}
            return ReadResult(file_data=empty, no_lines_requested=limit <= 0)  # type: ignore[arg-type, unused-ignore]
        last = first + len(shown)
        return ReadResult(
            file_data={"content": "".join(shown), "encoding": "utf-8"},
            total_lines=len(lines),
            start_line=first + 1,
            end_line=last,
            next_offset=last if last < len(lines) else None,
        )

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads whole files."""
        responses = []
        for path in paths:
            try:
                text = await self._read(path)
                responses.append(FileDownloadResponse(path=path, content=text.encode()))
            except Refused as error:
                is_missing = error.code in ("PACKAGE_NOT_FOUND", "RESOURCE_NOT_FOUND")
                reason = "file_not_found" if is_missing else str(error)
                responses.append(FileDownloadResponse(path=path, error=reason))
        return responses

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        """Refuses a search by name."""
        return GlobResult(error="glob does not search skills: read the SKILL.md, which names its files")

    async def agrep(
        self,
        pattern: str,
        path: str | None = None,
        glob: str | None = None,
        *,
        max_count: int | None = None,
    ) -> GrepResult:
        """Refuses a search in files."""
        return GrepResult(error="grep does not search skills: read the SKILL.md, which names its files")

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        """Refuses a write: skills are read-only."""
        return WriteResult(error=_READ_ONLY)

    async def aedit(
        self, file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> EditResult:
        """Refuses a write: skills are read-only."""
        return EditResult(error=_READ_ONLY)

    async def adelete(self, file_path: str) -> DeleteResult:
        """Refuses a write: skills are read-only."""
        return DeleteResult(error=_READ_ONLY)

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Refuses a write: skills are read-only."""
        return [FileUploadResponse(path=path, error=_READ_ONLY) for path, _ in files]

    def ls(self, path: str) -> LsResult:
        """Refuses a call of an agent that runs synchronously."""
        return LsResult(error=_ASYNCHRONOUS)

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """Refuses a call of an agent that runs synchronously."""
        return ReadResult(error=_ASYNCHRONOUS)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Refuses a call of an agent that runs synchronously."""
        return [FileDownloadResponse(path=path, error=_ASYNCHRONOUS) for path in paths]

    async def _directories(self) -> dict[str, Skill]:
        """Returns the skills by the names of their directories."""
        skills = await self._session.list()
        last_parts = Counter(_last_part(skill) for skill in skills)
        directories = {}
        for skill in skills:
            name = _last_part(skill)
            if last_parts[name] > 1:
                name = unquote(skill.package.partition("://")[2]).replace("/", "-")
            directories[name] = skill
        return directories

    async def _read(self, path: str) -> str:
        found = self._locate(await self._directories(), posixpath.normpath(path))
        if found is None or not found[1]:
            raise Refused(f"{path} is no file of a skill", "RESOURCE_NOT_FOUND", "List the skills.")
        skill, file = found
        return await self._session.read(skill, quote(file))

    def _locate(self, directories: dict[str, Skill], place: str) -> tuple[Skill, str] | None:
        """Returns the skill of a path, and the rest of the path in the skill."""
        for base in (self._directory.rstrip("/") + "/", "/"):
            name, _, file = place.removeprefix(base).partition("/")
            if place.startswith(base) and name in directories:
                return directories[name], file
        return None


def _last_part(skill: Skill) -> str:
    return unquote(skill.package.rpartition("/")[2])
