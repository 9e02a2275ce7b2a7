"""The programs of the page print what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TOP

PAGE = (TOP / "docs/orchestrate/python.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
OUTPUTS = dict(re.findall(r"^```console\n\$ python (\w+\.py)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))


def test_each_program_has_an_output() -> None:
    assert PROGRAMS.keys() == OUTPUTS.keys() and len(PROGRAMS) == 4


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_the_lines_of_the_page(name: str, demo: str, guarded: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(PROGRAMS[name], encoding="utf-8")
    (tmp_path / "job.token").write_text("right\n")
    endpoint = guarded if "token=" in PROGRAMS[name] else demo
    environment = {**os.environ, "CAPROOT_ENDPOINT": endpoint, "PYTHONPATH": os.pathsep.join(sys.path)}
    program = subprocess.run(
        [sys.executable, "-W", "error", name],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert program.returncode == 0, program.stderr
    assert program.stdout == OUTPUTS[name]
    assert program.stderr == ""
