"""Skills of executors for the model of a Python program.

```python
async with caproot.connect() as skills:
    reply = await model(tools=skills.tools, text=skills.text)
    result = await skills.call(reply.name, reply.arguments)
```

`connect` begins a session. `caproot.sync` has the same without asyncio, and `caproot.testing` serves a
directory for a test.
"""

from pkgutil import extend_path

from ._errors import (
    ConfigError,
    DispatchError,
    Error,
    ForkedError,
    ProgramError,
    Refused,
    SealedError,
    StoreError,
    ToolError,
)
from ._results import Authority, ResultImage, Skill, ToolResult
from ._version import __version__

# A program may have generated stubs of our protos as `caproot/v1` in a directory of its own.
__path__ = extend_path(__path__, __name__)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import sync, testing
    from ._codex import Codex
    from ._dispatch import Dispatcher
    from ._fleet import Executor, Fleet
    from ._servers import AuthorizationRequest, PluginServers, ServerValueRequest
    from ._session import Session, connect
    from ._sources import LocalSkills, McpServer, Site
    from ._tools import Tools

__all__ = [
    "Authority",
    "AuthorizationRequest",
    "Codex",
    "ConfigError",
    "DispatchError",
    "Dispatcher",
    "Error",
    "Executor",
    "Fleet",
    "ForkedError",
    "LocalSkills",
    "McpServer",
    "PluginServers",
    "ProgramError",
    "Refused",
    "ResultImage",
    "SealedError",
    "ServerValueRequest",
    "Session",
    "Site",
    "Skill",
    "StoreError",
    "ToolError",
    "ToolResult",
    "Tools",
    "__version__",
    "connect",
    "sync",
    "testing",
]

# Loaded when first used, as these modules need asyncio, typing and json.
_LAZY = {
    "AuthorizationRequest": "_servers",
    "Codex": "_codex",
    "Dispatcher": "_dispatch",
    "Executor": "_fleet",
    "Fleet": "_fleet",
    "LocalSkills": "_sources",
    "McpServer": "_sources",
    "PluginServers": "_servers",
    "ServerValueRequest": "_servers",
    "Session": "_session",
    "Site": "_sources",
    "Tools": "_tools",
    "connect": "_session",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f".{_LAZY.get(name, name)}", __name__)
    value = globals()[name] = getattr(module, name) if name in _LAZY else module
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
