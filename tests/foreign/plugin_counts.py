"""Counts the declarations of plugins below a directory. Shares only the search rules with the daemon,
and no code. Usage: plugin_counts.py DIR. Prints JSON: counts by kind, and every manifest, `.mcp.json`,
app and hook file as a path below DIR."""

import json
import os
import re
import sys

MANIFESTS = [f".{host}-plugin/plugin.json" for host in ("codex", "claude", "cursor")]
MARKETPLACES = [".agents/plugins/marketplace.json", ".claude-plugin/marketplace.json",
                ".cursor-plugin/marketplace.json"]
DIRECTORIES_SKIPPED = {".git", ".hg", ".svn", "node_modules", "target", "__pycache__", ".venv"}
RESOURCE_DIRS = {"scripts", "references", "assets"}


def load(*parts):
    path = os.path.join(*parts)
    if not os.path.isfile(path):
        return None
    with open(path, encoding="utf-8-sig") as file:
        return json.load(file)


def resolve(plugin, path):
    return os.path.join(plugin, path) if path.startswith("./") and ".." not in path else None


def read_declarations(plugin, manifest, key, default_paths):
    """Returns the objects that declare a kind."""
    declarations = manifest.get(key)
    if declarations is None:
        found = (load(plugin, path) for path in default_paths)
        return [next((value for value in found if value is not None), {})]
    declarations = declarations if isinstance(declarations, list) else [declarations]
    return [load(resolve(plugin, item)) or {} if isinstance(item, str) else item
            for item in declarations]


def find_prompts(plugin, manifest, key, default_path):
    """Returns the Markdown files of a kind."""
    declared_paths = manifest.get(key) or []
    declared_paths = declared_paths if isinstance(declared_paths, list) else [declared_paths]
    files = set()
    for place in [default_path] + [path for path in declared_paths if path.startswith("./")]:
        top = os.path.normpath(os.path.join(plugin, place))
        if os.path.isfile(top):
            files.add(top)
        for here, dirs, names in os.walk(top):
            dirs[:] = [name for name in dirs if name not in DIRECTORIES_SKIPPED]
            files.update(os.path.join(here, n) for n in names if n.endswith(".md") and n != "SKILL.md")
    return files


def has_frontmatter(path):
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        return re.match(r"---[ \t]*\n.*?\n---[ \t]*(\n|\Z)", file.read(), re.S) is not None


def main(top):
    counts = dict.fromkeys(("plugins", "mcp_servers", "apps", "hooks", "agents", "commands",
                            "marketplace_plugins"), 0)
    files = []
    for here, dirs, names in os.walk(top):
        resource_dirs = RESOURCE_DIRS if "SKILL.md" in names else set()
        dirs[:] = [name for name in dirs if name not in DIRECTORIES_SKIPPED | resource_dirs]
        files += [os.path.join(here, n) for n in names
                  if n in (".mcp.json", ".app.json") or n == "hooks.json"
                  or (n == "plugin.json" and f"{os.path.basename(here)}/{n}" in MANIFESTS)]
        found = (load(here, path) for path in MANIFESTS)
        manifest = next((value for value in found if value is not None), None)
        if manifest is None:
            continue
        counts["plugins"] += 1
        for value in read_declarations(here, manifest, "mcpServers", [".mcp.json", "mcp.json"]):
            counts["mcp_servers"] += len(value.get("mcpServers", value))
        for value in read_declarations(here, manifest, "apps", [".app.json"]):
            counts["apps"] += len(value.get("apps", value))
        for value in read_declarations(here, manifest, "hooks", ["hooks/hooks.json", "hooks.json"]):
            for groups in value.get("hooks", value).values():
                counts["hooks"] += sum(len(group.get("hooks", [1])) for group in groups)
        counts["agents"] += sum(map(has_frontmatter, find_prompts(here, manifest, "agents", "agents")))
        counts["commands"] += len(find_prompts(here, manifest, "commands", "commands"))
    for path in MARKETPLACES:
        counts["marketplace_plugins"] += len((load(top, path) or {}).get("plugins", []))
    counts["files"] = sorted(os.path.relpath(file, top) for file in files)
    print(json.dumps(counts))


main(sys.argv[1])
