#!/usr/bin/env python3
"""Client with grpcio that gets only the address: the messages come from server reflection, v1 and
v1alpha, and no channel option is set. Lists every skill of a selection, reads every main resource in
pages and compares it with the file. Checks digests of catalogs, an error with its details, and a change.

    grpcio_client.py ADDRESS SELECTED.json SCRATCH [MAX_BYTES] [--tls CA CERTIFICATE KEY]

ADDRESS is a listener of `caproot serve`: HOST:PORT or unix:/PATH. SELECTED.json contains
{"selectedCapabilityRoots": [...]} with native paths on this machine. SCRATCH is a directory below an
allowed directory, in which a skill is written. With --tls, CA must contain the authority of the
daemon's certificate, and the client presents CERTIFICATE. All three files are PEM. Needs grpcio,
grpcio-reflection, grpcio-health-checking, grpcio-status and protobuf.
"""

import hashlib
import itertools
import json
import os
import sys
import urllib.parse
import uuid

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_status import rpc_status

SERVICE = "caproot.v1.CapabilityService"
DEADLINE = 60


class Reflection:
    """Server reflection in one version. Both versions have the same messages on the wire."""

    def __init__(self, channel, version):
        self.call = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        self.files = {}

    def request(self, **question):
        message = reflection_pb2.ServerReflectionRequest(**question)
        (answer,) = self.call(iter([message]), timeout=DEADLINE)
        check(not answer.HasField("error_response"), f"{question}: {answer.error_response}")
        return answer

    def services(self):
        listed = self.request(list_services="").list_services_response.service
        return {service.name for service in listed}

    def load_files(self, **question):
        for raw in self.request(**question).file_descriptor_response.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(raw)
            if file.name not in self.files:
                self.files[file.name] = file
                for name in file.dependency:
                    if name not in self.files:
                        self.load_files(file_by_filename=name)

    def pool(self):
        """Returns a descriptor pool for the service."""
        self.load_files(file_containing_symbol=SERVICE)
        pool, added = descriptor_pool.DescriptorPool(), set()

        def add(name):
            if name not in added:
                added.add(name)
                for dependency in self.files[name].dependency:
                    add(dependency)
                pool.Add(self.files[name])

        for name in self.files:
            add(name)
        return pool


def transport(address):
    return "a Unix socket" if address.startswith("unix:") else "TCP"


def check(condition, message):
    if not condition:
        sys.exit(f"grpcio_client: {message}")


class Service:
    """Service on a sync or aio channel. Takes requests as dicts."""

    def __init__(self, channel, pool):
        self.channel = channel
        self.service = pool.FindServiceByName(SERVICE)

    def call(self, method, request):
        return self._begin(self.channel.unary_unary, method, request)

    def stream(self, method, request):
        return self._begin(self.channel.unary_stream, method, request)

    def _begin(self, kind, method, request):
        described = self.service.FindMethodByName(method)
        input_class = message_factory.GetMessageClass(described.input_type)
        output_class = message_factory.GetMessageClass(described.output_type)
        stub = kind(
            f"/{SERVICE}/{method}",
            request_serializer=input_class.SerializeToString,
            response_deserializer=output_class.FromString,
        )
        return stub(json_format.ParseDict(request, input_class()), timeout=DEADLINE)


# The package handle is invalid.
BAD_HANDLE = {"root": {"id": "x"}, "package": "skill://x/../y"}


def check_error(error):
    """Checks the error for BAD_HANDLE and its details."""
    check(error.code() == grpc.StatusCode.INVALID_ARGUMENT, f"a bad handle gave {error}")
    found = {}
    for detail in rpc_status.from_call(error).details:
        for kind in (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest):
            if detail.Is(kind.DESCRIPTOR):
                found[kind] = kind()
                detail.Unpack(found[kind])
    info, bad = found[error_details_pb2.ErrorInfo], found[error_details_pb2.BadRequest]
    check((info.domain, info.reason) == ("caproot", "INVALID_ARGUMENT"), f"{info}")
    check([field.field for field in bad.field_violations] == ["package"], f"{bad}")


def scratch_root(scratch):
    location = {"type": "environment", "environmentId": "local", "path": os.path.abspath(scratch)}
    return {"selectedCapabilityRoots": [{"id": "scratch", "location": location}]}


def write_skill(scratch):
    """Saves a skill by rename, as editors do. Returns its new description."""
    description = f"Changed {uuid.uuid4()}."
    directory = os.path.join(scratch, "changing")
    os.makedirs(directory, exist_ok=True)
    draft = os.path.join(directory, ".draft")
    with open(draft, "w", encoding="utf-8") as file:
        file.write(f"---\nname: changing\ndescription: {description}\n---\n")
    os.rename(draft, os.path.join(directory, "SKILL.md"))
    return description


class Change:
    """Change of a skill during a stream: writes the skill after the first state, and detects it."""

    def __init__(self, scratch):
        self.scratch = scratch
        self.description = None

    def is_seen(self, event):
        if event.WhichOneof("event") == "synced" and self.description is None:
            self.description = write_skill(self.scratch)
        if event.WhichOneof("event") == "delta" and self.description is not None:
            return any(skill.description == self.description for skill in event.delta.upserted)
        return False


