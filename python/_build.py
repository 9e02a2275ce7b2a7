"""Build backend: the package, the `.proto` files and the program `caproot` in a wheel for every Python 3, and all crates
and the reference of the package in the sdist. Needs nothing but Python and the program, which has the schemas of
`caproot/_line_types.py`.

A wheel of an sdist has no program if the first `caproot` on PATH has the version of the package. Otherwise the program is
built with Rust. The environment variable CAPROOT_WHEEL_PROGRAM is the path of a program that is taken instead, and
CAPROOT_WHEEL_PROFILE is the profile of cargo, `release` by default; with one of them, the wheel always has a program.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import re
import shutil
import stat
import subprocess
import sysconfig
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from _make_reference import make_pages
from _make_types import make_types

HERE = Path(__file__).resolve().parent
TOP = HERE.parent
# Everything that a build of the program needs. Cargo looks for each target of the manifest, so the benchmarks and the
# tests are needed, too.
SOURCES = [
    "Cargo.lock", "Cargo.toml", "LICENSE", "README.md", "CHANGELOG.md", "benches", "build.rs", "crates",
    "docs", "examples", "proto", "python", "src", "tests",
]  # fmt: skip
LEFT_OUT = {"target", "dist", "__pycache__", ".mypy_cache", ".pytest_cache"}
DATE = (2026, 1, 1, 0, 0, 0)
"""Date of each file, so that two builds of one commit are equal."""


class WheelWriter:
    """Writer of a wheel, which lists its files."""

    def __init__(self, path: Path, information: str) -> None:
        self._archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self._information = information
        self._records: list[str] = []

    def add(self, name: str, content: bytes, mode: int = 0o644) -> None:
        """Adds a file."""
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self._records.append(f"{name},sha256={digest},{len(content)}")
        self._write(name, content, mode)

    def close(self) -> None:
        """Adds the list of the files."""
        name = f"{self._information}/RECORD"
        self._write(name, "".join(f"{record}\n" for record in [*self._records, f"{name},,"]).encode(), 0o644)
        self._archive.close()

    def _write(self, name: str, content: bytes, mode: int) -> None:
        entry = zipfile.ZipInfo(name, DATE)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (stat.S_IFREG | mode) << 16
        self._archive.writestr(entry, content)


def build_wheel(directory: str, settings: Any = None, metadata: str | None = None) -> str:
    """Builds the wheel. PEP 517."""
    version = package_version()
    program = find_program(version)
    platform = "any" if program is None else re.sub(r"[-.]", "_", sysconfig.get_platform())
    tag = f"py3-none-{platform}"
    path = Path(directory) / f"caproot-{version}-{tag}.whl"
    information = f"caproot-{version}.dist-info"
    write_types(program)
    wheel = WheelWriter(path, information)

    for source in sorted((HERE / "caproot").glob("**/*.py")):
        wheel.add(source.relative_to(HERE).as_posix(), source.read_bytes())
    wheel.add("caproot/py.typed", b"")
    for proto in sorted((TOP / "proto/caproot/v1").glob("*.proto")):
        wheel.add(f"caproot/v1/{proto.name}", proto.read_bytes())
    if program is not None:
        wheel.add(f"caproot-{version}.data/scripts/{program.name}", read_stripped(program), 0o755)

    wheel.add(f"{information}/METADATA", package_metadata(version).encode())
    wheel.add(f"{information}/licenses/LICENSE", (TOP / "LICENSE").read_bytes())
    is_pure = str(program is None).lower()
    text = f"Wheel-Version: 1.0\nGenerator: caproot\nRoot-Is-Purelib: {is_pure}\nTag: {tag}\n"
    wheel.add(f"{information}/WHEEL", text.encode())
    wheel.close()
    return path.name


def build_sdist(directory: str, settings: Any = None) -> str:
    """Packs the sources of the package and of the program, and the reference. PEP 517."""
    version = package_version()
    types = write_types(find_program(version))
    name = f"caproot-{version}"
    archive = Path(directory) / f"{name}.tar.gz"
    # pip looks at the top of the archive.
    project = '[build-system]\nrequires = []\nbuild-backend = "_build"\nbackend-path = ["python"]\n'
    made = {"pyproject.toml": project, "PKG-INFO": package_metadata(version)}
    made |= {f"reference/{page}": text for page, text in make_pages(types).items()}
    with gzip.GzipFile(archive, "wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for source in SOURCES:
            tar.add(TOP / source, f"{name}/{source}", filter=reset_entry)
        for path, text in made.items():
            content = text.encode()
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return archive.name


def write_types(program: Path | None) -> str:
    """Writes the types of the lines into the package, and returns them."""
    types = make_types(program or "caproot")
    (HERE / "caproot/_line_types.py").write_text(types, encoding="utf-8")
    return types


def find_program(version: str) -> Path | None:
    """Returns the program for the wheel, or `None` if a program on PATH has the version."""
    given = os.environ.get("CAPROOT_WHEEL_PROGRAM")
    if given:
        return Path(given)
    on_path = shutil.which("caproot")
    if on_path is not None and "CAPROOT_WHEEL_PROFILE" not in os.environ:
        said = subprocess.run([on_path, "--version"], capture_output=True, text=True).stdout
        if said.split()[:2] == ["caproot", version]:
            return None
    if shutil.which("cargo") is None:
        raise SystemExit(
            f"the wheel needs the program caproot {version}: put it on PATH, or install Rust, which builds it"
        )
    return build_program()


def build_program() -> Path:
    """Builds the program, and returns its path."""
    profile = os.environ.get("CAPROOT_WHEEL_PROFILE", "release")
    command = ["cargo", "build", "--locked", "--bin", "caproot", "--features", "link", "--profile", profile]
    subprocess.run(command, cwd=TOP, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", TOP / "target"))
    return target / ("debug" if profile == "dev" else profile) / "caproot"


def read_stripped(program: Path) -> bytes:
    """Returns a program without symbols, which are a third of a release and most of a debug build."""
    if shutil.which("strip") is None:
        return program.read_bytes()
    with tempfile.TemporaryDirectory() as directory:
        stripped = Path(directory) / "caproot"
        subprocess.run(["strip", "-o", stripped, program], check=True)
        return stripped.read_bytes()


def reset_entry(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leaves out what a build made, and the owner and the time of a file."""
    name = Path(entry.name).name
    if name == "target" or ("/python/" in entry.name and name in LEFT_OUT):
        return None
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def package_version() -> str:
    """Returns the version of the package, which is that of the crate."""
    version = read_field(TOP / "Cargo.toml", "version")
    own = re.search(r'__version__ = "(.+)"', (HERE / "caproot/_version.py").read_text(encoding="utf-8"))
    if own is None or own[1] != version:
        raise SystemExit(f"python/caproot/_version.py has another version than the crate: expected {version}")
    return version


def package_metadata(version: str) -> str:
    """Returns the metadata of the package."""
    project = HERE / "pyproject.toml"
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    pydantic = re.search(r'^schema = \["(.+)"\]', project.read_text(encoding="utf-8"), re.MULTILINE)
    assert pydantic is not None
    return (
        f"Metadata-Version: 2.4\nName: caproot\nVersion: {version}\n"
        f"Summary: {read_field(project, 'description')}\nLicense-Expression: {read_field(project, 'license')}\n"
        f"License-File: LICENSE\nRequires-Python: {read_field(project, 'requires-python')}\nProvides-Extra: schema\n"
        f"Requires-Dist: {pydantic[1]}; extra == 'schema'\nDescription-Content-Type: text/markdown\n\n{readme}"
    )


def read_field(path: Path, name: str) -> str:
    """Returns the first text with a name in a TOML file. Python 3.10 has no module for TOML."""
    found = re.search(rf'^{name} = "(.+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise SystemExit(f"{path} has no {name}")
    return found[1]
