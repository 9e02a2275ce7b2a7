"""Runs the hostile servers of the official MCP conformance suite against caproot as a host of Skills
over MCP. Every check must pass, and none may be skipped.

    mcp_host_conformance.py NODE SUITE HOST

NODE is Node 22 or later, SUITE is the suite's `dist/index.js`, and HOST is the built example
`mcp_host`.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

# The first scenario only lists skills.
SCENARIOS = {
    "sep-2640-client-no-prefetch": "list",
    "sep-2640-client-verify-digest": "read",
    "sep-2640-client-verify-size": "read",
    "sep-2640-client-verify-frontmatter": "read",
}


def run(node, suite, host, scenario, mode):
    with tempfile.TemporaryDirectory() as out:
        command = [node, suite, "client", "--command", f"{host} {mode}", "--scenario", scenario, "-o", out]
        output = subprocess.run(command, capture_output=True, text=True, timeout=120)
        results = list(pathlib.Path(out).glob("**/checks.json"))
        assert len(results) == 1, output.stdout + output.stderr
        return json.loads(results[0].read_text()), output.stdout + output.stderr


def main():
    node, suite, host = sys.argv[1:]
    failures = 0
    for scenario, mode in SCENARIOS.items():
        checks, output = run(node, suite, host, scenario, mode)
        passed = [check for check in checks if check["status"] == "SUCCESS"]
        print(f"{scenario}: {len(passed)} of {len(checks)} checks passed")
        if not passed or len(passed) < len(checks):
            failures += 1
            print(json.dumps(checks, indent=1), output)
    sys.exit(failures > 0)


main()
