"""The pages of the reference are those of the docstrings."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from conftest import TOP

GENERATOR = ".ci/python/reference"
PARTS = (GENERATOR, "python/caproot", "docs/reference")


def run_generator(top: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(top / GENERATOR)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_pages_are_current() -> None:
    done = run_generator(TOP)
    assert done.returncode == 0, done.stderr


def test_a_changed_docstring_makes_a_page_stale(tmp_path: Path) -> None:
    for part in PARTS:
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copy if (TOP / part).is_file() else shutil.copytree
        copy(TOP / part, tmp_path / part)
    session = tmp_path / "python/caproot/_session.py"
    text = session.read_text(encoding="utf-8")
    session.write_text(text.replace("Returns the plugins, ", "Returns all plugins, "), encoding="utf-8")
    assert "stale: python-session.md" in run_generator(tmp_path).stderr

    package = tmp_path / "python/caproot/__init__.py"
    text = package.read_text(encoding="utf-8")
    package.write_text(text.replace('"Tools",\n', '"Tools",\n    "Undescribed",\n', 1), encoding="utf-8")
    assert "no page describes ['Undescribed']" in run_generator(tmp_path).stderr
