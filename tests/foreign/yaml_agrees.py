#!/usr/bin/env python3
"""Reads skills with another YAML library and compares names and descriptions with caproot's.

    caproot check --output json DIR | yaml_agrees.py
    caproot list --all --root ID=DIR --output json | yaml_agrees.py --root ID=DIR

Paths of `check` are relative to the current directory. Needs ruamel.yaml (YAML 1.2, as caproot
reads) or PyYAML (1.1, in which `yes` and `1:30` are not strings). If the other library cannot read a
skill, or reads a field as another type, the skill is counted and not compared. The exit code is 1 on a
difference, and 2 if no skill was compared.
"""

import argparse
import json
import os
import sys
from urllib.parse import unquote_to_bytes

MAX_DESCRIPTION = 1024


def yaml_loader():
    """Returns the function that reads a document, and the name of its library."""
    try:
        from ruamel.yaml import YAML

        return YAML(typ="safe", pure=True).load, "ruamel.yaml"
    except ImportError:
        import yaml

        return yaml.safe_load, "PyYAML"


def collapse_whitespace(text):
    return " ".join(text.split())


def frontmatter(path):
    """Returns the text between the fences of a SKILL.md."""
    with open(path, "rb") as file:
        text = file.read().removeprefix(b"\xef\xbb\xbf")
    lines = text.split(b"\n")
    if lines[0].rstrip() != b"---":
        raise ValueError("no opening fence")
    for end, line in enumerate(lines[1:], 1):
        if line.startswith(b"---") and not line[3:].strip():
            return (b"\n".join(lines[1:end]) + b"\n").decode()
    raise ValueError("no closing fence")


def skills_of_check(document):
    """Yields (path, bare name, description) of each skill in the output of `check`."""
    for skill in document["skills"]:
        yield skill["path"], skill["bareName"], skill["description"]


def skills_of_list(document, roots):
    """Yields (path, bare name, description) of each skill in the output of `list`, if its root is known."""
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
    load, library = yaml_loader()
    same, unreadable, different = 0, 0, []
    skills = skills_of_list(document, roots) if roots else skills_of_check(document)
    for path, name, description in skills:
        try:
            fields = load(frontmatter(path))
        except Exception as error:  # any exception means that the library cannot read the file
            unreadable += 1
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            print(f"not compared: {os.fsdecode(path)!a}: {reason!a}", file=sys.stderr)
            continue
        if not isinstance(fields, dict):
            unreadable += 1
            continue
        compared = False
        for key, ours, most in (("name", name, None), ("description", description, MAX_DESCRIPTION)):
            theirs = fields.get(key)
            if not isinstance(theirs, str) or not theirs.strip():
                continue
            compared = True
            if collapse_whitespace(theirs)[:most] != ours:
                different.append((path, key, collapse_whitespace(theirs)[:most], ours))
        same += compared
    for path, key, theirs, ours in different:
        print(f"{os.fsdecode(path)!a}: {key}\n  {library}: {theirs!a}\n  caproot: {ours!a}")
    print(f"{library}: {same} skills compared, {len(different)} differences, {unreadable} not readable")
    return 1 if different else 0 if same else 2


if __name__ == "__main__":
    sys.exit(main())
