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
assert len(program.splitlines()) <= 32, "about thirty lines"


class Model:
    """Reads each skill page by page, and once what there is not, and what the tool has no field for."""

    def __init__(self):
        self.packages, self.text, self.files, self.errors = None, "", {}, []
        self.odd = [{"package": "skill://none/none"}, {"package": "x", "more": 1}]

    def __call__(self, said):
        if self.packages is None:
            assert [tool["name"] for tool in said["tools"]] == ["skills.read"]
            assert len(said["instructions"]) <= 8000 and said["user"] == "hello"
            lines = said["instructions"].splitlines()[:-1]
            self.packages = [line.rsplit(" (", 1)[1].rstrip(")") for line in lines]
            self.reading = None
        elif "error" in said:
            self.errors.append(said["error"])
        else:
            assert said["externalContext"] is True
            self.text += said["contents"]
            if said["next_cursor"]:
                return {"package": self.reading, "cursor": said["next_cursor"]}
            self.files[self.reading], self.text = self.text, ""
        if self.packages:
            self.reading = self.packages.pop()
            return {"package": self.reading}
        return self.odd.pop() if self.odd else None


model = Model()
with grpc.insecure_channel(f"unix:{socket}") as channel:
    service = names["services"].CapabilityServiceStub(channel)
    listed = service.ListRoots(names["messages"].ListRootsRequest(), timeout=30).roots
    roots = [root.selected_capability_root for root in listed]
    names["orchestrate"](service, roots, "hello", model)
assert len(model.errors) == 2, model.errors
assert model.files, "no skill was read"
for package, text in model.files.items():
    command = [caproot, "read", "--endpoint", f"unix:{socket}", package]
    said = subprocess.run(command, check=True, capture_output=True).stdout
    assert said == text.encode(), package
print(f"README's orchestrator read {len(model.files)} skills as they are, and was told of 2 mistakes")
