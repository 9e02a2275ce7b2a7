#!/usr/bin/env python3
"""How a running caproot compresses a list for a stock Python client: through a relay that counts
what goes by, lists skills once as grpcio comes, which offers gzip, once with compressed requests, and
once by a client that offers nothing.

    grpcio_compression.py SOCKET SCRATCH [SKILLS]

SOCKET is the path of the daemon's socket; SCRATCH is a directory below an allowed one, in which the
skills are made, 300 if nothing else is said.
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
    """A socket that leads to another one, and counts the bytes each way."""

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
                threading.Thread(target=self.carry, args=ends, daemon=True).start()

    def carry(self, source, target, count):
        try:
            while data := source.recv(1 << 16):
                setattr(self, count, getattr(self, count) + len(data))
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            end.close()


def make_skills(scratch, count):
    chance = random.Random(1)
    for number in range(count):
        directory = os.path.join(scratch, f"skill-{number:05}")
        os.makedirs(directory, exist_ok=True)
        text = " ".join(chance.choice(WORDS) for _ in range(chance.randint(15, 45)))
        with open(os.path.join(directory, "SKILL.md"), "w", encoding="utf-8") as file:
            file.write(f"---\nname: skill-{number:05}\ndescription: {text}.\n---\n")


def listed(service, scratch, count):
    request = {**scratch_root(scratch), "consistency": "CONSISTENCY_FRESH"}
    pages = []
    while True:
        page = service.call("ListSkills", request)
        pages.append(page)
        if not page.next_page_token:
            break
        request["pageToken"] = page.next_page_token
    got = sum(len(page.skills) for page in pages)
    check(got == count, f"{got} skills of {count}")
    return b"".join(page.SerializeToString(deterministic=True) for page in pages)


def main(path, scratch, count="300"):
    count = int(count)
    make_skills(scratch, count)
    relay_path = os.path.join(scratch, "..", "relay.sock")
    relay = Relay(relay_path, path)
    # Of the algorithms that grpcio knows, identity alone.
    plain = [("grpc.compression_enabled_algorithms_bitset", 1)]
    ways = {
        "as it comes": {},
        "requests in gzip": {"compression": grpc.Compression.Gzip},
        "no offer": {"options": plain},
    }
    received, seen = {}, set()
    for way, how in ways.items():
        with grpc.insecure_channel(f"unix:{relay_path}", **how) as channel:
            service = Service(channel, Reflection(channel, "v1").pool())
            listed(service, scratch, count)
            before, sent, start = relay.received, relay.sent, time.monotonic()
            rounds = 5
            for _ in range(rounds):
                skills = listed(service, scratch, count)
            took = (time.monotonic() - start) / rounds * 1000
            received[way] = (relay.received - before) // rounds
            asked = (relay.sent - sent) // rounds
            seen.add(skills)
            print(f"{way}: {asked} bytes to the daemon, {received[way]} back, {took:.1f} ms")
    os.unlink(relay_path)
    check(len(seen) == 1, "compressed and plain lists differ")
    for way in ("as it comes", "requests in gzip"):
        check(received[way] * 2 < received["no offer"], f"{way}: not half of the bytes are saved")
    check(received["no offer"] >= len(skills), "a list was compressed for who did not offer it")
    saved = received["no offer"] / received["as it comes"]
    print(f"grpcio and gzip: a list of {count} skills in 1/{saved:.1f} of the bytes")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
