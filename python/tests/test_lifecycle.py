"""Choice, mentions, source states, forks, saved sessions, stores, fleets, tokens and sources."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import DEMO, write_skill

import caproot
from caproot import _host, testing


class MemoryStore:
    """Store in memory. `broken` makes it fail."""

    def __init__(self) -> None:
        self.saved: dict[str, str] = {}
        self.broken = False

    async def put(self, id: str, saved: str) -> None:
        await asyncio.sleep(0)
        if self.broken:
            raise OSError("the disk is full")
        self.saved[id] = saved

    async def get(self, id: str) -> str | None:
        return self.saved.get(id)

    async def delete(self, id: str) -> None:
        if self.broken:
            raise OSError("the disk is full")
        self.saved.pop(id, None)


def test_a_choice_limits_a_session(run: Any, demo: str) -> None:
    async def work() -> None:
        choice: Any = {"include": ["name:triage-logs", "handle:skill://demo/write-changelog"]}
        async with caproot.connect(demo, choice=choice) as skills:
            names = [skill.name for skill in await skills.list()]
            assert names == ["triage-logs", "write-changelog"]
        choice = {"exclude": ["source:executor/local"]}
        async with caproot.connect(demo, choice=choice) as skills:
            assert await skills.list() == []

    run(work())


def test_mentions_and_budget(run: Any, demo: str) -> None:
    async def work() -> None:
        async with caproot.connect(demo) as skills:
            injected = await skills.inject(
                "Look with $triage-logs.", mentions=[{"name": "write-changelog"}], caller_skills=["triage-logs"]
            )
            packages = [fragment["package"] for fragment in injected["fragments"]]
            assert packages == ["skill://demo/write-changelog", "skill://demo/triage-logs"]
            assert injected["replaced"] == ["triage-logs"]
            injected = await skills.inject("$triage-logs", arguments="of today")
            assert "\n\nARGUMENTS: of today\n" in injected["fragments"][0]["text"]
            injected = await skills.inject("", mentions=[{"handle": "skill://demo/none"}])
            assert injected["omitted"][0]["mention"] == "skill://demo/none"
            with pytest.raises(ValueError, match="unknown field"):
                await skills.inject("", mentions=[{"title": "x"}])

            (state,) = skills.source_states()
            assert state == {"kind": "executor", "id": "local", "skills": 3}
            whole = len(skills.instruction_text()["text"].encode())
            text = skills.instruction_text(whole - 1)
            assert len(text["text"].encode()) < whole and text["shortened"] > 0
            assert skills.instruction_text(0)["text"] == ""

    run(work())


def test_forks_have_some_roots(run: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_skill(tmp_path / name, f"skill-{name}")

    async def work(address: str) -> None:
        async with caproot.connect(address) as skills:
            fork = skills.fork(roots=["b"])
            assert fork.id != skills.id
            assert [skill.name for skill in await fork.list()] == ["skill-b"]
            with pytest.raises(caproot.ConfigError, match="none"):
                skills.fork(roots=["none"])
        assert len(await fork.list()) == 1
        await fork.close()

    with testing.serve(tmp_path / "a", tmp_path / "b") as daemon:
        run(work(daemon.address))


def test_forks_have_some_skills(run: Any, demo: str) -> None:
    async def names(session: caproot.Session) -> list[str]:
        return [skill.name for skill in await session.list()]

    async def work() -> None:
        choice: Any = {"exclude": ["name:write-changelog"]}
        async with caproot.connect(demo, choice=choice) as skills:
            whole = await names(skills)
            assert len(whole) == 2
            async with skills.fork(include=["name:triage-logs", "name:write-changelog"]) as fork:
                # The rules of the session remain in force, also in forks of the fork.
                assert await names(fork) == ["triage-logs"]
                assert "review-diff" not in fork.text
                assert await names(fork.fork(include=["source:executor/local"])) == ["triage-logs"]
                with pytest.raises(caproot.Refused) as refused:
                    await fork.read(next(skill for skill in await skills.list() if skill.name != "triage-logs"))
                assert refused.value.code == "PACKAGE_NOT_FOUND"
                saved = fork.save()
            async with await caproot.Session.restore(saved, fleet={"local": demo}) as restored:
                assert await names(restored) == ["triage-logs"]
            async with skills.fork(exclude=["name:triage-logs"]) as fork:
                assert await names(fork) == ["review-kit:review-diff"]
            assert await names(skills) == whole
            async with skills.fork(manual=["name:triage-logs"], name_only=["name:review-diff"]) as fork:
                assert "triage-logs" not in await names(fork)
                assert "triage-logs:" not in fork.text and fork.instruction_text()["hidden"] == 1
                assert (await fork.inject("use $triage-logs"))["fragments"][0]["name"] == "triage-logs"

            with pytest.raises(caproot.ConfigError) as error:
                skills.fork(include=["pdf"], exclude=["name:"])
            assert len(error.value.mistakes) == 2
            with pytest.raises(caproot.ConfigError, match="rules"):
                skills.fork(include=["name:x"] * 256)
            with pytest.raises(TypeError, match="include"):
                skills.fork(include="name:x")

    run(work())


def test_a_skill_of_a_text_is_read_by_its_short_name(run: Any, tmp_path: Path) -> None:
    for root in ("a", "b"):
        write_skill(tmp_path / root, "same", f"# Body of {root}\n")

    async def work(address: str) -> None:
        async with caproot.connect(address) as skills:
            for name in ("a/same", "b/same"):
                assert f"- {name}: " in skills.text
                assert (await skills.read(name)).endswith(f"# Body of {name[0]}\n")
            for skill in await skills.list():
                assert await skills.read(skill) == await skills.read(skill.package)
            with pytest.raises(caproot.Refused) as refused:
                await skills.read("same")
            assert refused.value.code == "AMBIGUOUS_NAME"

    with testing.serve(tmp_path / "a", tmp_path / "b") as daemon:
        run(work(daemon.address))


def test_options_change_the_skills_and_the_results(run: Any, tree: Path) -> None:
    for name, field in (("off", "default-enabled: false"), ("people", "disable-model-invocation: true")):
        (tree / name).mkdir()
        header = f"---\nname: {name}\ndescription: Is {name}.\n{field}\n---\n"
        (tree / name / "SKILL.md").write_text(header + "line of text\n" * 2_000, encoding="utf-8")
    (tree / "first/agents").mkdir()
    (tree / "first/agents/openai.yaml").write_text("policy:\n  products: [codex]\n", encoding="utf-8")
    enabled = ["name:off", "name:people"]

    async def names(session: caproot.Session) -> list[str]:
        return [skill.name for skill in await session.list()]

    async def work(address: str) -> None:
        choice: Any = {"enable": enabled}
        async with caproot.connect(address) as plain:
            assert await names(plain) == ["first"]
            async with plain.fork(enable=enabled) as fork:
                assert await names(fork) == ["first", "off"]
                cut = await fork.call("skills_read", {"package": "off"})
                assert cut.ok and len(cut.text.encode()) <= 8192 and cut.json()["next_cursor"]
            async with plain.fork(product="chatgpt") as fork:
                assert await names(fork) == []
        async with caproot.connect(address, choice=choice, result_bytes=65_536) as chosen:
            assert await names(chosen) == ["first", "off"]
            whole = await chosen.call("skills_read", {"package": "off"})
            assert whole.json()["contents"].endswith("line of text\n" * 2_000)
            async with chosen.fork(product="chatgpt") as fork:
                assert await names(fork) == ["off"]

    with testing.serve(tree) as daemon:
        run(work(daemon.address))


def test_uses_of_skills_are_events(run: Any, demo: str) -> None:
    async def work() -> None:
        async with caproot.connect(demo) as skills:
            usage = skills.usage()
            await skills.inject("use $triage-logs")
            await skills.read("triage-logs")
            for kind in ("injected", "read"):
                event = await anext(usage)
                assert (event["kind"], event["name"], event["session"]) == (kind, "triage-logs", skills.id)
                assert event["digest"].startswith("sha256:") and "lost" not in event
        assert [event async for event in usage] == []

    run(work())


def test_a_saved_session_is_restored_with_its_changes(run: Any, served: str, tree: Path) -> None:
    async def work() -> None:
        async with caproot.connect(served, id="thread-1", product="codex") as skills:
            saved = skills.save()
            assert skills.changes_since_save() == []
        write_skill(tree, "second")
        skills = await caproot.Session.restore(saved, fleet={"local": served})
        async with skills:
            assert skills.id == "thread-1" and skills.warnings == []
            while len(await skills.list()) < 2:
                async for _ in skills.changes():
                    break
            (changes,) = skills.changes_since_save()
            assert changes["environmentId"] == "local" and changes["changes"]["state"] in ("known", "unknown")

        for text in ("", "{}", saved[:-9], "x" * 5_000_000):
            with pytest.raises(caproot.ConfigError, match="the saved session"):
                await caproot.Session.restore(text, fleet={"local": served})

    run(work())


def test_a_store_persists_sessions(run: Any, demo: str) -> None:
    store = MemoryStore()

    async def work() -> None:
        async with caproot.connect(demo, store=store, id="one") as skills:
            await skills.persist()
            assert json.loads(store.saved["one"])["id"] == "one"
            store.broken = True
            with pytest.raises(caproot.StoreError, match="the disk is full"):
                await skills.persist()
            store.broken = False
        async with await caproot.Session.restore("one", fleet={"local": demo}, store=store) as skills:
            assert len(await skills.list()) == 3
            store.broken = True
            with pytest.raises(caproot.StoreError):
                await skills.close(delete=True)
            store.broken = False
        skills = await caproot.Session.restore("one", fleet={"local": demo}, store=store)
        await skills.close(delete=True)
        assert store.saved == {}
        with pytest.raises(KeyError, match="one"):
            await caproot.Session.restore("one", fleet={"local": demo}, store=store)
        async with caproot.connect(demo) as skills:
            with pytest.raises(caproot.StoreError, match="store="):
                await skills.persist()

    run(work())


def test_fleets_of_every_kind(run: Any, demo: str, tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(f"executors:\n  local:\n    endpoint: {demo}\n")
    asked: list[str] = []

    async def find(environment: str) -> caproot.Executor | None:
        await asyncio.sleep(0)
        asked.append(environment)
        return caproot.Executor(demo) if environment == "local" else None

    async def work() -> None:
        for fleet in (
            file,
            str(file),
            caproot.Fleet.from_file(file),
            {"local": caproot.Executor(demo, timeout=5)},
            caproot.Fleet.find(find, ["local", "gone"]),
            caproot.Fleet.find(lambda _: demo, ["local"]),
        ):
            async with caproot.connect(fleet=fleet) as skills:
                assert len(await skills.list()) == 3
        async with caproot.connect(fleet=caproot.Fleet.find(find, ["gone", "local"])) as skills:
            assert "gone" in skills.warnings[0] and len(await skills.list()) == 3
        with pytest.raises(caproot.Refused, match="gone"):
            await caproot.connect(fleet=caproot.Fleet.find(find, ["gone"]))

    run(work())
    assert "local" in asked


def test_tokens(run: Any, guarded: str, tmp_path: Path) -> None:
    tokens = ["right"]

    async def token() -> str:
        await asyncio.sleep(0)
        return tokens[0]

    async def work() -> None:
        for arguments in (
            {"token": "right"},
            {"token": lambda: "right"},
            {"token": token},
            {"token_file": tmp_path / "token"},
        ):
            async with caproot.connect(guarded, **arguments) as skills:
                assert len(await skills.list()) == 3, arguments
        # The session keeps the function.
        session = await caproot.connect(guarded, token=lambda: "right")
        assert gc.collect() >= 0 and len(_host.handlers)
        await session.close()
        del session
        assert not len(_host.handlers)
        fleet = caproot.Fleet({"local": caproot.Executor(guarded, token=token)})
        async with caproot.connect(fleet=fleet) as skills:
            assert len(await skills.list()) == 3
        tokens[0] = "wrong"
        for arguments in ({}, {"token": "wrong"}, {"token": token}):
            with pytest.raises(caproot.Refused) as refused:
                await caproot.connect(guarded, **arguments)
            assert refused.value.code == "NOT_ALLOWED" and "wrong" not in str(refused.value)

    run(work())


def test_local_directories(run: Any, demo: str, tree: Path) -> None:
    write_skill(tree, "triage-logs")
    sources = [caproot.LocalSkills({"mine": tree})]

    async def work() -> None:
        async with caproot.connect(demo, sources=sources) as skills:
            listed = {skill.package: skill for skill in await skills.list()}
            # The executor's skill of the same name comes first.
            assert "skill://mine/triage-logs" not in listed
            first = listed["skill://mine/first"]
            assert (first.authority.kind, first.authority.id) == ("local", "mine")
            assert (await skills.read(first)).endswith("# Body\n")

        (mistake,) = (await failed(caproot.LocalSkills({"x" * 300: tree}))).mistakes
        assert "cannot use the local directories" in mistake

    async def failed(source: caproot.LocalSkills) -> caproot.ConfigError:
        with pytest.raises(caproot.ConfigError) as error:
            await caproot.connect(demo, sources=[source])
        return error.value

    run(work())


def test_local_directories_need_no_daemon(
    run: Any, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    async def work() -> None:
        async with caproot.connect(sources=[caproot.LocalSkills({"mine": tree})]) as skills:
            assert [skill.name for skill in await skills.list()] == ["first"]

    run(work())
    monkeypatch.setattr("caproot._host.find_programs", lambda: iter([]))
    with pytest.raises(caproot.ConfigError, match="neither in the wheel nor on PATH"):
        run(work())


def test_presets_are_local_directories(
    run: Any, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(tmp_path / "home/.claude/skills", "of-claude")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tree)

    async def work() -> None:
        async with caproot.connect(sources=[caproot.LocalSkills(presets=["claude"])]) as skills:
            assert [skill.package for skill in await skills.list()] == ["skill://claude/of-claude"]
        with pytest.raises(caproot.ConfigError, match="nothing"):
            await caproot.connect(sources=[caproot.LocalSkills(presets=["nothing"])])

    run(work())
    with pytest.raises(caproot.ConfigError, match="a directory or a preset"):
        caproot.LocalSkills()


def test_sites(run: Any) -> None:
    main = "---\nname: pdf\ndescription: Fills forms.\n---\n# Body\n"
    entry = {
        "name": "pdf",
        "description": "Fills forms.",
        "url": "pdf/SKILL.md",
        "digest": f"sha256:{hashlib.sha256(main.encode()).hexdigest()}",
    }
    files = {"index.json": json.dumps({"skills": [entry]}), "pdf/SKILL.md": main}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = files.get(self.path.removeprefix("/.well-known/agent-skills/"))
            self.send_response(200 if text else 404)
            self.end_headers()
            self.wfile.write((text or "").encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    host = f"127.0.0.1:{server.server_port}"

    async def work() -> None:
        site = caproot.Site(f"http://{host}", allow_private=True)
        async with caproot.connect(sources=[site]) as skills:
            (skill,) = await skills.list()
            assert (skill.authority.kind, skill.package) == ("site", f"site://{host}/pdf")
            assert (await skills.read("pdf")).endswith("# Body\n")
        with pytest.raises(caproot.ConfigError, match="not a globally routable address"):
            await caproot.connect(sources=[caproot.Site(host)])

    try:
        run(work())
    finally:
        server.shutdown()
        server.server_close()


def test_mcp_servers(run: Any, demo: str, tmp_path: Path) -> None:
    from caproot._program import find_program

    command, arguments = find_program(), ["mcp", "--endpoint", demo]

    async def work() -> None:
        server = caproot.McpServer("docs", command=command, args=arguments, max_age_seconds=0)
        roots: list[Any] = []
        async with caproot.connect(demo, roots=roots, sources=[server]) as skills:
            listed = await skills.list()
            assert {skill.authority.kind for skill in listed} == {"mcp"} and len(listed) == 3
            text = await skills.read("triage-logs", "references/patterns.md")
            assert text == (DEMO / "triage-logs/references/patterns.md").read_text()

        with pytest.raises(caproot.ConfigError) as error:
            await caproot.connect(
                demo,
                sources=[
                    caproot.McpServer("web", url="${CAPROOT_NO_SUCH_VARIABLE}"),
                    caproot.McpServer("twice", command="x"),
                    caproot.McpServer("twice", command="x"),
                ],
            )
        assert len(error.value.mistakes) == 2
        with pytest.raises(caproot.ConfigError, match="a name has 1 to 64"):
            await caproot.connect(demo, sources=[caproot.McpServer("a b", command="x")])
        with pytest.raises(caproot.ConfigError, match="either url or command"):
            caproot.McpServer("docs")

    run(work())


def test_the_token_of_an_mcp_server_may_be_a_function(run: Any, demo: str) -> None:
    asked: list[int] = []

    async def token() -> str:
        asked.append(1)
        return "secret"

    async def work() -> None:
        server = caproot.McpServer("web", url="http://127.0.0.11:9/mcp", token=token)
        async with caproot.connect(demo, sources=[server], start_timeout=1) as skills:
            assert "web" in skills.instruction_text()["warnings"][0]

    run(work())
    assert asked


def test_plugins(run: Any, copied_demo: Path) -> None:
    manifest = copied_demo / "review-kit/.codex-plugin/plugin.json"
    declared = json.loads(manifest.read_text())
    declared["requires"] = {"hostCapabilities": ["tray"]}
    manifest.write_text(json.dumps(declared))

    async def work(address: str) -> None:
        async with caproot.connect(address, plugins=True) as skills:
            (plugin,) = skills.plugins()
            assert plugin["plugin"]["hostCapabilities"] == ["tray"]
            assert plugin["plugin"]["name"] == "review-kit" and plugin["sourceKind"] == "executor"
            changes = skills.plugin_changes()
            text = manifest.read_text()
            version = json.loads(text)["version"]
            new = manifest.with_name("new")
            new.write_text(text.replace(version, "9.9.9"))
            new.rename(manifest)
            change = await anext(aiter(changes))
            assert change["changed"][0]["plugin"]["version"] == "9.9.9"

    with testing.serve(copied_demo) as daemon:
        run(work(daemon.address))


def test_generated_stubs_of_a_program_are_found(tmp_path: Path) -> None:
    stubs = tmp_path / "caproot/v1"
    stubs.mkdir(parents=True)
    (stubs / "skill_pb2.py").write_text("FOUND = True")
    program = "import caproot; from caproot.v1.skill_pb2 import FOUND; print(FOUND, caproot.__version__)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"True {caproot.__version__}\n"
