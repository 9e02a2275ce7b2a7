"""Runs README's orchestrator in Python as it stands there, with a model that reads every skill.

    readme_orchestrator.py SOCKET CAPROOT

Each file must be what `caproot read` prints, and what cannot be read must be told to the model.
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
    """Lists all skills, reads each page by page, and then calls for what there is not."""

    def __init__(self):
        self.skills, self.text, self.files, self.errors, self.reading = None, "", {}, [], None
        nowhere = {"authority": {"kind": "executor", "id": "none"}, "package": "skill://none/none"}
        self.odd = [("skills.read", nowhere), ("skills.list", {"more": 1}), ("skills.none", {})]

    def __call__(self, said):
        if self.skills is None:
            assert [tool["name"] for tool in said["tools"]] == ["skills.list", "skills.read"]
            assert len(said["instructions"]) <= 8000 and said["user"] == "hello"
            self.skills = []
            return "skills.list", {}
        assert said["externalContext"] is True
        if "error" in said:
            self.errors.append(said["error"])
        elif "skills" in said["result"]:
            self.skills += said["result"]["skills"]
            if said["result"]["next_cursor"]:
                return "skills.list", {"cursor": said["result"]["next_cursor"]}
            self.left = list(self.skills)
        else:
            self.text += said["result"]["contents"]
            if said["result"]["next_cursor"]:
                return self.read(cursor=said["result"]["next_cursor"])
            self.files[self.reading["package"]], self.text = self.text, ""
        if self.left:
            self.reading = self.left.pop()
            return self.read()
        return self.odd.pop() if self.odd else None

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
    said = subprocess.run(command, check=True, capture_output=True).stdout
    assert said == text.encode(), package
print(f"README's orchestrator read {len(model.files)} skills as they are, and was told of 3 mistakes")
