"""The program `caproot`: that of the wheel, else the first on PATH that has the version of this package."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from collections.abc import Iterator

from ._version import __version__
from ._errors import ConfigError, ProgramError

VERSION = __version__
"""Version of this package, and so of its program."""
_VERSION_TIMEOUT = 5.0
"""Seconds within which a program must say its version."""


def find_programs() -> Iterator[str]:
    """Returns the programs of this machine: that of the wheel, then those on PATH."""
    name = "caproot.exe" if os.name == "nt" else "caproot"
    here = os.path.dirname(os.path.abspath(__file__))
    # The wheel puts the program where the scripts of its installation are: of the environment, of the user, or of
    # `pip install --target`.
    places = [
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user")),
        os.path.join(os.path.dirname(here), "bin"),
        *os.environ.get("PATH", os.defpath).split(os.pathsep),
    ]
    for place in dict.fromkeys(places):
        path = os.path.join(place or os.curdir, name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            yield path


def find_program() -> str:
    """Returns the path of the program."""
    for path in find_programs():
        return path
    raise missing_program([])


def ask_version(path: str) -> str | None:
    """Returns the version of a program, or `None` if it says none."""
    command = [path, "--version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=_VERSION_TIMEOUT).stdout
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"caproot (\S+)", said)
    return found and found[1]


def missing_program(others: list[tuple[str, str | None]]) -> ProgramError | ConfigError:
    """Returns the error of a machine without the program. `others` are the programs of other versions."""
    step = f"install the wheel of caproot {VERSION} for this platform, or put caproot {VERSION} on PATH"
    if not others:
        return ConfigError([f"the program `caproot` is neither in the wheel nor on PATH: {step}"])
    found = ", ".join(f"{path} is {version or 'of an older version'}" for path, version in others)
    return ProgramError(f"the program caproot has the wrong version: {found}; {step}")
