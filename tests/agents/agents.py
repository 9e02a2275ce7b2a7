"""How the agents of other makes are configured and started, each in a home of its own."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

BIN = Path(__file__).resolve().parents[2] / ".tools/hosts/node_modules/.bin"


@dataclass
class Agent:
    """An agent: its name, a function that writes its configuration, its command line, and facts about it.

    `sees_changes` says whether a new skill reaches the model within the conversation. `shell` is the tool that runs a
    command, with the argument that has the command.
    """

    name: str
    configure: object
    command: object
    sees_changes: bool
    shell: tuple


def servers(arguments, **more):
    """Returns the MCP servers of an agent. Without arguments, there is none."""
    return {} if arguments is None else {"caproot": {"command": "caproot", "args": ["mcp", *arguments], **more}}


def configure_codex(home, address, arguments):
    folder = home / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text(
        f"""model = "gpt-5.5"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.scripted]
name = "scripted"
base_url = "{address}/v1"
wire_api = "responses"
"""
        + "".join(
            f"[mcp_servers.{name}]\ncommand = {json.dumps(entry['command'])}\nargs = {json.dumps(entry['args'])}\n"
            for name, entry in servers(arguments).items()
        )
    )
    return {"CODEX_HOME": str(folder)}


def configure_claude(home, address, arguments):
    (home / "mcp.json").write_text(json.dumps({"mcpServers": servers(arguments)}))
    return {
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": "scripted",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
    }


def configure_gemini(home, address, arguments):
    folder = home / ".gemini"
    folder.mkdir()
    settings = {
        "mcpServers": servers(arguments, trust=True),
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    return {"GEMINI_API_KEY": "scripted", "GOOGLE_GEMINI_BASE_URL": address, "GEMINI_CLI_NO_RELAUNCH": "1"}


def configure_opencode(home, address, arguments):
    folder = home / ".config/opencode"
    folder.mkdir(parents=True)
    config = {
        "model": "scripted/model",
        "small_model": "scripted/model",
        "autoupdate": False,
        "share": "disabled",
        "permission": {"bash": "allow", "edit": "deny", "webfetch": "deny"},
        "provider": {
            "scripted": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": f"{address}/v1", "apiKey": "scripted"},
                "models": {"model": {"tool_call": True}},
            }
        },
        "mcp": {
            name: {"type": "local", "command": [entry["command"], *entry["args"]], "enabled": True}
            for name, entry in servers(arguments).items()
        },
    }
    (folder / "opencode.json").write_text(json.dumps(config))
    return {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}


AGENTS = [
    Agent(
        "codex",
        configure_codex,
        lambda prompt, home: ["exec", "--skip-git-repo-check", prompt],
        sees_changes=False,
        shell=("exec_command", "cmd"),
    ),
    Agent(
        "claude",
        configure_claude,
        lambda prompt, home: [
            "-p", prompt, "--mcp-config", str(home / "mcp.json"), "--strict-mcp-config",
            "--allowedTools", "mcp__caproot", "Bash", "--model", "claude-sonnet-4-5",
        ],  # fmt: skip
        sees_changes=False,
        shell=("Bash", "command"),
    ),
    Agent(
        "gemini",
        configure_gemini,
        lambda prompt, home: ["--yolo", "--model", "gemini-2.5-pro", "-p", prompt],
        sees_changes=True,
        shell=("run_shell_command", "command"),
    ),
    Agent(
        "opencode",
        configure_opencode,
        lambda prompt, home: ["run", prompt],
        sees_changes=True,
        shell=("bash", "command"),
    ),
]


def run(agent, home, work, address, arguments, caproot, prompt, timeout):
    """Runs an agent for one prompt, and returns the finished process. `caproot` is the directory of the program."""
    environment = {
        "HOME": str(home),
        "PATH": f"{caproot}:{os.environ['PATH']}",
        "TERM": "dumb",
        "LANG": "C.UTF-8",
        "NO_PROXY": "*",
        **agent.configure(home, address, arguments),
    }
    # Codex runs commands in a login shell, which sets PATH again.
    (home / ".profile").write_text(f'PATH="{caproot}:$PATH"\n')
    program = shutil.which(agent.name, path=str(BIN)) or agent.name
    # `timeout` ends all that the agent started.
    command = ["timeout", "--kill-after=5", str(timeout), program, *agent.command(prompt, home)]
    return subprocess.run(
        command, cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
