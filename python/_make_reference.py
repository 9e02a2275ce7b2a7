"""Pages of the reference of the Python package, made from the docstrings of its sources. As a program, writes the pages
into a directory:

    python _make_reference.py CAPROOT DIRECTORY
"""

import ast
import functools
import inspect
import re
import sys
from pathlib import Path

from _make_types import make_types

SOURCES = Path(__file__).resolve().parent / "caproot"
MAX_PAGE_BYTES = 12_288
WIDTH = 100
HEAD = """# {title}

{text}
The docstrings of the Python package are the source.
See also {others}.
"""


class Page:
    """Page with the objects of some modules."""

    def __init__(self, name, title, text, objects):
        self.name = name
        self.title = title
        self.text = text
        # Pairs of a module and the names of its objects.
        self.objects = objects


ALL_PAGES = [
    Page(
        "python-session",
        "Python: sessions",
        "Functions and methods of a session.",
        [("_session.py", "connect Session")],
    ),
    Page(
        "python-parts",
        "Python: parts of a session",
        "Executors, own tools, sources, dispatchers, tests and errors.",
        [
            ("_session.py", "SessionStart"),
            ("_session.py", "SessionStart"),
            ("_fleet.py", "Executor Fleet"),
            ("_tools.py", "Tools"),
            ("_sources.py", "LocalSkills McpServer Site"),
            ("_servers.py", "PluginServers"),
            ("_dispatch.py", "Dispatcher"),
            ("_codex.py", "Codex"),
            ("sync.py", "connect restore"),
            ("testing.py", "serve"),
            ("deepagents.py", "Backend"),
            ("_errors.py", "Error ConfigError Refused SealedError ForkedError ProgramError StoreError DispatchError ToolError"),
        ],
    ),
    Page(
        "python-data",
        "Python: data",
        "Results, plain data, protocols and types of arguments.",
        [
            ("_session.py", "Roots"),
            ("_fleet.py", "Path Token FindExecutor"),
            ("_sources.py", "McpTokenFunction"),
            ("_servers.py", "AuthorizationRequest ServerValueRequest"),
            ("_results.py", "ToolResult ResultImage Skill Authority"),
            ("_types.py", "ToolDefinition Choice Change PluginChanges PendingCall PendingPage Manager Thread Store"),
        ],
    ),
    Page(
        "python-results",
        "Python: results",
        "Results as the program writes them.",
        [
            (
                "_line_types.py",
                "InstructionUpdate UpdateKind NoticeChanges InjectedSkills SkillFragment AmbiguousName MentionCandidate "
                "OmittedMention UsedSkill UsedState ReinjectedSkills ReinjectedFragment ExecutorState ExecutorStatus SavedChanges "
                "ChangeState WaitingChangeState KnownChangeState UnknownChangeState SourceState UsageEvent UsageKind SkillAuthority "
                "SessionPlugin ChangedPlugin ComponentChange ComponentChangeKind McpServerStatus DispatchAnswer SubmittedAnswer "
                "DrainCounts TurnAnswer",
            ),
        ],
    ),
]
# Names of the objects of these modules have a prefix.
PREFIXES = {"sync.py": "caproot.sync.", "testing.py": "caproot.testing.", "deepagents.py": "caproot.deepagents."}


def is_public(name):
    return not name.startswith("_")


class Shortener(ast.NodeTransformer):
    """Writes `Union[A, B]` as `A | B`, and a forward reference without quotation marks."""

    def visit_Subscript(self, node):
        self.generic_visit(node)
        if ast.unparse(node.value) != "Union":
            return node
        return functools.reduce(lambda left, right: ast.BinOp(left, ast.BitOr(), right), node.slice.elts)

    def visit_Constant(self, node):
        return ast.parse(node.value, mode="eval").body if isinstance(node.value, str) else node


def shown(node):
    """Returns the text of an annotation."""
    if not ast.unparse(node).startswith("Literal["):
        node = Shortener().visit(node)
    return ast.unparse(node).replace("builtins.", "")


def parameters(function, is_method):
    """Returns the parameters of a function as texts."""
    spec = function.args
    plain = [*spec.posonlyargs, *spec.args]
    defaults = [None] * (len(plain) - len(spec.defaults)) + spec.defaults
    named = list(zip(plain, defaults))
    is_static = any(ast.unparse(decorator) == "staticmethod" for decorator in function.decorator_list)
    if is_method and not is_static:
        named = named[1:]
    texts = [parameter_text(argument, default) for argument, default in named]
    if spec.vararg:
        texts.append(f"*{parameter_text(spec.vararg, None)}")
    elif spec.kwonlyargs:
        texts.append("*")
    texts += [parameter_text(argument, default) for argument, default in zip(spec.kwonlyargs, spec.kw_defaults)]
    if spec.kwarg:
        texts.append(f"**{parameter_text(spec.kwarg, None)}")
    return texts


def parameter_text(argument, default):
    text = argument.arg
    if argument.annotation is not None:
        text += f": {shown(argument.annotation)}"
    if default is not None:
        text += f" = {ast.unparse(default)}" if argument.annotation is not None else f"={ast.unparse(default)}"
    return text


def signature(name, function, is_method):
    """Returns a block with the signature of a function."""
    head = "await " if isinstance(function, ast.AsyncFunctionDef) else ""
    result = f" -> {shown(function.returns)}" if function.returns is not None else ""
    result = "" if result == " -> None" else result
    texts = parameters(function, is_method)
    line = f"{head}{name}({', '.join(texts)}){result}"
    if len(line) > WIDTH:
        inside = "".join(f"    {text},\n" for text in texts)
        line = f"{head}{name}(\n{inside}){result}"
    return f"```text\n{line}\n```"


