//! LSP servers and the file extensions that they handle.

use crate::model::DynamicValue;
use crate::model::plugin::LspServer;
use crate::parse::fields::{FieldMapping, FieldReader, MAX_NAME_CHARS, MAX_TEXT_CHARS};
use crate::parse::secret_filter;
use caproot_core::text;
use caproot_core::wire::RelPath;

/// Reads `{"lspServers": {NAME: {…}}}` or only the inner object.
pub fn read(fields: &mut FieldReader<'_>, value: &DynamicValue) -> Vec<LspServer> {
    let inner = value
        .get("lspServers")
        .filter(|inner| inner.as_map().is_some());
    if inner.is_some() {
        fields.report_unknown_keys(FieldMapping::root(value), &["lspServers"]);
    }
    let entries = inner.unwrap_or(value).as_map().unwrap_or_default();
    let entries = fields.take_components("LSP servers", entries).iter();
    let entries = entries.filter(|(name, _)| &**name != "$schema");
    entries
        .filter_map(|(name, value)| read_server(fields, name, value))
        .collect()
}

fn read_server(
    fields: &mut FieldReader<'_>,
    name: &str,
    value: &DynamicValue,
) -> Option<LspServer> {
    const KEYS: &[&str] = &[
        "command",
        "args",
        "env",
        "extensionToLanguage",
        "transport",
        "initializationOptions",
        "settings",
        "workspaceFolder",
        "startupTimeout",
        "shutdownTimeout",
        "restartOnCrash",
        "maxRestarts",
        "loggingConfig",
    ];
    let name = fields.check_component_name("LSP server", name)?;
    if value.as_map().is_none() {
        fields.report_unusable(
            "LSP server",
            &name,
            &format!("must be an object, but is {}", value.kind()),
        );
        return None;
    }
    let at = FieldMapping::new(value, &["lspServers"], &name);
    let Some(command) = fields.read_verbatim(at, "command", MAX_TEXT_CHARS) else {
        fields.report_unusable("LSP server", &name, "has no valid `command`");
        return None;
    };
    let (command, command_redacted) = secret_filter::redact_in_command(command);
    let (args, args_redacted) =
        secret_filter::redact_in_arguments(fields.read_verbatim_list(at, "args", MAX_TEXT_CHARS));
    let clean_text = |text: &str| {
        text::truncate_chars(&secret_filter::redact_in_text(text), MAX_NAME_CHARS).into()
    };
    let environment: Box<[Box<str>]> = fields
        .read_entries(at, "env")
        .iter()
        .map(|(name, _)| clean_text(name))
        .collect();
    let extensions = fields.read_entries(at, "extensionToLanguage").iter();
    let extensions = extensions.map(|(extension, language)| {
        clean_text(&format!(
            "{extension}={}",
            language.as_text().unwrap_or_default()
        ))
    });
    let extensions = extensions.collect();
    if command_redacted || args_redacted {
        fields.report_redacted(&format!("the LSP server {}", text::quote_word(&name)));
    }
    fields.report_unknown_keys(at, KEYS);
    Some(LspServer {
        name,
        command: command.into(),
        args,
        redacted: command_redacted || args_redacted || !environment.is_empty(),
        environment,
        extensions,
        declared_by: RelPath::root(),
    })
}
