#!/usr/bin/env python3
"""Reads skills with another YAML library and compares names and descriptions with caproot's.

    caproot check --output json DIR | yaml_agrees.py
    caproot list --root ID=DIR --output json | yaml_agrees.py --root ID=DIR

Paths of `check` are relative to the current directory. Needs ruamel.yaml (YAML 1.2, as caproot
reads) or PyYAML (1.1, in which `yes` and `1:30` are no text). A skill that the other library cannot
read, or whose field is no text to it, is counted and not compared. Exits with 1 on a difference,
with 2 when nothing could be compared.
"""

import argparse
import json
import os
import sys
from urllib.parse import unquote_to_bytes

MAX_DESCRIPTION = 1024


def loader():
    """The function that reads a document, and its name."""
    try:
        from ruamel.yaml import YAML

        return YAML(typ="safe", pure=True).load, "ruamel.yaml"
    except ImportError:
        import yaml

        return yaml.safe_load, "PyYAML"


def collapsed(text):
    return " ".join(text.split())


def frontmatter(path):
    """The text between the fences of a SKILL.md."""
    with open(path, "rb") as file:
        text = file.read().removeprefix(b"\xef\xbb\xbf")
    lines = text.split(b"\n")
    if lines[0].rstrip() != b"---":
        raise ValueError("no opening fence")
    for end, line in enumerate(lines[1:], 1):
        if line.startswith(b"---") and not line[3:].strip():
            return (b"\n".join(lines[1:end]) + b"\n").decode()
    raise ValueError("no closing fence")


def checked(document):
    """(path, bare name, description) of each skill that `check` lists."""
    for skill in document["skills"]:
        yield skill["path"], skill["bareName"], skill["description"]


def listed(document, roots):
    """The same of each skill that a daemon lists, as far as its root is known."""
    for skill in document.get("skills", []):
        root, _, path = skill["mainResource"].removeprefix("skill://").partition("/")
        directory = roots.get(unquote_to_bytes(root).decode())
        if directory is None:
            continue
        path = os.path.join(os.fsencode(directory), unquote_to_bytes(path))
        name = skill["name"].removeprefix(skill.get("plugin", "") + ":")
        yield path, name, skill["description"]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    arguments.add_argument("--root", action="append", default=[], metavar="ID=DIR")
    roots = dict(root.split("=", 1) for root in arguments.parse_args().root)
    document = json.load(sys.stdin)
    load, library = loader()
    same, unread, different = 0, 0, []
    skills = listed(document, roots) if roots else checked(document)
    for path, name, description in skills:
        try:
            fields = load(frontmatter(path))
        except Exception as error:  # whatever another library raises, it could not read it
            unread += 1
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            print(f"not compared: {os.fsdecode(path)!a}: {reason!a}", file=sys.stderr)
            continue
        if not isinstance(fields, dict):
            unread += 1
            continue
        compared = False
        for key, ours, most in (("name", name, None), ("description", description, MAX_DESCRIPTION)):
            theirs = fields.get(key)
            if not isinstance(theirs, str) or not theirs.strip():
                continue
            compared = True
            if collapsed(theirs)[:most] != ours:
                different.append((path, key, collapsed(theirs)[:most], ours))
        same += compared
    for path, key, theirs, ours in different:
        print(f"{os.fsdecode(path)!a}: {key}\n  {library}: {theirs!a}\n  caproot: {ours!a}")
    print(f"{library}: {same} skills compared, {len(different)} differences, {unread} not readable")
    return 1 if different else 0 if same else 2


if __name__ == "__main__":
    sys.exit(main())
