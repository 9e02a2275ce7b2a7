"""Sessions with a real daemon."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import write_skill

import caproot
from caproot import testing

NAMES = ["review-kit:review-diff", "triage-logs", "write-changelog"]


def test_the_first_lines(run: Any, demo: str) -> None:
    async def work() -> None:
        async with caproot.connect(demo) as skills:
            names = [tool["name"] for tool in skills.tools]
            listed = await skills.call(names[0], {})
            assert listed.ok and listed.external
            assert [skill["name"] for skill in listed.json()["skills"]] == NAMES
            assert "- triage-logs: Finds the first cause in a long log." in skills.text
            assert all(tool["input_schema"]["type"] == "object" for tool in skills.tools)

    run(work())


def test_the_socket_of_the_environment_is_found(
    run: Any, demo: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def names() -> list[str]:
        async with caproot.connect() as skills:
            return [skill.name for skill in await skills.list()]

    with monkeypatch.context() as patch:
        patch.setenv("CAPROOT_ENDPOINT", demo)
        assert run(names()) == NAMES

    # The first default socket is that of the user's runtime directory.
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "caproot.sock").symlink_to(demo.removeprefix("unix:"))
    assert run(names()) == NAMES


def test_lists_and_files_are_whole(run: Any, served: str, tree: Path) -> None:
    text = "ä\u0001\"\\\n" * 9_000
    (tree / "first/references").mkdir()
    (tree / "first/references/a b%.md").write_text(text, encoding="utf-8")
    (tree / "first/binary").write_bytes(b"\xff\x00")
    for number in range(60):
        write_skill(tree, f"skill-{number:03}")

    async def work() -> None:
        async with caproot.connect(served, start_timeout=20) as skills:
            listed = await skills.list()
            while len(listed) < 61:
                async for _ in skills.changes():
                    break
                listed = await skills.list()
            first = listed[0]
            assert (first.name, first.package) == ("first", "skill://tree/first")
            assert (first.authority.kind, first.authority.id) == ("executor", "tree")
            assert first == (await skills.list())[0] and len({first, *listed}) == 61

            for path in ("references/a%20b%25.md", "./references/../references/a%20b%25.md#top"):
                assert await skills.read(first, path) == text
            assert (await skills.read("first")).endswith("# Body\n")
            main = await skills.read(first.package, "SKILL.md")
            assert main == await skills.read(first, first.main_resource) == await skills.read(first, "#top")

            for path, code in (
                ("../x.md", "RESOURCE_NOT_FOUND"),
                ("/etc/passwd", "RESOURCE_NOT_FOUND"),
                ("none.md", "RESOURCE_NOT_FOUND"),
                ("references/", "RESOURCE_NOT_FOUND"),
                (".", "RESOURCE_NOT_FOUND"),
                ("binary", "NOT_TEXT"),
            ):
                with pytest.raises(caproot.Refused) as refused:
                    await skills.read(first, path)
                assert refused.value.code == code and refused.value.next
            with pytest.raises(caproot.Refused, match="no skill of this session has the name"):
                await skills.read("none")

    run(work())


def test_a_search_finds_a_skill(run: Any, demo: str) -> None:
    async def work() -> None:
        async with caproot.connect(demo) as skills:
            name = skills.tools[2]["name"]
            assert name == "skills_search" and name not in skills.text
            found = await skills.call(name, {"query": "log triage errors", "limit": 1})
            assert found.ok and found.external
            assert [skill["name"] for skill in found.json()["skills"]] == ["triage-logs"]
            refused = await skills.call(name, {"query": "please help"})
            assert refused.json()["error"]["code"] == "INVALID_ARGUMENTS"

    run(work())


def test_a_change_arrives(run: Any, served: str, tree: Path) -> None:
    async def work() -> None:
        async with caproot.connect(served) as skills:
            changes = skills.changes()
            write_skill(tree, "second")
            async for change in changes:
                assert change == {"kind": "executor", "id": "local"}
                if "- second:" in skills.text:
                    break
            assert [skill.name for skill in await skills.list()] == ["first", "second"]

            # The iteration ends with the session.
            waiting = asyncio.ensure_future(anext(aiter(skills.changes()), None))
            await asyncio.sleep(0)
            await skills.close()
            assert await waiting is None

    run(work())


def test_selected_roots_are_passed_on(run: Any, demo: str) -> None:
    location = {"type": "environment", "environmentId": "local", "path": "published:demo"}
    array = [{"id": "team@1", "location": location}]

    async def work() -> None:
        for roots in (
            array,
            {"model": "x", "selectedCapabilityRoots": array},
            json.dumps({"selectedCapabilityRoots": array}),
        ):
            async with caproot.connect(demo, roots=roots) as skills:
                packages = [skill.package for skill in await skills.list()]
                assert packages[1] == "skill://team%401/triage-logs"
        async with caproot.connect(fleet={"local": demo}, roots=array) as skills:
            assert len(await skills.list()) == 3
            (state,) = skills.executors()
            assert (state["environmentId"], state["state"]) == ("local", "live")

    run(work())


def test_all_mistakes_come_at_once(run: Any, demo: str, tmp_path: Path) -> None:
    async def mistakes(**arguments: Any) -> tuple[str, ...]:
        with pytest.raises(caproot.ConfigError) as error:
            await caproot.connect(**arguments)
        assert all(mistake in str(error.value) for mistake in error.value.mistakes)
        return error.value.mistakes

    async def work() -> None:
        found = await mistakes(
            address="nowhere", roots=[{"id": 5}], choice={"include": ["pdf"], "exclude": ["name:"]},
            start_timeout=-1,
        )  # fmt: skip
        assert len(found) == 5
        assert any("address" in mistake for mistake in found)
        roots = [
            {"id": id, "location": {"type": "environment", "environmentId": "local", "path": path}}
            for id, path in (("", "/a"), ("a", "/a"), ("a", "/b"))
        ]
        assert len(await mistakes(address=demo, roots=roots)) == 2
        assert len(await mistakes(fleet={"a": "x:y", "b": "tcp:"})) == 2
        assert len(await mistakes(fleet=tmp_path / "none.yaml")) == 1
        (tmp_path / "fleet.yaml").write_text("executors:\n  a: {endpoint: 5, ca: }\n  b: {}\n")
        assert len(await mistakes(fleet=tmp_path / "fleet.yaml")) >= 2
        assert len(await mistakes(address=demo, id="a b")) == 1
        assert len(await mistakes(address=demo, fleet={})) == 1
        assert len(await mistakes(address=demo, cert="a.pem")) == 1
        assert len(await mistakes(address=demo, token="a", token_file="b")) == 1
        (mistake,) = await mistakes(address=demo, choice={"inclde": []})
        assert mistake == "choice: unknown option `inclde`; did you mean `include`?"
        (mistake,) = await mistakes(address=demo, result_bytes=100)
        assert mistake == "result_bytes is 100; expected 8192 to 65536"

    run(work())


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"address": 5}, "address"),
        ({"fleet": 5}, "fleet"),
        ({"roots": 5}, "roots"),
        ({"roots": [{"id": {1}}]}, "roots"),
        ({"tools": []}, "tools"),
        ({"sources": "x"}, "sources"),
        ({"sources": [5]}, "sources"),
        ({"choice": []}, "choice"),
        ({"choice": {"include": "name:x"}}, "include"),
        ({"store": object()}, "store"),
        ({"id": 5}, "id"),
        ({"product": None}, "product"),
        ({"plugins": 1}, "plugins"),
        ({"start_timeout": "5"}, "start_timeout"),
        ({"grace_period": True}, "grace_period"),
        ({"ca": 5}, "ca"),
        ({"token": 5}, "token"),
        ({"server_name": b"a"}, "server_name"),
    ],
)
def test_a_wrong_type_is_named(arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(TypeError, match=name):
        caproot.connect(**arguments)


def test_wrong_types_of_methods_are_named(run: Any, demo: str) -> None:
    async def work() -> None:
        async with caproot.connect(demo) as skills:
            with pytest.raises(TypeError, match="name must be str"):
                await skills.call(5)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="arguments"):
                await skills.call("x", [1])  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="arguments cannot be written as JSON"):
                await skills.call("x", {"a": {1}})
            with pytest.raises(TypeError, match="skill must be"):
                await skills.read(5)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="budget"):
                skills.instruction_text("5")  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="budget"):
                skills.instruction_text(-1)
            with pytest.raises(TypeError, match="known"):
                skills.instruction_text(known=5)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="budget"):
                await skills.reinject(-1)
            with pytest.raises(TypeError, match="roots"):
                skills.fork(roots="demo")

    run(work())


def test_an_error_of_a_call_is_a_result(run: Any, demo: str) -> None:
    async def work() -> None:
        async with caproot.connect(demo) as skills:
            read = skills.tools[1]["name"]
            for name, arguments, code in (
                ("none", {}, "UNKNOWN_TOOL"),
                ("", None, "UNKNOWN_TOOL"),
                (read, "not json", "INVALID_ARGUMENTS"),
                (read, '{"package": 5}', "INVALID_ARGUMENTS"),
                (skills.tools[0]["name"], {"cursor": "x"}, "INVALID_CURSOR"),
            ):
                result = await skills.call(name, arguments)
                assert not result.ok
                assert result.json()["error"]["code"] == code, result
                assert result.json()["error"]["next"]
            # No text of arguments means no arguments.
            assert (await skills.call(skills.tools[0]["name"], "")).ok

    run(work())


def test_a_conversation_gets_notices_and_used_skills(run: Any, demo: str) -> None:
    async def work() -> None:
        async with caproot.connect(demo) as skills:
            first = skills.instruction_text()
            assert first["kind"] == "whole" and first["text"] == skills.text
            again = skills.instruction_text(known=first["id"])
            assert (again["kind"], again["text"], again["id"]) == ("unchanged", "", first["id"])
            unknown = skills.instruction_text(known="\u200b" * 1000)
            assert (unknown["kind"], unknown["text"]) == ("whole", first["text"])
            assert unknown["reason"] == "no session returned such an id"

            assert await skills.used_skills() == []
            await skills.call(skills.tools[1]["name"], {"package": "skill://demo/triage-logs"})
            (used,) = await skills.used_skills()
            assert (used["name"], used["state"]) == ("triage-logs", "unchanged")
            assert used["digest"].startswith("sha256:")
            again_given = await skills.reinject()
            assert again_given["note"] == "" and not again_given["fragments"][0]["changed"]
            assert "# Triage a log" in again_given["fragments"][0]["text"]
            assert (await skills.reinject(0))["fragments"] == []

    run(work())


def test_a_closed_session_says_so(run: Any, demo: str) -> None:
    async def work() -> None:
        async with caproot.connect(demo) as skills:
            listing = skills.tools[0]["name"]
        result = await skills.call(listing, {})
        assert result.json()["error"]["code"] == "SESSION_CLOSED"
        assert skills.is_closed
        await skills.close()
        for use in (
            lambda: skills.text,
            skills.instruction_text,
            skills.changes,
            skills.plugins,
            skills.fork,
        ):
            with pytest.raises(caproot.Refused) as refused:
                use()
            assert refused.value.code == "SESSION_CLOSED"
        for begin in (skills.list, skills.used_skills, skills.reinject, lambda: skills.inject("$triage-logs")):
            with pytest.raises(caproot.Refused, match="SESSION_CLOSED"):
                await begin()

    run(work())


def test_no_daemon_is_an_error_with_the_next_step(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        with pytest.raises(caproot.Refused) as refused:
            await caproot.connect(f"unix:{tmp_path}/none.sock")
        assert refused.value.code == "EXECUTOR_UNAVAILABLE"
        assert "caproot serve" in refused.value.next

        # With selected roots, the executor may come later.
        location = {"type": "environment", "environmentId": "local", "path": "published:demo"}
        roots = [{"id": "demo", "location": location}]
        async with caproot.connect(f"unix:{tmp_path}/none.sock", roots=roots) as skills:
            assert await skills.list() == []
            assert skills.executors()[0]["state"] != "live"
            assert "cannot be used" in skills.instruction_text()["warnings"][0]

    run(work())
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    async def connect() -> None:
        await caproot.connect()

    with pytest.raises(caproot.Refused, match="default sockets"):
        run(connect())


@pytest.mark.parametrize("begin", ["serve", "local"])
def test_a_killed_process_leaves_no_program(begin: str, tree: Path) -> None:
    program = (
        "import os, sys, time, caproot.sync, caproot.testing\n"
        "from caproot import _daemon, _host\n"
        "if sys.argv[1] == 'serve':\n"
        "    served = caproot.testing.serve(sys.argv[2])\n"
        "    served.__enter__()\n"
        "    (daemon,) = _daemon._daemons\n"
        "else:\n"
        "    skills = caproot.sync.connect(sources=[caproot.LocalSkills({'mine': sys.argv[2]})])\n"
        "    daemon = _host.ProgramHost.current()._child\n"
        # A child that lives on does not keep the program.
        "child = os.fork()\n"
        "if child:\n"
        "    print(daemon._process.pid, child, flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", program, begin, str(tree)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "XDG_RUNTIME_DIR": str(tree)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        daemon, child = map(int, parent.stdout.readline().split())
        process = os.pidfd_open(daemon)
        parent.kill()
        # The descriptor is readable once the daemon has ended.
        ready, _, _ = select.select([process], [], [], 30)
        os.kill(child, signal.SIGKILL)
    os.close(process)
    assert ready


def test_serve_repeats_the_words_of_the_daemon(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "same=name").mkdir(parents=True)
    with testing.serve(tmp_path / "a/same=name") as daemon:
        assert daemon.address.startswith("unix:/")
    with (
        pytest.raises(caproot.ConfigError, match="the daemon ended: .*same"),
        testing.serve(tmp_path / "a/same=name", tmp_path / "b/same=name"),
    ):
        pass
