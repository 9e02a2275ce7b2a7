//! Hooks: what a host is asked to run, and when. Nothing here is run.

use super::fields::{At, Fields, MAX_NAME, MAX_TEXT};
use super::{MAX_COMPONENTS, secret};
use crate::domain::{Code, RelPath, Severity, Value, text};

/// Characters of a command or a prompt.
const MAX_COMMAND: usize = 8_192;
/// Events that hosts are known to have, in lower case.
const EVENTS: [&str; 38] = [
    "pretooluse",
    "permissionrequest",
    "permissiondenied",
    "posttooluse",
    "posttoolusefailure",
    "posttoolbatch",
    "precompact",
    "postcompact",
    "sessionstart",
    "sessionend",
    "setup",
    "userpromptsubmit",
    "userpromptexpansion",
    "subagentstart",
    "subagentstop",
    "stop",
    "stopfailure",
    "notification",
    "teammateidle",
    "taskcreated",
    "taskcompleted",
    "configchange",
    "cwdchanged",
    "filechanged",
    "worktreecreate",
    "worktreeremove",
    "instructionsloaded",
    "elicitation",
    "elicitationresult",
    "beforesubmitprompt",
    "beforeshellexecution",
    "aftershellexecution",
    "beforemcpexecution",
    "aftermcpexecution",
    "beforereadfile",
    "afterfileedit",
    "afteragentresponse",
    "afteragentthought",
];

/// One hook.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the proto's `Hook` says what each means
pub struct Hook {
    pub event: Box<str>,
    pub matcher: Box<str>,
    pub kind: Box<str>,
    pub command: Box<str>,
    pub args: Box<[Box<str>]>,
    pub url: Box<str>,
    pub prompt: Box<str>,
    /// In milliseconds.
    pub timeout: Option<u64>,
    pub withheld: bool,
    /// Where it is declared, below the plugin.
    pub file: RelPath,
}

/// Reads `{"hooks": {EVENT: [{"matcher": …, "hooks": [{…}]}]}}`, or the inner object alone.
pub(super) fn read(fields: &mut Fields<'_>, value: &Value) -> Vec<Hook> {
    let inner = value.get("hooks").filter(|inner| inner.as_map().is_some());
    if inner.is_some() {
        fields.unknown(At::root(value), &["hooks", "description", "version"]);
    }
    let events = inner.unwrap_or(value).as_map().unwrap_or_default();
    let mut found = Vec::new();
    for (event, groups) in events.iter().filter(|(event, _)| &**event != "$schema") {
        let shown = text::shown(&secret::clean(event));
        let Some(groups) = groups.as_list() else {
            fields.useless("event", event, &format!("is {}, and must be a list", groups.kind()));
            continue;
        };
        if !EVENTS.contains(&&*event.to_lowercase()) {
            let why =
                format!("the event {shown} is not known; its hooks are reported all the same");
            fields.report(Code::FieldUnknown, Severity::Note, why);
        }
        for group in groups {
            if group.as_map().is_none() {
                fields.useless(
                    "hook of",
                    event,
                    &format!("is {}, and must be an object", group.kind()),
                );
                continue;
            }
            let at = At::named(group, "hooks", event);
            let matcher = fields.line(at, "matcher", MAX_TEXT).unwrap_or_default();
            let hooks = match group.get("hooks") {
                // Some hosts have no groups.
                None => std::slice::from_ref(group),
                Some(Value::List(hooks)) => {
                    fields.unknown(at, &["matcher", "hooks", "description"]);
                    hooks
                }
                Some(other) => {
                    fields.wrong(at, "hooks", other, "a list");
                    continue;
                }
            };
            for value in hooks {
                found.extend(hook(fields, event, &matcher, value));
            }
        }
    }
    if found.len() > MAX_COMPONENTS {
        let more = found.len() - MAX_COMPONENTS;
        let why = format!("a file may declare {MAX_COMPONENTS} hooks; {more} are left out");
        fields.warn(Code::LimitReached, why);
        found.truncate(MAX_COMPONENTS);
    }
    found
}

fn hook(fields: &mut Fields<'_>, event: &str, matcher: &str, value: &Value) -> Option<Hook> {
    const KEYS: &[&str] = &[
        "type",
        "command",
        "commandWindows",
        "args",
        "url",
        "prompt",
        "timeout",
        "timeoutSec",
        "matcher",
        "async",
        "statusMessage",
        "shell",
        "once",
        "if",
        "model",
        "headers",
        "server",
        "tool",
        "input",
        "allowedEnvVars",
        "description",
        "name",
        "failClosed",
        "loop_limit",
    ];
    if value.as_map().is_none() {
        fields.useless("hook of", event, &format!("is {}, and must be an object", value.kind()));
        return None;
    }
    let at = At::named(value, "hooks", event);
    let kind = fields.line(at, "type", MAX_NAME);
    let command = fields.whole(at, "command", MAX_COMMAND).unwrap_or_default();
    let url = fields.whole(at, "url", MAX_TEXT).unwrap_or_default();
    let prompt = fields.line(at, "prompt", MAX_COMMAND).unwrap_or_default();
    let kind = kind.unwrap_or_else(|| "command".into());
    let lacks = match &*kind {
        "command" => command.is_empty().then_some("no `command`"),
        "http" => url.is_empty().then_some("no `url`"),
        "prompt" | "agent" => prompt.is_empty().then_some("no `prompt`"),
        _ => None,
    };
    if let Some(lacks) = lacks {
        fields.useless("hook of", event, &format!("has {lacks} that can be used"));
        return None;
    }
    if !["command", "http", "prompt", "agent", "mcp_tool"].contains(&&*kind) {
        let why = format!(
            "a hook is of the kind {}, which is not known; it is reported all the same",
            text::shown(&kind)
        );
        fields.report(Code::FieldUnknown, Severity::Note, why);
    }
    let (command, hid_command) = secret::command(command);
    let (args, hid_args) = secret::arguments(fields.texts(at, "args", MAX_TEXT));
    let (url, hid_url) = secret::url(url);
    let withheld = hid_command || hid_args || hid_url || at.get("headers").is_some();
    if hid_command || hid_args || hid_url {
        let event = text::shown(&secret::clean(event));
        let why = format!(
            "a hook of {event} holds what may be a secret, which is withheld; take it from the environment: `${{NAME}}`"
        );
        fields.warn(Code::SecretWithheld, why);
    }
    let timeout = ["timeout", "timeoutSec"].into_iter().find(|key| at.get(key).is_some());
    let timeout = timeout.and_then(|key| fields.time(at, key, 1_000.0));
    fields.unknown(at, KEYS);
    Some(Hook {
        event: text::cut(&secret::clean(event), MAX_NAME).into(),
        matcher: matcher.into(),
        kind,
        command: command.into(),
        args,
        url: url.into(),
        prompt,
        timeout,
        withheld,
        file: RelPath::root(),
    })
}
