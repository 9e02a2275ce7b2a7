"""The official conformance suite's own servers, which lie, against caproot as a host of Skills over MCP:
every check of these scenarios passes, and none is skipped.

    mcp_host_conformance.py NODE SUITE HOST

NODE is Node 22 or later; SUITE the suite's `dist/index.js`; HOST the example `mcp_host`, built.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

# The first asks for a list and nothing else.
SCENARIOS = {
    "sep-2640-client-no-prefetch": "list",
    "sep-2640-client-verify-digest": "read",
    "sep-2640-client-verify-size": "read",
    "sep-2640-client-verify-frontmatter": "read",
}


def run(node, suite, host, scenario, mode):
    with tempfile.TemporaryDirectory() as out:
        command = [node, suite, "client", "--command", f"{host} {mode}", "--scenario", scenario, "-o", out]
        said = subprocess.run(command, capture_output=True, text=True, timeout=120)
        results = list(pathlib.Path(out).glob("**/checks.json"))
        assert len(results) == 1, said.stdout + said.stderr
        return json.loads(results[0].read_text()), said.stdout + said.stderr


def main():
    node, suite, host = sys.argv[1:]
    wrong = 0
    for scenario, mode in SCENARIOS.items():
        checks, said = run(node, suite, host, scenario, mode)
        passed = [check for check in checks if check["status"] == "SUCCESS"]
        print(f"{scenario}: {len(passed)} of {len(checks)} checks passed")
        if not passed or len(passed) < len(checks):
            wrong += 1
            print(json.dumps(checks, indent=1), said)
    sys.exit(wrong > 0)


main()
