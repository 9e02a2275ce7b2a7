"""Results of sessions: a tool's result, and a skill of a list."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from ._line_types import ListedSkill


class _Record:
    """Object whose attributes never change."""

    __slots__: tuple[str, ...] = ()

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} of a {type(self).__name__} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name} of a {type(self).__name__} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, _Record)
        return self._values() == other._values()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._values()


_set = object.__setattr__


class ResultImage(_Record):
    """Image or sound of a tool's result."""

    mime_type: str
    """Type as the server names it, such as `image/png`."""
    data: bytes
    """Content."""

    __slots__ = ("mime_type", "data")

    def __init__(self, mime_type: str, data: bytes) -> None:
        _set(self, "mime_type", mime_type)
        _set(self, "data", bytes(data))

    def __repr__(self) -> str:
        return f"ResultImage(mime_type={self.mime_type!r}, bytes={len(self.data)})"


class ToolResult(_Record):
    """Result of a tool for a model."""

    ok: bool
    """Whether the call succeeded. If not, `text` has the error and the next step."""
    external: bool
    """Whether third parties wrote the result, so that a model should follow no instruction in it."""
    text: str
    """One JSON object of at most `result_bytes` of the session."""
    images: list[ResultImage]
    """Images and sounds that `text` names by type and size. Only tools of MCP servers have images."""

    __slots__ = ("ok", "external", "text", "images")

    def __init__(self, ok: bool, external: bool, text: str, images: Sequence[ResultImage] = ()) -> None:
        _set(self, "ok", ok)
        _set(self, "external", external)
        _set(self, "text", text)
        _set(self, "images", [*images])

    def json(self) -> Any:
        """Returns the parsed object."""
        import json

        return json.loads(self.text)

    def __repr__(self) -> str:
        return f"ToolResult(ok={self.ok}, external={self.external}, text={self.text!r})"


class Authority(_Record):
    """Authority of a skill."""

    kind: str
    """`executor`, `local`, `mcp` or `site`."""
    id: str
    """Id of the selected root, of the directory, of the server or of the site."""

    __slots__ = ("kind", "id")

    def __init__(self, kind: str, id: str) -> None:
        _set(self, "kind", kind)
        _set(self, "id", id)

    def __hash__(self) -> int:
        return hash((self.kind, self.id))

    def __repr__(self) -> str:
        return f"Authority(kind={self.kind!r}, id={self.id!r})"


class Skill(_Record):
    """Skill of a list."""

    name: str
    """Name, which may begin with the name of a plugin: `deploy-kit:deploy`."""
    description: str
    """Description by the author of the skill."""
    package: str
    """Handle of the skill."""
    main_resource: str
    """Handle of its SKILL.md."""
    environments: dict[str, str]
    """Package in each environment, if several environments have the skill; otherwise empty."""
    authority: Authority
    """Authority that lists the skill."""
    missing: list[str]
    """Requirements that the executor does not have, such as `program jq`."""

    __slots__ = ("name", "description", "package", "main_resource", "environments", "authority", "missing")

    def __init__(
        self,
        name: str,
        description: str,
        package: str,
        main_resource: str,
        environments: Mapping[str, str],
        authority: Authority,
        missing: Sequence[str] = (),
    ) -> None:
        _set(self, "name", name)
        _set(self, "description", description)
        _set(self, "package", package)
        _set(self, "main_resource", main_resource)
        _set(self, "environments", dict(environments))
        _set(self, "authority", authority)
        _set(self, "missing", [*missing])

    @staticmethod
    def _from_line(fields: ListedSkill) -> Skill:
        """Returns the skill of a line."""
        authority = fields["authority"]
        return Skill(
            fields["name"],
            fields["description"],
            fields["package"],
            fields["mainResource"],
            fields.get("environments", {}),
            Authority(authority["kind"], authority["id"]),
            fields.get("missing", ()),
        )

    def __hash__(self) -> int:
        return hash((self.name, self.package, self.authority))

    def __repr__(self) -> str:
        return f"Skill(name={self.name!r}, package={self.package!r})"