def list_skills(service, selected):
    token = ""
    while True:
        page = service.call("ListSkills", {**selected, "pageSize": 50, "pageToken": token})
        check(page.ByteSize() < 1 << 20, f"a page of {page.ByteSize()} bytes")
        for root in page.roots:
            check(root.state == 1, f"root {root.id} is not ready: {root.message}")
        yield from page.skills
        token = page.next_page_token
        if not token:
            return


def check_digests(service, selected):
    """Computes the digest of each root as root.proto describes it, and names the catalogs in a list."""
    request = {**selected, "view": "SKILL_VIEW_BASIC"}
    hashes = {root["id"]: [] for root in selected["selectedCapabilityRoots"]}
    digests, token = {}, ""
    while True:
        page = service.call("ListSkills", {**request, "pageToken": token})
        messages = [(1, skill.authority.id, skill) for skill in page.skills]
        messages += [(4, problem.root_id, problem) for problem in page.diagnostics]
        for kind, root, message in messages:
            encoded = bytes([kind]) + message.SerializeToString(deterministic=True)
            hashes[root].append(hashlib.sha256(encoded).digest())
        digests.update({root.id: root.catalog_digest for root in page.roots})
        token = page.next_page_token
        if not token:
            break
    for root, found in hashes.items():
        groups = itertools.groupby(sorted(found), key=lambda digest: digest[0])
        joined = b"".join(hashlib.sha256(b"".join(group)).digest() for _, group in groups)
        computed = hashlib.sha256(joined).hexdigest()
        check(digests[root] == f"sha256:{computed}", f"{root} has the digest {digests[root]}")
    known = [{"rootId": root, "catalogDigest": digest} for root, digest in digests.items()]
    page = service.call("ListSkills", {**request, "knownCatalogs": known})
    check(all(root.unchanged for root in page.roots), f"known catalogs changed: {page.roots}")
    check(not page.skills and not page.diagnostics, "known catalogs were sent again")


def read(service, root, skill, max_bytes):
    content, cursor, digest = b"", "", None
    while True:
        request = {"root": root, "package": skill.package, "cursor": cursor, "maxBytes": max_bytes}
        page = service.call("ReadResource", request)
        body = page.contents.encode() if page.WhichOneof("body") == "contents" else page.data
        check(len(body) <= max_bytes, f"{skill.package}: a page of {len(body)} bytes")
        check(digest in (None, page.digest), f"{skill.package}: pages of two versions")
        content, cursor, digest = content + body, page.next_cursor, page.digest
        if not cursor:
            return content


def read_file(root, handle):
    prefix = f"skill://{urllib.parse.quote(root['id'], safe='')}/"
    check(handle.startswith(prefix), f"{handle} is not below {prefix}")
    relative = urllib.parse.unquote_to_bytes(handle[len(prefix):])
    with open(os.path.join(os.fsencode(root["location"]["path"]), relative), "rb") as file:
        return file.read()


def watch(service, scratch):
    stream = service.stream("WatchSkills", scratch_root(scratch))
    change = Change(scratch)
    check(any(change.is_seen(event) for event in stream), "the stream ended before the change")
    stream.cancel()


def open_channel(address, tls):
    if not tls:
        return grpc.insecure_channel(address)
    ca, certificate, key = (open(file, "rb").read() for file in tls)
    credentials = grpc.ssl_channel_credentials(ca, key, certificate)
    return grpc.secure_channel(address, credentials)


def main(address, selected, scratch, max_bytes="4096", tls=()):
    with open(selected, encoding="utf-8") as file:
        selected = json.load(file)
    roots = {root["id"]: root for root in selected["selectedCapabilityRoots"]}
    with open_channel(address, tls) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", SERVICE):
            status = health.Check(health_pb2.HealthCheckRequest(service=name), timeout=DEADLINE)
            check(status.status == health_pb2.HealthCheckResponse.SERVING, f"health of {name!r}")

        for version in ("v1", "v1alpha"):
            reflection = Reflection(channel, version)
            services = reflection.services()
            for wanted in (SERVICE, "grpc.health.v1.Health"):
                check(wanted in services, f"reflection {version} lists {services}")
            service = Service(channel, reflection.pool())
            executor = service.call("GetExecutor", {})
            check("local" in executor.environment_ids, f"environments {executor.environment_ids}")

        skills = bytes_read = 0
        for skill in list_skills(service, selected):
            root = roots[skill.authority.id]
            content = read(service, root, skill, int(max_bytes))
            check(content == read_file(root, skill.main_resource), f"{skill.package} differs")
            skills, bytes_read = skills + 1, bytes_read + len(content)
        check(skills > 0, "no skill was listed")
        check_digests(service, selected)

        try:
            service.call("ReadResource", BAD_HANDLE)
            check(False, "a bad handle was accepted")
        except grpc.RpcError as error:
            check_error(error)
        watch(service, scratch)
        print(
            f"grpcio over {transport(address)}: {skills} skills, {bytes_read} bytes in pages of "
            f"{max_bytes}, all equal to the files; an error with its details; known catalogs; a change"
        )


if __name__ == "__main__":
    arguments, tls = sys.argv[1:], []
    if "--tls" in arguments:
        at = arguments.index("--tls")
        arguments, tls = arguments[:at], arguments[at + 1:]
    if len(arguments) not in (3, 4) or len(tls) not in (0, 3):
        sys.exit(__doc__)
    main(*arguments, tls=tls)
