"""Locks of approved skills."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import write_skill

import caproot
from caproot import testing
from caproot._program import find_program


@pytest.fixture
def lock(tree: Path, tmp_path: Path) -> Path:
    """Lock of the skill `first`, beside which the tree then has the skill `second`."""
    path = tmp_path / "caproot.lock"
    subprocess.run([find_program(), "lock", tree, "--out", path], check=True, capture_output=True)
    write_skill(tree, "second")
    return path


def test_a_session_has_only_approved_skills(run: Any, served: str, lock: Path) -> None:
    async def work() -> None:
        async with caproot.connect(served, lock=lock) as skills:
            assert [skill.name for skill in await skills.list()] == ["first"]
            assert "first" in skills.text and "second" not in skills.text
            assert (await skills.read("first")).endswith("# Body\n")

    run(work())


def test_a_changed_skill_is_not_listed(tree: Path, lock: Path) -> None:
    write_skill(tree, "first", "# Other\n")

    async def work(address: str) -> None:
        async with caproot.connect(address, lock=lock) as skills:
            assert await skills.list() == []
            with pytest.raises(caproot.Refused, match="PACKAGE_NOT_FOUND"):
                await skills.read("skill://tree/first")

    with testing.serve(tree) as daemon:
        asyncio.run(work(daemon.address))


def test_invalid_locks_are_config_errors(served: str, tree: Path, lock: Path) -> None:
    async def connect(**options: Any) -> None:
        async with caproot.connect(served, **options):
            pass

    for options, part in [
        ({"lock": tree / "none"}, "none"),
        ({"lock": tree / "first/SKILL.md"}, "SKILL.md"),
        ({"lock": lock, "signers": lock}, "PRINCIPALS"),
        ({"signers": lock}, "lock"),
    ]:
        with pytest.raises(caproot.ConfigError, match=part):
            asyncio.run(connect(**options))
