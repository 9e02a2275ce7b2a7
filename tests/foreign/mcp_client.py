"""Lists, reads and verifies the skills of `caproot mcp` with two MCP clients, the Python SDK's and
FastMCP's, over HTTP and stdio. Also checks a client with an older protocol version, and
notifications of a change.

    mcp_client.py CAPROOT ENDPOINT SELECTED SCRATCH URL

SELECTED is a file with selected roots. One of them is SCRATCH, a directory whose skills this script
may change. URL is a `caproot mcp --http` with the same roots.
"""

import asyncio
import base64
import hashlib
import json
import pathlib
import subprocess
import sys
from typing import Any, Literal

import mcp_types as types
from fastmcp import Client as FastClient
from fastmcp.client.transports import StdioTransport
from fastmcp.skills.client import SkillsClientExtension
from mcp import MCPError, StdioServerParameters
from mcp.client import Client
from mcp.client.extension import advertise

SKILLS = "io.modelcontextprotocol/skills"
# Largest page in bytes, far below the limits of clients.
LARGEST = 1 << 20


class ListSkills(types.Request[types.PaginatedRequestParams, Literal["skills/list"]]):
    method: Literal["skills/list"] = "skills/list"
    params: types.PaginatedRequestParams


class SkillsPage(types.PaginatedResult):
    skills: list[dict[str, Any]]


class DirectoryParams(types.PaginatedRequestParams):
    uri: str


class ReadDirectory(types.Request[DirectoryParams, Literal["resources/directory/read"]]):
    method: Literal["resources/directory/read"] = "resources/directory/read"
    params: DirectoryParams


def content(result):
    """Returns the bytes of a file, from text or base64."""
    contents = result.contents if hasattr(result, "contents") else result
    (one,) = contents
    if isinstance(one, types.TextResourceContents):
        return one.text.encode()
    return base64.b64decode(one.blob)


def verify(file, data):
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    assert (len(data), digest) == (file["size"], file["digest"]), file


async def read_pages(ask):
    """Reads all pages of a list."""
    cursor, seen = None, []
    while True:
        page = await ask(cursor)
        assert len(page.model_dump_json(by_alias=True)) < LARGEST
        seen.append(page)
        cursor = page.next_cursor
        if not cursor:
            return seen


async def list_resources(client):
    listed = await read_pages(lambda cursor: client.list_resources(cursor=cursor))
    return [resource for page in listed for resource in page.resources]


async def check_sdk_client(server, expected):
    """Checks skills, files, directories and errors with the Python SDK's client."""
    async with Client(server, extensions=[advertise(SKILLS)]) as client:
        assert client.protocol_version == "2026-07-28", client.protocol_version
        assert client.server_capabilities.extensions[SKILLS] == {"directoryRead": True}
        listed = await list_resources(client)
        uris = [resource.uri for resource in listed]
        assert len(set(uris)) == len(uris) == expected, (len(set(uris)), len(uris), expected)

        def page(cursor):
            request = ListSkills(params=types.PaginatedRequestParams(cursor=cursor))
            return client.session.send_request(request, SkillsPage)

        skills = [skill for one in await read_pages(page) for skill in one.skills]
        assert {skill["uri"] for skill in skills} <= set(uris)
        by_uri = {resource.uri: resource for resource in listed}
        files = 0
        for skill in skills:
            front, main = skill["frontmatter"], by_uri[skill["uri"]]
            assert (main.name, main.description) == (front["name"], front["description"])
            assert skill["uri"].split("/")[-2] == front["name"], skill["uri"]
            assert skill["uri"] in [file["uri"] for file in skill["resources"]]
            assert len(skill["resources"]) <= 512
            for file in skill["resources"]:
                verify(file, content(await client.read_resource(file["uri"])))
                files += 1
        await check_directories(client, skills[0])
        for uri in ["skill://none/SKILL.md", "test://x", skills[0]["uri"] + "x"]:
            try:
                await client.read_resource(uri)
                raise AssertionError(uri)
            except MCPError as error:
                assert error.error.code == -32602 and error.error.data["uri"] == uri, error
        return len(skills), files


async def check_directories(client, skill):
    """Checks that the directories of a skill contain exactly its files."""
    found, waiting = set(), [skill["uri"].removesuffix("/SKILL.md")]
    while waiting:
        directory = waiting.pop()

        def page(cursor):
            params = DirectoryParams(uri=directory, cursor=cursor)
            return client.session.send_request(ReadDirectory(params=params), types.ListResourcesResult)

        for one in await read_pages(page):
            for child in one.resources:
                assert child.uri.rpartition("/")[0] == directory
                is_directory = child.mime_type == "inode/directory"
                (waiting.append if is_directory else found.add)(child.uri)
    assert found == {file["uri"] for file in skill["resources"]}


