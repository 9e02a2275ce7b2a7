//! The words for the codes of what plugins declare.

use super::{CodeExample, CodeExplanation, Error, Warning};

pub(super) const FILE_INVALID: CodeExplanation = CodeExplanation {
    default_severity: Error,
    summary: "a plugin's file that cannot be used",
    cause: "A file in which a plugin declares MCP servers, apps, hooks or LSP servers, or the list \
        of a marketplace, is no JSON, no object, or over 256 KiB. JSON has no comments, and no key \
        twice. Nothing of the file is reported; a daemon that watched it goes on with what it last \
        said.",
    fix: "Correct it at the line and column that are shown.",
    help: "correct the JSON; it has no comments, no trailing commas and no key twice",
    example: CodeExample::File {
        path: "skills/.claude-plugin/marketplace.json",
        before: "{\"name\": \"tools\", \"plugins\": [],}",
        after: "{\"name\": \"tools\", \"plugins\": []}",
    },
};

pub(super) const PATH_INVALID: CodeExplanation = CodeExplanation {
    default_severity: Warning,
    summary: "a path that leaves the plugin",
    cause: "What a plugin.json names by path must be `./` and a path inside the plugin: not \
        absolute, no `..`, and no link that leads out of it. A server's working directory must \
        be inside it too. The path is not followed.",
    fix: "Move what it names into the plugin, and begin the path with `./`.",
    help: "begin the path with `./`, and keep it inside the plugin",
    example: CodeExample::File {
        path: "skills/.codex-plugin/plugin.json",
        before: "{\"name\": \"pdf-tools\", \"skills\": \"pdf\"}",
        after: "{\"name\": \"pdf-tools\", \"skills\": \"./pdf\"}",
    },
};

pub(super) const PATH_MISSING: CodeExplanation = CodeExplanation {
    default_severity: Warning,
    summary: "a path to nothing",
    cause: "A plugin.json names a file or directory that is not there, or is not of the kind that \
        is needed. What it should declare is not reported.",
    fix: "Create it, correct the path, or remove it from the plugin.json.",
    help: "create what it names, or correct the path",
    example: CodeExample::File {
        path: "skills/.codex-plugin/plugin.json",
        before: "{\"name\": \"pdf-tools\", \"skills\": \"./skils\"}",
        after: "{\"name\": \"pdf-tools\", \"skills\": \"./pdf\"}",
    },
};

pub(super) const COMPONENT_INVALID: CodeExplanation = CodeExplanation {
    default_severity: Error,
    summary: "a component that cannot be used",
    cause: "Something that a plugin declares lacks what is needed to use it: an MCP server without \
        command or url, or with a transport that is not known; an app without id; a hook without \
        command; a name that is empty or too long. It is left out; the others stay.",
    fix: "Add what the message says is missing.",
    help: "add what is missing, or remove it",
    example: CodeExample::File {
        path: "skills/.codex-plugin/plugin.json",
        before: "{\"name\": \"pdf-tools\", \"mcpServers\": {\"pages\": {\"args\": [\"serve\"]}}}",
        after: "{\"name\": \"pdf-tools\", \"mcpServers\": {\"pages\": {\"command\": \"pages\"}}}",
    },
};

pub(super) const SECRET_REDACTED: CodeExplanation = CodeExplanation {
    default_severity: Warning,
    summary: "a secret in a declaration",
    cause: "A command, an argument, an address, a header or a variable holds what is likely to be \
        a secret, by the name before it or by its looks. It is reported without it, so that no \
        secret leaves the machine; whoever is to use it has to get it otherwise.",
    fix: "Keep the secret out of the file: name the variable of the environment that holds it.",
    help: "take it from the environment: `${NAME}`",
    example: CodeExample::File {
        path: "skills/.codex-plugin/plugin.json",
        before: "{\"name\": \"pdf-tools\", \"mcpServers\": {\n  \
            \"pages\": {\"command\": \"pages\", \"args\": [\"--token=hunter2\"]}}}",
        after: "{\"name\": \"pdf-tools\", \"mcpServers\": {\n  \
            \"pages\": {\"command\": \"pages\", \"args\": [\"--token=${PAGES_TOKEN}\"]}}}",
    },
};
