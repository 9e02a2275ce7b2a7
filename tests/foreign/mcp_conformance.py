"""The official conformance suite of MCP against a `caproot mcp --http`: every check of these scenarios
passes, and none warns.

    mcp_conformance.py NODE SUITE URL

NODE is Node 22 or later; SUITE the suite's `dist/index.js`. The first skill that is served must have a
directory of its own, as the suite goes by that one.

Not among them are `resources-read-text`, `resources-read-binary` and `resources-templates-read`: these
read `test://` resources, which a server has to have for the suite alone.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

TODAY, OLDER = "2026-07-28", "2025-11-25"
# Those of an extension are of no version.
SCENARIOS = [
    ("sep-2640-skills-enumeration", None),
    ("sep-2640-skills-manifest", None),
    ("sep-2640-skills-directory", None),
    ("sep-2164-resource-not-found", TODAY),
    ("resources-list", TODAY),
    ("resources-list", OLDER),
    ("prompts-list", TODAY),
    ("prompts-list", OLDER),
    ("resources-subscribe", OLDER),
    ("resources-unsubscribe", OLDER),
    ("dns-rebinding-protection", TODAY),
    ("dns-rebinding-protection", OLDER),
    ("server-initialize", OLDER),
    ("ping", OLDER),
]
# Two skills of one name below the roots are their authors', and served as they are.
NOT_OURS = {"sep-2640-names-should-be-unique"}


def run(node, suite, url, scenario, version):
    with tempfile.TemporaryDirectory() as out:
        command = [node, suite, "server", "--url", url, "--scenario", scenario, "-o", out]
        if version:
            command += ["--spec-version", version]
        said = subprocess.run(command, capture_output=True, text=True, timeout=300)
        results = list(pathlib.Path(out).glob("*/checks.json"))
        assert len(results) == 1, said.stdout + said.stderr
        return json.loads(results[0].read_text())


def main():
    node, suite, url = sys.argv[1:]
    wrong = 0
    for scenario, version in SCENARIOS:
        checks = run(node, suite, url, scenario, version)
        passed = [check for check in checks if check["status"] == "SUCCESS"]
        print(f"{scenario} {version or ''}: {len(passed)} of {len(checks)} checks passed")
        wrong += not passed
        for check in checks:
            if check["status"] != "SUCCESS":
                ours = check["id"] not in NOT_OURS or check["status"] != "WARNING"
                wrong += ours
                print(f"  {check['status']} {check['id']}: {check.get('errorMessage')}")
    sys.exit(wrong > 0)


main()
