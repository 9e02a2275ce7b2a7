#!/usr/bin/env python3
"""Client with grpcio's asyncio API, over one channel without options. Checks health, all pages of a
list, one main resource, an error with its details, and a change. A short form of `grpcio_client.py`.

    grpcio_aio_client.py ADDRESS SELECTED.json SCRATCH
"""

import asyncio
import json
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from grpcio_client import (
    BAD_HANDLE, DEADLINE, SERVICE, Change, Reflection, Service, check, check_error, read_file,
    scratch_root, transport,
)


async def list_skills(service, selected):
    token = ""
    while True:
        page = await service.call("ListSkills", {**selected, "pageSize": 2, "pageToken": token})
        for skill in page.skills:
            yield skill
        token = page.next_page_token
        if not token:
            return


async def run(address, selected, scratch, pool):
    roots = {root["id"]: root for root in selected["selectedCapabilityRoots"]}
    async with grpc.aio.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service=SERVICE)
        status = (await health.Check(request, timeout=DEADLINE)).status
        check(status == health_pb2.HealthCheckResponse.SERVING, f"health {status}")

        service = Service(channel, pool)
        skills = [skill async for skill in list_skills(service, selected)]
        check(len(skills) > 2, f"{len(skills)} skills do not fill two pages")
        skill = skills[-1]
        root = roots[skill.authority.id]
        request = {"root": root, "package": skill.package, "maxBytes": 1 << 20}
        page = await service.call("ReadResource", request)
        check(page.contents.encode() == read_file(root, skill.main_resource), f"{skill.package}")

        try:
            await service.call("ReadResource", BAD_HANDLE)
            check(False, "a bad handle was accepted")
        except grpc.RpcError as error:
            check_error(error)

        change = Change(scratch)
        stream = service.stream("WatchSkills", scratch_root(scratch))
        async for event in stream:
            if change.is_seen(event):
                break
        else:
            check(False, "the stream ended before the change")
        stream.cancel()
        print(
            f"grpcio's aio over {transport(address)}: {len(skills)} skills in pages of 2, a main resource "
            "equal to the file, an error with its details, and a change"
        )


def main(address, selected, scratch):
    with open(selected, encoding="utf-8") as file:
        selected = json.load(file)
    with grpc.insecure_channel(address) as channel:
        pool = Reflection(channel, "v1").pool()
    asyncio.run(run(address, selected, scratch, pool))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
