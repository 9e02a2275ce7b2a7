//! LSP servers: which command serves which files.

use super::fields::{LabeledMapping, MAX_NAME_CHARS, MAX_TEXT_CHARS, PluginFieldReader};
use super::secret_filter;
use crate::domain::{DiagnosticCode, DynamicValue, RelPath, text};

/// One LSP server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the proto's `LspServer` says what each means
pub struct LspServer {
    pub name: Box<str>,
    pub command: Box<str>,
    pub args: Box<[Box<str>]>,
    pub environment: Box<[Box<str>]>,
    /// As declared, such as `.rs=rust`.
    pub extensions: Box<[Box<str>]>,
    pub redacted: bool,
    /// Where it is declared, below the plugin.
    pub declared_by: RelPath,
}

/// Reads `{"lspServers": {NAME: {…}}}`, or the inner object alone.
pub(super) fn read(fields: &mut PluginFieldReader<'_>, value: &DynamicValue) -> Vec<LspServer> {
    let inner = value.get("lspServers").filter(|inner| inner.as_map().is_some());
    if inner.is_some() {
        fields.report_unknown_keys(LabeledMapping::root(value), &["lspServers"]);
    }
    let entries = inner.unwrap_or(value).as_map().unwrap_or_default();
    let entries = fields.take_components("LSP servers", entries).iter();
    let entries = entries.filter(|(name, _)| &**name != "$schema");
    entries.filter_map(|(name, value)| read_server(fields, name, value)).collect()
}

fn read_server(
    fields: &mut PluginFieldReader<'_>,
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
            &format!("is {}, and must be an object", value.kind()),
        );
        return None;
    }
    let at = LabeledMapping::new(value, "lspServers", &name);
    let Some(command) = fields.read_verbatim(at, "command", MAX_TEXT_CHARS) else {
        fields.report_unusable("LSP server", &name, "has no `command` that can be used");
        return None;
    };
    let (command, hid_command) = secret_filter::redact_in_command(command);
    let (args, hid_args) =
        secret_filter::redact_in_arguments(fields.read_verbatim_list(at, "args", MAX_TEXT_CHARS));
    let cut = |text: &str| {
        text::truncate_chars(&secret_filter::redact_in_text(text), MAX_NAME_CHARS).into()
    };
    let environment: Box<[Box<str>]> =
        fields.read_entries(at, "env").iter().map(|(name, _)| cut(name)).collect();
    let extensions = fields.read_entries(at, "extensionToLanguage").iter();
    let extensions = extensions.map(|(extension, language)| {
        cut(&format!("{extension}={}", language.as_text().unwrap_or_default()))
    });
    let extensions = extensions.collect();
    if hid_command || hid_args {
        let why = format!(
            "the LSP server {} holds what may be a secret, which is redacted; \
             take it from the environment: `${{NAME}}`",
            text::quote_word(&name)
        );
        fields.report_warning(DiagnosticCode::SecretRedacted, why);
    }
    fields.report_unknown_keys(at, KEYS);
    Some(LspServer {
        name,
        command: command.into(),
        args,
        redacted: hid_command || hid_args || !environment.is_empty(),
        environment,
        extensions,
        declared_by: RelPath::root(),
    })
}
