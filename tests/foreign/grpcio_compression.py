#!/usr/bin/env python3
"""Measures compression between a running caproot and grpcio with a relay that counts bytes. Lists
skills with the defaults of grpcio, which offer gzip, then with compressed requests, and then without
an offer.

    grpcio_compression.py SOCKET SCRATCH [SKILLS]

SOCKET is the path of the daemon's socket. SCRATCH is a directory below an allowed directory, in which
SKILLS skills are created, by default 300.
"""

import os
import random
import socket
import sys
import threading
import time

import grpc

from grpcio_client import Reflection, Service, check, scratch_root

WORDS = """skill reads writes files logs finds first cause long review diff change branch pull request
changelog release notes deploy service database table query index form report chart slide image
test build failure fix lint format search replace rename when asked use for before after every only
user team project repository issue ticket customer order invoice summary draft email meeting""".split()


class Relay:
    """Relay to another socket that counts the bytes in each direction."""

    def __init__(self, path, to):
        self.sent = self.received = 0
        self.to = to
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.to)
            for ends in ((client, server, "sent"), (server, client, "received")):
                threading.Thread(target=self.forward, args=ends, daemon=True).start()

    def forward(self, source, target, count):
        try:
            while data := source.recv(1 << 16):
                setattr(self, count, getattr(self, count) + len(data))
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            end.close()


def make_skills(scratch, count):
    rng = random.Random(1)
    for number in range(count):
        directory = os.path.join(scratch, f"skill-{number:05}")
        os.makedirs(directory, exist_ok=True)
        text = " ".join(rng.choice(WORDS) for _ in range(rng.randint(15, 45)))
        with open(os.path.join(directory, "SKILL.md"), "w", encoding="utf-8") as file:
            file.write(f"---\nname: skill-{number:05}\ndescription: {text}.\n---\n")


def list_skills(service, scratch, count):
    request = {**scratch_root(scratch), "consistency": "CONSISTENCY_FRESH"}
    pages = []
    while True:
        page = service.call("ListSkills", request)
        pages.append(page)
        if not page.next_page_token:
            break
        request["pageToken"] = page.next_page_token
    received_skills = sum(len(page.skills) for page in pages)
    check(received_skills == count, f"{received_skills} skills of {count}")
    return b"".join(page.SerializeToString(deterministic=True) for page in pages)


def main(path, scratch, count="300"):
    count = int(count)
    make_skills(scratch, count)
    relay_path = os.path.join(scratch, "..", "relay.sock")
    relay = Relay(relay_path, path)
    # Only the algorithm identity is enabled.
    plain = [("grpc.compression_enabled_algorithms_bitset", 1)]
    clients = {
        "defaults": {},
        "requests in gzip": {"compression": grpc.Compression.Gzip},
        "no offer": {"options": plain},
    }
    received, seen = {}, set()
    for name, options in clients.items():
        with grpc.insecure_channel(f"unix:{relay_path}", **options) as channel:
            service = Service(channel, Reflection(channel, "v1").pool())
            list_skills(service, scratch, count)
            before, sent, start = relay.received, relay.sent, time.monotonic()
            rounds = 5
            for _ in range(rounds):
                skills = list_skills(service, scratch, count)
            took = (time.monotonic() - start) / rounds * 1000
            received[name] = (relay.received - before) // rounds
            sent_bytes = (relay.sent - sent) // rounds
            seen.add(skills)
            print(f"{name}: {sent_bytes} bytes to the daemon, {received[name]} back, {took:.1f} ms")
    os.unlink(relay_path)
    check(len(seen) == 1, "compressed and plain lists differ")
    for name in ("defaults", "requests in gzip"):
        is_halved = received[name] * 2 < received["no offer"]
        check(is_halved, f"{name}: compression saves less than half of the bytes")
    check(received["no offer"] >= len(skills), "a list was compressed without an offer")
    saved = received["no offer"] / received["defaults"]
    print(f"grpcio and gzip: a list of {count} skills in 1/{saved:.1f} of the bytes")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
