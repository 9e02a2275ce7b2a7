"""Runs the commands of the recipe in order, and compares their output with the page.

    run_page.py PAGE

The commands before the first step are run after the last step. A YAML block is the new config.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from docs_page import TIMEOUT, check_output, commands, fail, fenced_blocks


def main(page):
    introduction, _, steps = Path(page).read_text().partition("\n## 1. ")
    count = 0
    for language, text in fenced_blocks(steps) + fenced_blocks(introduction):
        if language == "yaml":
            Path("/etc/caproot/caproot.yaml").write_text(text)
        if language != "console":
            continue
        for command, shown in commands(text):
            if command.startswith("grpcurl ") and not shutil.which("grpcurl"):
                print(f"!! NOT RUN, because grpcurl is missing: {command}")
                continue
            done = subprocess.run(
                ["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, timeout=TIMEOUT, text=True, check=False,
            )
            if done.returncode != 0:
                fail(f"`{command}` ended with {done.returncode}:\n{done.stdout}")
            check_output(command, shown, done.stdout)
            count += 1
    print(f"{count} commands of the recipe print the output of the page")


main(sys.argv[1])
