#!/usr/bin/env python3
"""Compares `caproot check --strict` with skills-ref, the validator of the Agent Skills format.

    skills_ref_agrees.py CAPROOT DIR…

Compares every directory with a SKILL.md below the directories, and the cases below. A skill fails in
caproot if its SKILL.md has an error. Both must fail or both must pass, except for STRICTER: the page
docs/author/ci.md names these cases, in which only caproot fails. The exit code is 1 on a
difference, and 2 if no skill was compared.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from skills_ref.validator import validate

GOOD = "name: s\ndescription: d\n"

# Frontmatter of a skill in the directory `s`.
FRONTMATTER = [
    GOOD,
    GOOD + "license: MIT\ncompatibility: Linux\nallowed-tools: Read Grep\nmetadata:\n  version: 1.0\n",
    *(GOOD + field + "\n" for field in (
        "version: 1", "Name: s", "disable-model-invocation: true", "user-invocable: false",
        "license:", "license: ~", "license:\n  - MIT", "license:\n  spdx: MIT",
        "allowed-tools: [Read]", "allowed-tools:\n  - Read", "allowed-tools:\n- Read", "allowed-tools: Bash(git:*)",
        "metadata: text", "metadata:", "metadata: {}", "metadata: []", "metadata: {a: b}",
        "metadata:\n  a: 1\n  b: 2", "metadata:\n  a: 1\n  a: 2", "metadata:\n  a: 1\n  'a': 2",
        "metadata:\n  a:\n    b: 1\n  c:\n    d: 1", "metadata:\n  a:\n    b: 1\n  c:\n     d: 1",
        "metadata:\n  - a\n  - b:\n      c: 1", "metadata:\n  a: [1, 2]", "metadata:\n  ? a\n  : b",
        "metadata:\n  a: &x 1", "metadata:\n  a: &x 1\n  b: *x", "metadata:\n  a: !!str 1", "metadata: !x\n  a: 1",
        "metadata:\n  <<: x", "metadata:\n  1: a\n  true: b\n  null: c", "metadata:\n  a: 2001-01-01\n  b: 0x1f",
        "metadata:\n\ta: 1", "metadata:\n  a:\t1", "metadata:\t\n  a: 1", "license: a\tb", "license: a # \tb", "#\tb", "metadata:\n  a: 1 # comment", "# comment",
        "compatibility: 3", "compatibility: true", "compatibility:", "compatibility:\n  - a",
        "compatibility: " + "é" * 500, "compatibility: " + "é" * 501,
        "license: 'it''s'", 'license: "a\\tb\\u00e9"', 'license: "a\\qb"', "license: |\n  a\n  b", "license: >-\n  a\n  b",
        "license: @x", "license: `x`", "license: %x", "license: -", "license: - x", "license: ? x", "license: a: b",
        "compatibility: =", "license: a #b", "license: a#b", "license: {{x}}", "license: [x](y)", "license: 'x", "license: =",
        "license: \x7f", "license: \x85", "license: \U0001f600",
        "...", "...\nlicense: x",
    )),
    *(f"name: {name}\ndescription: d\n" for name in ("", "~", "''", "S", "'s '", "\n  - s", "ｓ", "s_", "s-", "t")),
    *(f"name: s\ndescription: {text}\n" for text in (
        "é" * 1024, "é" * 1025, "", "''", "' '", "3", "true", "\n  - a", "\n  a: b", "[a]", "{a}", "=", "<<",
        ">\n  a\n  b", "|\n  a\n\n  b\n", "a: b", "'a: b'", "a\n  b\n  c",
    )),
    "description: d\n", "name: s\n", "- name\n", "text\n", "name: s\nname: s\ndescription: d\n",
    "%YAML 1.2\n" + GOOD, " name: s\n description: d\n", "name : s\ndescription : d\n", "{name: s, description: d}\n",
    "name: s\ndescription: d\nname s\n", "'name': s\n\"description\": d\n",
]

# Whole files of a skill in the directory `s`.
FILES = [
    f"---\n{GOOD}---\ntext\n".replace("\n", "\r\n").encode(),
    f"---\n{GOOD}---".encode(),
    f"--- \n{GOOD}--- \ntext ---\n".encode(),
    f"\ufeff---\n{GOOD}---\n".encode(),
    f" ---\n{GOOD}---\n".encode(),
    f"\n---\n{GOOD}---\n".encode(),
    f"---\n{GOOD}".encode(),
    f"---\n{GOOD}---\n".encode() + b"\xff\n",
    f"---\n{GOOD}---\n\0\n".encode(),
    f"---\n{GOOD}---\n".encode("utf-16"),
    b"", b"---\n---\n", b"# s\n",
]

# Names of directories, each with a skill of the same name.
NAMES = [
    "pdf", "a-1", "12", "true", "null-1", "Pdf", "PDF", "a_b", "a b", "a--b", "a.b", "技能", "é", "e\u0301", "мой-навык",
    "कि", "ß", "ſ", "ǅ", "ⅷ", "٣", "½", "a" * 64, "a" * 65, "ﬁ" * 33, "🚀", "İ",
]

# Frontmatter that only caproot rejects.
STRICTER = [
    GOOD + "license: 'a\tb'\n",
    GOOD + "license: a\u2028b\n",
    GOOD + "license: \ufeffx\n",
    "name: s\ndescription: 'a\nb'\n",
    "name: s\ndescription: a --- b\n",
    GOOD + "license: a---b\nversion: 1\n",
    "name: s\ndescription: ~\n",
    GOOD + "metadata:\n" + "".join("  " * n + "a:\n" for n in range(1, 17)),
    GOOD + "license: " + "x" * (64 << 10) + "\n",
    GOOD + "metadata:\n  <<:\n    a: 1\n",
]


def write_skill(top, number, name, content):
    """Writes a SKILL.md. Returns its directory, which has `name`."""
    directory = top / str(number) / name
    directory.mkdir(parents=True)
    (directory / "SKILL.md").write_bytes(content)
    return directory


def write_cases(top):
    """Writes the cases. Returns the directories in which both agree, and those of STRICTER."""
    equal = [("s", f"---\n{text}---\n".encode()) for text in FRONTMATTER]
    equal += [("s", content) for content in FILES]
    equal += [(name, f"---\nname: {name}\ndescription: d\n---\n".encode()) for name in NAMES]
    stricter = [("s", f"---\n{text}---\n".encode()) for text in STRICTER]
    skills = [write_skill(top, number, *case) for number, case in enumerate(equal + stricter)]
    return skills[: len(equal)], skills[len(equal) :]


def find_skills(top):
    """Yields the directories with a SKILL.md. Links to directories are not followed."""
    for directory, _, files in os.walk(top):
        if "SKILL.md" in files:
            yield Path(directory).absolute()


def errors_of_skills_ref(directory):
    """Returns the errors of skills-ref. It crashes at bytes that are not UTF-8 and at control characters."""
    try:
        return validate(directory)
    except Exception as error:  # any exception means that the skill is not valid
        return [f"{type(error).__name__}: {error}"]


def errors_of_caproot(program, directories):
    """Returns the errors of caproot by directory, from one run."""
    command = [program, "check", "--strict", "--allow-empty", "--output", "json", *directories]
    run = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if run.returncode not in (0, 1):
        sys.exit(f"caproot check exited with {run.returncode}")
    errors = {}
    for diagnostic in json.loads(run.stdout)["diagnostics"]:
        directory, file = os.path.split(diagnostic["path"])
        if file == "SKILL.md" and diagnostic["severity"] == "ERROR":
            errors.setdefault(Path(directory), []).append(f"{diagnostic['code']}: {diagnostic['message']}")
    return errors


def main():
    program, *tops = sys.argv[1:]
    found = [directory for top in tops for directory in find_skills(top)]
    with tempfile.TemporaryDirectory() as scratch:
        equal, stricter = write_cases(Path(scratch))
        skills = found + equal + stricter
        start = time.monotonic()
        ours = errors_of_caproot(program, skills)
        middle = time.monotonic()
        theirs = {directory: errors_of_skills_ref(directory) for directory in skills}
        end = time.monotonic()

        differences = 0
        for directory in skills:
            fails_here, fails_there = directory in ours, bool(theirs[directory])
            expected = (True, False) if directory in stricter else (fails_there, fails_there)
            if (fails_here, fails_there) != expected:
                differences += 1
                content = (directory / "SKILL.md").read_bytes()[:200]
                print(f"{str(directory)!a}: {content!a}")
                print(f"  caproot: {ours.get(directory, [])!a}\n  skills-ref: {theirs[directory]!a}")

    failing = sum(bool(theirs[directory]) for directory in found)
    print(f"{len(found)} skills of {len(tops)} directories, {failing} of them fail; {len(equal)} cases, "
          f"{len(stricter)} stricter cases; {differences} differences")
    print(f"caproot: {middle - start:.2f} s, skills-ref: {end - middle:.2f} s")
    return 1 if differences else 0 if found else 2


if __name__ == "__main__":
    sys.exit(main())
