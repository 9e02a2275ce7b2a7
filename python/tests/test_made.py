"""The types and the reference of the package are made from the program and from the docstrings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TOP

import caproot
from caproot import _line_types
from caproot._program import find_program


def make_reference(package: Path, pages: Path) -> subprocess.CompletedProcess[str]:
    pages.mkdir()
    command = [sys.executable, str(package / "_make_reference.py"), find_program(), str(pages)]
    environment = {**os.environ, "PYTHONPATH": str(package)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_the_links_of_the_reference_lead_to_its_pages(tmp_path: Path) -> None:
    done = make_reference(TOP / "python", tmp_path / "pages")
    assert done.returncode == 0, done.stderr
    pages = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "pages").iterdir()}
    links = set(re.findall(r"\]\(([^)]+)\)", re.sub("`+[^`]+`+", "", "".join(pages.values()))))
    assert links == pages.keys()
    assert "\n## connect\n" in pages["python-session.md"]
    assert "- `digest: str`: Digest of the SKILL.md" in pages["python-results.md"]


@pytest.mark.parametrize(
    ("module", "old", "new", "message"),
    [
        ("__init__", '"Tools",\n', '"Tools",\n    "Undescribed",\n', "no page describes ['Undescribed']"),
        ("_session", "UsedSkill]:", "SessionId]:", "no page describes ['SessionId']"),
        ("_session", '"""Saves the session in its store. Raises `StoreError`."""', "", "persist has no docstring"),
        ("_session", "Returns the plugins, ", "Returns the plugins, " + "x" * 9_000, "divide the page"),
    ],
)
def test_the_reference_is_complete(tmp_path: Path, module: str, old: str, new: str, message: str) -> None:
    package = tmp_path / "python"
    shutil.copytree(TOP / "python", package, ignore=shutil.ignore_patterns("tests", "dist"))
    path = package / f"caproot/{module}.py"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    assert message in make_reference(package, tmp_path / "pages").stderr


@pytest.mark.parametrize(
    ("own", "line", "unused"),
    [
        (caproot.Skill, _line_types.ListedSkill, set()),
        (caproot.Authority, _line_types.SkillAuthority, set()),
        (caproot.ResultImage, _line_types.AnswerImage, set()),
        (caproot.ServerValueRequest, _line_types.ServerValueEvent, {"call", "key"}),
    ],
)
def test_objects_have_the_fields_of_their_lines(own: type, line: type, unused: set[str]) -> None:
    fields = {re.sub("([A-Z])", lambda found: f"_{found[1].lower()}", name) for name in line.__annotations__}
    assert own.__annotations__.keys() == fields - unused