def docstring(node):
    return ast.get_docstring(node) or sys.exit(f"{node.name} has no docstring")


def prose(text):
    """Returns a docstring as Markdown. The items of a section become a list."""
    lines = []
    in_section = in_code = False
    for line in text.splitlines():
        in_code ^= line.startswith("```")
        heading = re.match(r"(Args|Raises.*):$", line)
        if heading and not in_code:
            title = "Arguments" if heading[1] == "Args" else heading[1]
            lines += [f"{title}:", ""]
            in_section = True
        elif in_section and (item := re.match(r"    ([\w, ]+): (.*)$", line)):
            names = ", ".join(f"`{name}`" for name in item[1].split(", "))
            lines.append(f"- {names}: {item[2]}")
        elif in_section and line.startswith("     "):
            lines[-1] += f" {line.strip()}"
        else:
            in_section = in_section and bool(line.strip())
            lines.append(line)
    return "\n".join(lines).strip()


def attributes(body):
    """Returns the lines of a list of attributes: annotated names, and properties."""
    lines = []
    for node, following in zip(body, [*body[1:], None]):
        if isinstance(node, ast.AnnAssign) and is_public(node.target.id):
            is_described = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            text = inspect.cleandoc(following.value.value) if is_described else ""
            lines.append(attribute_line(node.target.id, node.annotation, text))
        elif isinstance(node, ast.FunctionDef) and is_property(node):
            lines.append(attribute_line(node.name, node.returns, docstring(node)))
    return lines


def attribute_line(name, annotation, text):
    words = " ".join(text.split())
    return f"- `{name}: {shown(annotation)}`" + (f": {words}" if words else "")


def is_property(node):
    return any(ast.unparse(decorator) == "property" for decorator in node.decorator_list)


def is_overload(node):
    return any(ast.unparse(decorator) == "overload" for decorator in node.decorator_list)


def render_class(name, node):
    """Yields the parts of a class: its docstring, its attributes and its methods."""
    yield f"## {name}"
    bases = {ast.unparse(base) for base in node.bases}
    functions = [item for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
    (begin,) = [item for item in functions if item.name == "__init__"] or [None]
    yield prose(docstring(node))
    # Errors and sessions are made by the package.
    if begin is not None and ast.get_docstring(begin):
        yield signature(node.name, begin, True)
        yield prose(docstring(begin))
    lines = attributes(node.body)
    if lines:
        yield "\n".join(lines)

    is_backend = "BackendProtocol" in bases
    for method in functions:
        if is_public(method.name) and not is_property(method) and not is_overload(method) and not is_backend:
            yield f"### {node.name}.{method.name}"
            yield signature(f"{node.name}.{method.name}", method, True)
            yield prose(docstring(method))


def render_alias(name, node, text):
    """Yields the parts of a type alias with the text below it."""
    yield f"## {name}"
    yield f"```text\n{name} = {shown(node.value)}\n```"
    yield text


def render_function(name, node):
    """Yields the parts of a function."""
    yield f"## {name}"
    yield signature(name, node, False)
    yield prose(docstring(node))


def render_object(body, prefix, name):
    """Returns the parts of an object of a module."""
    for node, following in zip(body, [*body[1:], None]):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return render_alias(prefix + name, node, inspect.cleandoc(following.value.value))
        if isinstance(node, ast.ClassDef) and node.name == name:
            return render_class(prefix + name, node)
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return render_function(prefix + name, node)
    sys.exit(f"no module defines {name}")


def render_page(page, trees):
    """Returns the text of a page."""
    others = [f"[{other.title.removeprefix('Python: ')}]({other.name}.md)" for other in ALL_PAGES if other is not page]
    parts = [HEAD.format(title=page.title, text=page.text, others=", ".join(others)).strip()]
    for module, names in page.objects:
        for name in names.split():
            parts += [part for part in render_object(trees[module].body, PREFIXES.get(module, ""), name) if part]
    text = "\n\n".join(parts) + "\n"
    if len(text.encode()) > MAX_PAGE_BYTES:
        sys.exit(f"{page.name}.md has {len(text.encode())} bytes: divide the page")
    return text


def public_names(trees):
    """Returns the names of the package that a page must have."""
    (names,) = [ast.literal_eval(node.value) for node in trees["__init__.py"].body
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"]  # fmt: skip
    return {name for name in names if is_public(name)} - {"sync", "testing"}


def make_pages(types):
    """Returns the texts of the pages by their names. The types are those of `make_types`."""
    trees = {path.name: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES.glob("*.py")}
    trees["_line_types.py"] = ast.parse(types)
    pages = {f"{page.name}.md": render_page(page, trees) for page in ALL_PAGES}

    described = {name for page in ALL_PAGES for _, names in page.objects for name in names.split()}
    defined = set(re.findall(r"^(?:class )?([A-Z]\w+)(?: =|\()", types, re.MULTILINE))
    mentioned = defined.intersection(re.findall(r"\w+", "".join(pages.values())))
    missing = (public_names(trees) | mentioned) - described
    if missing:
        sys.exit(f"no page describes {sorted(missing)}: add the names to {Path(__file__).name}")
    return pages


def main():
    program, directory = sys.argv[1:]
    for name, text in make_pages(make_types(program)).items():
        (Path(directory) / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
