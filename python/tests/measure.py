"""Measures the package beside grpcio, with one daemon that serves the demo tree. Prints medians, and the descriptors of
1,000 sessions.

    measure.py

Run this at the top of a checkout, with the wheel and grpcio-tools installed.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc

import caproot
from caproot import testing

TOP = Path(__file__).resolve().parents[2]
ROUNDS = 2_000

# The `.proto` files are in the wheel.
messages, services = grpc.protos_and_services("caproot/v1/capability_service.proto")


def print_median(name: str, times: list[float]) -> None:
    """Prints the median of seconds in microseconds."""
    print(f"{name:28} {statistics.median(times) * 1e6:8.1f} µs")


async def measure(name: str, work: Callable[[], Awaitable[object]]) -> None:
    """Measures one operation after another."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        await work()
        times.append(time.perf_counter() - start)
    print_median(name, times[ROUNDS // 10 :])


async def measure_package(address: str) -> None:
    """Measures a list of the mirror, a read and an own tool."""
    tools = caproot.Tools()

    @tools.tool(description="Returns its argument.", input_schema={"type": "object"})
    async def echo(**arguments: object) -> object:
        return arguments

    async with caproot.connect(address, tools=tools) as skills:
        listing, read = (tool["name"] for tool in skills.tools[:2])
        authority = {"kind": "executor", "id": "demo"}
        arguments = {"authority": authority, "package": "skill://demo/triage-logs", "resource": ""}
        await measure("package: list", lambda: skills.call(listing, {}))
        await measure("package: read", lambda: skills.call(read, arguments))
        await measure("package: own tool", lambda: skills.call("echo", {"a": 1}))


async def measure_connect(address: str) -> None:
    """Measures the start of a session with its program, and in a running program."""
    first = []
    for _ in range(20):
        start = time.perf_counter()
        async with caproot.connect(address):
            first.append(time.perf_counter() - start)
    print_median("package: connect, first", first)

    fleet = caproot.Fleet({"local": address})
    async with caproot.connect(fleet=fleet):
        before = len(os.listdir("/proc/self/fd"))
        sessions, times = [], []
        for _ in range(1_000):
            start = time.perf_counter()
            sessions.append(await caproot.connect(fleet=fleet))
            times.append(time.perf_counter() - start)
        print_median("package: connect, more", times)
        print(f"{'descriptors of 1,000 more':28} {len(os.listdir('/proc/self/fd')) - before:8}")
        for session in sessions:
            await session.close()


async def measure_grpcio(address: str) -> None:
    """Measures the same calls without the package."""
    location = {"type": "environment", "environment_id": "local", "path": "published:demo"}
    root = {"id": "demo", "location": location}
    async with grpc.aio.insecure_channel(address) as channel:
        service = services.CapabilityServiceStub(channel)
        listing = messages.ListSkillsRequest(selected_capability_roots=[root])
        read = messages.ReadResourceRequest(root=root, package="skill://demo/triage-logs")
        await measure("grpcio: list", lambda: service.ListSkills(listing, timeout=30))
        await measure("grpcio: read", lambda: service.ReadResource(read, timeout=30))


def measure_import(module: str) -> None:
    """Measures an import in new interpreters, beyond the start of an interpreter."""
    program = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    times = []
    for _ in range(20):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        times.append(float(done.stdout))
    print_median(f"import {module}", times)


if __name__ == "__main__":
    with testing.serve(TOP / "tests/trees/demo") as daemon:
        asyncio.run(measure_package(daemon.address))
        asyncio.run(measure_connect(daemon.address))
        asyncio.run(measure_grpcio(daemon.address))
    for name in ("caproot", "caproot.sync", "asyncio", "grpc"):
        measure_import(name)