async def check_prompts(server, expected):
    """Checks that skills for people are prompts, and readable by their exact URI."""
    async with Client(server, extensions=[advertise(SKILLS)]) as client:
        listed = await read_pages(lambda cursor: client.list_prompts(cursor=cursor))
        names = [prompt.name for page in listed for prompt in page.prompts]
        assert len(set(names)) == len(names) == expected, (names, expected)
        for name in names:
            head, text = (await client.get_prompt(name)).messages
            assert head.role == text.role == "user" and head.content.text, head
            resource = text.content.resource
            data = content(await client.read_resource(resource.uri))
            assert data == resource.text.encode(), resource.uri


async def check_older_client(server, expected):
    """Checks that a client with an older protocol version sees plain resources."""
    async with Client(server, mode="legacy") as client:
        assert client.protocol_version == "2025-11-25", client.protocol_version
        listed = await list_resources(client)
        assert len(listed) == expected
        for resource in listed[:20]:
            data = content(await client.read_resource(resource.uri))
            assert len(data) == resource.size
        try:
            await client.read_resource("skill://none/SKILL.md")
            raise AssertionError("a missing skill was read")
        except MCPError as error:
            assert error.error.code == -32002, error


async def check_fastmcp_client(server):
    """Checks skills and files with FastMCP's client."""
    async with FastClient(server, extensions=[SkillsClientExtension()]) as client:
        files = 0
        skills = await client.list_skills()
        for skill in skills:
            assert await client.get_skill(skill.uri) == skill
            for file in skill.resources:
                file = file.model_dump()
                verify(file, content(await client.read_resource(file["uri"])))
                files += 1
        return len(skills), files


async def find_edited_skill(client):
    """Returns the URI of the skill that `check_change` creates, or None if it is not listed."""
    return next((r.uri for r in await list_resources(client) if r.name == "edited"), None)


async def check_change(server, scratch, url):
    """Checks that a subscriber is notified of an edit. Removes the skill afterwards, and waits until
    the server at `url` no longer lists it."""
    directory = scratch / "edited"
    directory.mkdir()
    main = directory / "SKILL.md"
    text = "---\nname: edited\ndescription: {}\n---\n"
    main.write_text(text.format("One."))
    try:
        async with Client(server) as client:
            while not (named := await find_edited_skill(client)):
                await asyncio.sleep(0.05)
            listen = client.listen(resources_list_changed=True, resource_subscriptions=[named])
            async with asyncio.timeout(60), listen as changes:
                main.write_text(text.format("Two."))
                kinds = set()
                async for change in changes:
                    kinds.add(type(change).__name__)
                    if len(kinds) == 2:
                        break
            assert b"Two." in content(await client.read_resource(named, cache_mode="bypass"))
            return sorted(kinds)
    finally:
        main.unlink()
        directory.rmdir()
        async with Client(url) as client:
            while await find_edited_skill(client):
                await asyncio.sleep(0.05)


async def main():
    caproot, endpoint, selected, scratch, url = sys.argv[1:]
    flags = ["--endpoint", endpoint, "--selected", selected]
    listed = subprocess.run(
        [caproot, "list", "--all", *flags, "--output", "json"], stdout=subprocess.PIPE, check=True
    )
    skills = json.loads(listed.stdout)["skills"]
    expected = sum("notOffered" not in skill for skill in skills)
    people = [skill for skill in skills if skill.get("notOffered") == "NOT_OFFERED_PEOPLE_ONLY"]
    closed = sum(skill.get("userInvocable", False) for skill in people)
    for transport, server in [
        ("HTTP", url),
        ("stdio", StdioServerParameters(command=caproot, args=["mcp", *flags])),
    ]:
        skills, files = await check_sdk_client(server, expected)
        print(f"the SDK's client over {transport}: {skills} of {expected} skills, {files} digests match")
        assert 0 < skills <= expected
        await check_prompts(server, closed)
        print(f"prompts over {transport}: {closed}")
        await check_older_client(server, expected)
        print(f"an older client over {transport}: {expected} resources")
        print(f"a change over {transport}: {await check_change(server, pathlib.Path(scratch), url)}")
    for transport, server in [("HTTP", url), ("stdio", StdioTransport(caproot, ["mcp", *flags]))]:
        skills, files = await check_fastmcp_client(server)
        print(f"FastMCP's client over {transport}: {skills} skills, {files} digests match")


asyncio.run(main())
