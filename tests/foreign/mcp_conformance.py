"""Runs scenarios of the official MCP conformance suite against a `caproot mcp --http`. Every check must
pass without a warning.

    mcp_conformance.py NODE SUITE URL

NODE is Node 22 or later, and SUITE is the suite's `dist/index.js`. The first listed skill must have a
subdirectory, because the suite uses this skill.

The scenarios `resources-read-text`, `resources-read-binary` and `resources-templates-read` do not run:
they read `test://` resources, which a server would need only for the suite.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

CURRENT, OLDER = "2026-07-28", "2025-11-25"
# Scenarios of an extension have no protocol version.
SCENARIOS = [
    ("sep-2640-skills-enumeration", None),
    ("sep-2640-skills-manifest", None),
    ("sep-2640-skills-directory", None),
    ("sep-2164-resource-not-found", CURRENT),
    ("resources-list", CURRENT),
    ("resources-list", OLDER),
    ("prompts-list", CURRENT),
    ("prompts-list", OLDER),
    ("resources-subscribe", OLDER),
    ("resources-unsubscribe", OLDER),
    ("dns-rebinding-protection", CURRENT),
    ("dns-rebinding-protection", OLDER),
    ("server-initialize", OLDER),
    ("ping", OLDER),
]
# Two skills of the served roots may have the same name. caproot serves both.
ALLOWED_WARNINGS = {"sep-2640-names-should-be-unique"}


def run(node, suite, url, scenario, version):
    with tempfile.TemporaryDirectory() as out:
        command = [node, suite, "server", "--url", url, "--scenario", scenario, "-o", out]
        if version:
            command += ["--spec-version", version]
        output = subprocess.run(command, capture_output=True, text=True, timeout=300)
        results = list(pathlib.Path(out).glob("*/checks.json"))
        assert len(results) == 1, output.stdout + output.stderr
        return json.loads(results[0].read_text())


def main():
    node, suite, url = sys.argv[1:]
    failures = 0
    for scenario, version in SCENARIOS:
        checks = run(node, suite, url, scenario, version)
        passed = [check for check in checks if check["status"] == "SUCCESS"]
        print(f"{scenario} {version or ''}: {len(passed)} of {len(checks)} checks passed")
        failures += not passed
        for check in checks:
            if check["status"] != "SUCCESS":
                is_failure = check["id"] not in ALLOWED_WARNINGS or check["status"] != "WARNING"
                failures += is_failure
                print(f"  {check['status']} {check['id']}: {check.get('errorMessage')}")
    sys.exit(failures > 0)


main()
