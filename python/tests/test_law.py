"""The same requests through a session in Rust, through `caproot call` and through the package."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import Any

import pytest
from conftest import TOP

import caproot
from caproot._program import find_program

PROGRAM = TOP / "target/debug/examples/call_lines"
Request = tuple[str, dict[str, Any]]


async def make_requests(demo: str) -> list[Request]:
    async with caproot.connect(demo) as skills:
        listing, read, search = (tool["name"] for tool in skills.tools)
        listed = await skills.list()
    made: list[Request] = [(listing, {}), (listing, {"cursor": "x"}), ("none", {})]
    for skill in listed:
        authority = {"kind": "executor", "id": "demo"}
        for resource in ("", "/SKILL.md", "/references/patterns.md", "/none", "/%2e", "//", "/../x"):
            path = skill.package + resource if resource else ""
            made.append((read, {"authority": authority, "package": skill.package, "resource": path}))
        for arguments in (
            {},
            {"authority": authority, "package": skill.package, "resource": "", "cursor": "x"},
            {"authority": {"kind": "local", "id": "demo"}, "package": skill.package, "resource": ""},
            {"authority": authority, "package": skill.package + "x", "resource": ""},
            {"authority": authority, "package": 5, "resource": ""},
        ):
            made.append((read, arguments))
    for query in ("log triage errors", "triagelogs", "please", "", "x" * 401):
        made.append((search, {"query": query}))
    return [*made, (read, {"more": 1})]


async def call_package(demo: str, requests: list[Request]) -> list[caproot.ToolResult]:
    async with caproot.connect(demo) as skills:
        return [await skills.call(name, arguments) for name, arguments in requests]


def run_lines(command: list[str], requests: list[dict[str, Any]]) -> list[str]:
    """Runs a program with a line for each request, and returns its lines."""
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


def test_three_interfaces_give_the_same_bytes(demo: str) -> None:
    if not PROGRAM.exists():
        pytest.fail("build the program by `cargo build --example call_lines`")
    requests = asyncio.run(make_requests(demo))
    assert len(requests) == 45
    by_package = asyncio.run(call_package(demo, requests))

    calls = [{"tool": name, "arguments": arguments} for name, arguments in requests]
    by_rust = run_lines([str(PROGRAM), demo, "demo"], calls)
    lines = run_lines(
        [find_program(), "call", "--endpoint", demo],
        [{"id": number, "method": "call", **call} for number, call in enumerate(calls)],
    )
    by_command = {json.loads(line)["id"]: line for line in lines}
    assert len(by_rust) == len(by_command) == 45
    # Cursors are the same, too, as the daemon is the same.
    for number, request in enumerate(requests):
        result = by_package[number]
        assert result.text == by_rust[number], request
        ok, external = json.dumps(result.ok), json.dumps(result.external)
        answer = f'{{"id":{number},"success":{ok},"externalContext":{external},"result":{result.text}}}'
        assert answer == by_command[number], request
