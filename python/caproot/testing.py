"""Daemons for tests."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from ._check import check_type
from ._daemon import Daemon

__all__ = ["Served", "serve"]


class Served:
    """Daemon of a test."""

    address: str
    """Address for `caproot.connect`."""

    def __init__(self, address: str) -> None:
        self.address = address


@contextmanager
def serve(*paths: str | os.PathLike[str]) -> Generator[Served]:
    """Serves directories by the program `caproot` on a temporary socket: `with serve("skills") as daemon:`.

    The name of each directory is the id of its root. Raises `ConfigError` if there is no program, or if
    the daemon refuses a directory.
    """
    roots = []
    for path in paths:
        check_type("path", path, str, os.PathLike)
        place = os.path.abspath(os.fspath(path))
        # With an id, a path may contain `=`.
        roots.append(f"{os.path.basename(place)}={place}")
    daemon = Daemon([f"--root={root}" for root in roots])
    try:
        daemon.wait_until_ready()
        yield Served(daemon.address)
    finally:
        daemon.close()
