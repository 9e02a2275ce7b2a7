#!/usr/bin/env python3
"""The same as `grpcio_client.py`, in short, with grpcio's asyncio half, over one channel and without
an option: health, all pages of a list, one main resource, an error with its details, a change.

    grpcio_aio_client.py ADDRESS SELECTED.json SCRATCH
"""

import asyncio
import json
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from grpcio_client import (
    BAD_HANDLE, DEADLINE, SERVICE, Change, Reflection, Service, check, check_refused, on_disk,
    scratch_root, way,
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
        asked = health_pb2.HealthCheckRequest(service=SERVICE)
        status = (await health.Check(asked, timeout=DEADLINE)).status
        check(status == health_pb2.HealthCheckResponse.SERVING, f"health {status}")

        service = Service(channel, pool)
        skills = [skill async for skill in list_skills(service, selected)]
        check(len(skills) > 2, f"{len(skills)} skills are no two pages")
        skill = skills[-1]
        root = roots[skill.authority.id]
        request = {"root": root, "package": skill.package, "maxBytes": 1 << 20}
        page = await service.call("ReadResource", request)
        check(page.contents.encode() == on_disk(root, skill.main_resource), f"{skill.package}")

        try:
            await service.call("ReadResource", BAD_HANDLE)
            check(False, "a bad handle was taken")
        except grpc.RpcError as error:
            check_refused(error)

        change = Change(scratch)
        stream = service.stream("WatchSkills", scratch_root(scratch))
        async for event in stream:
            if change.is_seen(event):
                break
        else:
            check(False, "the stream ended before the change")
        stream.cancel()
        print(
            f"grpcio's aio over {way(address)}: {len(skills)} skills in pages of 2, a main resource "
            "as on disk, an error with its details, a change as it was made"
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
