"""Build backend: maturin, with the program `caproot` and the `.proto` files in the wheel, and with all
crates in the sdist.

The environment variable CAPROOT_WHEEL_PROFILE is the profile of cargo, `release` by default. The program is
built, unless CAPROOT_WHEEL_PROGRAM is its path.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TOP = HERE.parent
# Everything that a build of the program and of the extension module needs. Cargo looks for each target
# of the manifest, so the benchmarks and the tests are needed, too.
SOURCES = [
    "Cargo.lock", "Cargo.toml", "LICENSE", "README.md", "CHANGELOG.md", "benches", "build.rs", "crates",
    "docs", "examples", "proto", "python", "src", "tests",
]  # fmt: skip
LEFT_OUT = {"target", "dist", "data", "v1", "__pycache__", ".mypy_cache", ".pytest_cache"}


def build_wheel(directory: str, settings: Any = None, metadata: str | None = None) -> str:
    """Builds the wheel. PEP 517."""
    import maturin

    place = os.path.abspath(directory)
    prepare_files()
    os.chdir(HERE)
    profile = "" if build_profile() == "release" else f" --profile {build_profile()}"
    arguments = {"build-args": f"--compatibility linux{profile}"}
    if sys.platform != "linux":
        arguments = {"build-args": profile.strip()}
    return maturin.build_wheel(place, arguments, metadata)


def build_sdist(directory: str, settings: Any = None) -> str:
    """Packs the sources of the program and of the extension module. PEP 517."""
    version = package_version()
    name = f"caproot-{version}"
    archive = Path(directory) / f"{name}.tar.gz"
    # pip looks at the top of the archive.
    project = '[build-system]\nrequires = ["{}"]\nbuild-backend = "_build"\nbackend-path = ["python"]\n'
    project = project.format(read_project()["build-system"]["requires"][0])
    information = f"Metadata-Version: 2.2\nName: caproot\nVersion: {version}\n"
    with tarfile.open(archive, "w:gz") as tar:
        for source in SOURCES:
            tar.add(TOP / source, f"{name}/{source}", filter=reset_entry)
        for path, text in (("pyproject.toml", project), ("PKG-INFO", information)):
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return archive.name


def prepare_metadata_for_build_wheel(directory: str, settings: Any = None) -> str:
    """Writes the metadata of the wheel. PEP 517."""
    import maturin

    place = os.path.abspath(directory)
    # maturin wants the directory of the program, which `build_wheel` fills.
    (HERE / "data/scripts").mkdir(parents=True, exist_ok=True)
    os.chdir(HERE)
    return maturin.prepare_metadata_for_build_wheel(place, settings)


def prepare_files() -> None:
    """Puts the `.proto` files and, on Linux, the program where maturin looks for them."""
    protos = HERE / "caproot/v1"
    shutil.rmtree(protos, ignore_errors=True)
    protos.mkdir()
    for proto in sorted((TOP / "proto/caproot/v1").glob("*.proto")):
        shutil.copy(proto, protos)

    scripts = HERE / "data/scripts"
    shutil.rmtree(HERE / "data", ignore_errors=True)
    scripts.mkdir(parents=True)
    if sys.platform != "linux":
        return
    program = scripts / "caproot"
    shutil.copy(os.environ.get("CAPROOT_WHEEL_PROGRAM") or build_program(), program)
    # Symbols are a third of a release, and line tables are most of a debug build.
    if shutil.which("strip"):
        subprocess.run(["strip", program], check=True)


def build_program() -> Path:
    """Builds the program, and returns its path."""
    command = ["cargo", "build", "--locked", "--bin", "caproot", "--profile", build_profile()]
    subprocess.run(command, cwd=TOP, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", TOP / "target"))
    folder = "debug" if build_profile() == "dev" else build_profile()
    return target / folder / "caproot"


def reset_entry(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leaves out what a build made, and the owner of a file."""
    name = Path(entry.name).name
    is_python = "/python/" in entry.name
    if name == "target" or (is_python and (name in LEFT_OUT or name.endswith(".so"))):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def build_profile() -> str:
    """Returns the profile of cargo."""
    return os.environ.get("CAPROOT_WHEEL_PROFILE", "release")


def package_version() -> str:
    """Returns the version of the crate."""
    manifest = tomllib.loads((HERE / "Cargo.toml").read_text(encoding="utf-8"))
    return str(manifest["package"]["version"])


def read_project() -> Any:
    """Returns the parsed pyproject.toml."""
    return tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))
