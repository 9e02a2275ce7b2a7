"""Daemons for the tests. Each is the program of the wheel, or the debug build of this repository."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from caproot import testing
from caproot._program import find_program

TOP = Path(__file__).resolve().parents[2]
DEMO = TOP / "tests/trees/demo"
T = TypeVar("T")
Runner = Callable[[Coroutine[Any, Any, T]], T]

os.environ["PATH"] += f":{TOP / 'target/debug'}"
for variable in ("CAPROOT_ENDPOINT", "CAPROOT_CA", "CAPROOT_CERT", "CAPROOT_KEY", "CAPROOT_TOKEN_FILE"):
    os.environ.pop(variable, None)


def write_skill(directory: Path, name: str, body: str = "# Body\n") -> None:
    """Writes a skill, at once for every watcher."""
    skill = directory / name
    skill.mkdir(parents=True, exist_ok=True)
    text = f"---\nname: {name}\ndescription: Does {name}. Use when a test asks for {name}.\n---\n{body}"
    (skill / "SKILL.md.new").write_text(text, encoding="utf-8")
    (skill / "SKILL.md.new").rename(skill / "SKILL.md")


@pytest.fixture(scope="session")
def demo() -> Iterator[str]:
    """Address of a daemon that serves the demo tree."""
    with testing.serve(DEMO) as daemon:
        yield daemon.address


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Directory that a test may change, with the skill `first`."""
    directory = tmp_path / "tree"
    write_skill(directory, "first")
    return directory


@pytest.fixture
def served(tree: Path) -> Iterator[str]:
    """Address of a daemon that serves `tree`."""
    with testing.serve(tree) as daemon:
        yield daemon.address


def run_with_asyncio(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


def run_with_uvloop(work: Coroutine[Any, Any, T]) -> T:
    uvloop = pytest.importorskip("uvloop")
    return uvloop.run(asyncio.wait_for(work, 60))  # type: ignore[no-any-return]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Any:
    """Runs a coroutine in a new event loop, with a time limit."""
    return run_with_asyncio if request.param == "asyncio" else run_with_uvloop


@pytest.fixture
def copied_demo(tmp_path: Path) -> Path:
    """Copy of the demo tree."""
    directory = tmp_path / "demo"
    shutil.copytree(DEMO, directory)
    return directory


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[str]:
    """Daemon over TCP that requires the token `right`."""
    (tmp_path / "token").write_text("right")
    (tmp_path / "token").chmod(0o600)
    config = tmp_path / "caproot.yaml"
    config.write_text(
        f"roots: [{{id: demo, path: {DEMO}}}]\nlisten: ['tcp:127.0.0.11:0']\n"
        f"callers:\n  - {{name: job, token_file: {tmp_path / 'token'}, roots: [demo]}}\n"
    )
    command = [find_program(), "serve", "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        yield daemon.stdout.readline().removeprefix("listening ").strip()
        daemon.terminate()
