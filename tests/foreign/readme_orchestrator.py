"""Runs README's Python orchestrator unchanged, with a model that reads every skill.

    readme_orchestrator.py SOCKET CAPROOT

Each file must equal the output of `caproot read`. The model must receive an error for each failed call.
"""

import pathlib
import subprocess
import sys

import grpc

socket, caproot = sys.argv[1:]
readme = pathlib.Path("README.md").read_text()
program = readme.split("### In Python\n")[1].split("```python\n")[1].split("```\n")[0]
names = {}
exec(compile(program, "README.md", "exec"), names)
assert len(program.splitlines()) <= 34, "about thirty lines"


class Model:
    """Lists all skills, reads each skill page by page, and then makes three calls that must fail."""

    def __init__(self):
        self.skills, self.text, self.files, self.errors, self.reading = None, "", {}, [], None
        nowhere = {"authority": {"kind": "executor", "id": "none"}, "package": "skill://none/none"}
        self.bad_calls = [("skills.read", nowhere), ("skills.list", {"more": 1}), ("skills.none", {})]

    def __call__(self, message):
        if self.skills is None:
            assert [tool["name"] for tool in message["tools"]] == ["skills.list", "skills.read"]
            assert len(message["instructions"]) <= 8000 and message["user"] == "hello"
            self.skills = []
            return "skills.list", {}
        assert message["externalContext"] is True
        if "error" in message:
            self.errors.append(message["error"])
        elif "skills" in message["result"]:
            self.skills += message["result"]["skills"]
            if message["result"]["next_cursor"]:
                return "skills.list", {"cursor": message["result"]["next_cursor"]}
            self.unread = list(self.skills)
        else:
            self.text += message["result"]["contents"]
            if message["result"]["next_cursor"]:
                return self.read(cursor=message["result"]["next_cursor"])
            self.files[self.reading["package"]], self.text = self.text, ""
        if self.unread:
            self.reading = self.unread.pop()
            return self.read()
        return self.bad_calls.pop() if self.bad_calls else None

    def read(self, **more):
        return "skills.read", {key: self.reading[key] for key in ("authority", "package")} | more


model = Model()
with grpc.insecure_channel(f"unix:{socket}") as channel:
    service = names["services"].CapabilityServiceStub(channel)
    listed = service.ListRoots(names["messages"].ListRootsRequest(), timeout=30).roots
    roots = [root.selected_capability_root for root in listed]
    names["orchestrate"](service, roots, "hello", model)
assert len(model.errors) == 3, model.errors
assert len(model.files) == len(model.skills) > 0, "every skill was read"
for package, text in model.files.items():
    command = [caproot, "read", "--endpoint", f"unix:{socket}", package]
    output = subprocess.run(command, check=True, capture_output=True).stdout
    assert output == text.encode(), package
print(f"README's orchestrator read {len(model.files)} complete skills, and received 3 errors")
