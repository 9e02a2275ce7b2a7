//! Hooks: commands, requests and prompts that a host runs on events.

use crate::model::plugin::{MAX_COMPONENTS, PluginHook};
use crate::model::{DiagnosticCode, DynamicValue, Severity};
use crate::parse::fields::{FieldMapping, FieldReader, MAX_NAME_CHARS, MAX_TEXT_CHARS};
use crate::parse::secret_filter;
use caproot_core::text;
use caproot_core::wire::RelPath;

/// Maximum length of a command or prompt.
const MAX_COMMAND_CHARS: usize = 8_192;
/// Events of known hosts, in lower case.
const KNOWN_EVENTS: [&str; 38] = [
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

/// Reads `{"hooks": {EVENT: [{"matcher": …, "hooks": [{…}]}]}}` or only the inner object.
pub fn read(fields: &mut FieldReader<'_>, value: &DynamicValue) -> Vec<PluginHook> {
    let inner = value.get("hooks").filter(|inner| inner.as_map().is_some());
    if inner.is_some() {
        fields.report_unknown_keys(
            FieldMapping::root(value),
            &["hooks", "description", "version"],
        );
    }
    let events = inner.unwrap_or(value).as_map().unwrap_or_default();
    let mut found = Vec::new();
    let mut omitted = 0;
    for (event, groups) in events.iter().filter(|(event, _)| &**event != "$schema") {
        // An event may have a long name and many hooks: search the name for secrets once.
        let name = secret_filter::redact_in_text(event);
        let name = text::truncate_chars(&name, MAX_NAME_CHARS);
        let Some(groups) = groups.as_list() else {
            fields.report_unusable(
                "event",
                name,
                &format!("must be a list, but is {}", groups.kind()),
            );
            continue;
        };
        if !KNOWN_EVENTS.contains(&&*event.to_lowercase()) {
            let shown = text::quote_word(name);
            let why = format!("unknown event {shown}; its hooks are still reported");
            fields.report_problem(DiagnosticCode::FieldUnknown, Severity::Note, why);
        }

        for group in groups {
            if group.as_map().is_none() {
                fields.report_unusable(
                    "hook of",
                    name,
                    &format!("must be an object, but is {}", group.kind()),
                );
                continue;
            }
            let at = FieldMapping::new(group, &["hooks"], name);
            let matcher = fields
                .read_line(at, "matcher", MAX_TEXT_CHARS)
                .unwrap_or_default();
            let hooks = match group.get("hooks") {
                // Some hosts declare hooks without groups.
                None => std::slice::from_ref(group),
                Some(DynamicValue::List(hooks)) => {
                    fields.report_unknown_keys(at, &["matcher", "hooks", "description"]);
                    hooks
                }
                Some(other) => {
                    fields.report_wrong_type(at, "hooks", other, "a list");
                    continue;
                }
            };
            for value in hooks {
                if found.len() == MAX_COMPONENTS {
                    omitted += 1;
                } else {
                    found.extend(read_hook(fields, name, &matcher, value));
                }
            }
        }
    }

    if omitted > 0 {
        let why = format!("a file may declare {MAX_COMPONENTS} hooks; {omitted} omitted");
        fields.report_warning(DiagnosticCode::LimitReached, why);
    }
    found
}

/// Reads a hook of an event, whose name has no secrets.
fn read_hook(
    fields: &mut FieldReader<'_>,
    event: &str,
    matcher: &str,
    value: &DynamicValue,
) -> Option<PluginHook> {
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
        fields.report_unusable(
            "hook of",
            event,
            &format!("must be an object, but is {}", value.kind()),
        );
        return None;
    }
    let at = FieldMapping::new(value, &["hooks"], event);
    let kind = fields.read_line(at, "type", MAX_NAME_CHARS);
    let command = fields
        .read_verbatim(at, "command", MAX_COMMAND_CHARS)
        .unwrap_or_default();
    let url = fields
        .read_verbatim(at, "url", MAX_TEXT_CHARS)
        .unwrap_or_default();
    let prompt = fields
        .read_line(at, "prompt", MAX_COMMAND_CHARS)
        .unwrap_or_default();
    let kind = kind.unwrap_or_else(|| "command".into());
    let missing = match &*kind {
        "command" => command.is_empty().then_some("`command`"),
        "http" => url.is_empty().then_some("`url`"),
        "prompt" | "agent" => prompt.is_empty().then_some("`prompt`"),
        _ => None,
    };
    if let Some(key) = missing {
        fields.report_unusable("hook of", event, &format!("has no valid {key}"));
        return None;
    }
    if !["command", "http", "prompt", "agent", "mcp_tool"].contains(&&*kind) {
        let why = format!(
            "unknown hook type {}; the hook is still reported",
            text::quote_word(&kind)
        );
        fields.report_problem(DiagnosticCode::FieldUnknown, Severity::Note, why);
    }
    let (command, command_redacted) = secret_filter::redact_in_command(command);
    let (args, args_redacted) =
        secret_filter::redact_in_arguments(fields.read_verbatim_list(at, "args", MAX_TEXT_CHARS));
    let (url, url_redacted) = secret_filter::redact_in_url(url);
    let redacted =
        command_redacted || args_redacted || url_redacted || at.non_null_value("headers").is_some();
    if command_redacted || args_redacted || url_redacted {
        fields.report_redacted(&format!("a hook of {}", text::quote_word(event)));
    }
    let timeout_key = at.find_present_key(["timeout", "timeoutSec"]);
    let timeout_ms = timeout_key.and_then(|key| fields.read_duration_ms(at, key, 1_000.0));
    fields.report_unknown_keys(at, KEYS);
    Some(PluginHook {
        event: event.into(),
        matcher: matcher.into(),
        kind,
        command: command.into(),
        args,
        url: url.into(),
        prompt,
        timeout_ms,
        redacted,
        declared_by: RelPath::root(),
    })
}
