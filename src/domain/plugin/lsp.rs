//! LSP servers: which command serves which files.

use super::fields::{At, Fields, MAX_NAME, MAX_TEXT};
use super::{bounds, secret};
use crate::domain::{Code, RelPath, Value, text};

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
    pub withheld: bool,
    /// Where it is declared, below the plugin.
    pub file: RelPath,
}

/// Reads `{"lspServers": {NAME: {…}}}`, or the inner object alone.
pub(super) fn read(fields: &mut Fields<'_>, value: &Value) -> Vec<LspServer> {
    let inner = value.get("lspServers").filter(|inner| inner.as_map().is_some());
    if inner.is_some() {
        fields.unknown(At::root(value), &["lspServers"]);
    }
    let entries = inner.unwrap_or(value).as_map().unwrap_or_default();
    let entries = bounds::first(fields, "LSP servers", entries).iter();
    let entries = entries.filter(|(name, _)| &**name != "$schema");
    entries.filter_map(|(name, value)| server(fields, name, value)).collect()
}

fn server(fields: &mut Fields<'_>, name: &str, value: &Value) -> Option<LspServer> {
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
    let name = bounds::name(fields, "LSP server", name)?;
    if value.as_map().is_none() {
        fields.useless("LSP server", &name, &format!("is {}, and must be an object", value.kind()));
        return None;
    }
    let at = At::named(value, "lspServers", &name);
    let Some(command) = fields.whole(at, "command", MAX_TEXT) else {
        fields.useless("LSP server", &name, "has no `command` that can be used");
        return None;
    };
    let (command, hid_command) = secret::command(command);
    let (args, hid_args) = secret::arguments(fields.texts(at, "args", MAX_TEXT));
    let cut = |text: &str| text::cut(&secret::clean(text), MAX_NAME).into();
    let environment: Box<[Box<str>]> =
        fields.entries(at, "env").iter().map(|(name, _)| cut(name)).collect();
    let extensions = fields.entries(at, "extensionToLanguage").iter();
    let extensions = extensions.map(|(extension, language)| {
        cut(&format!("{extension}={}", language.as_text().unwrap_or_default()))
    });
    let extensions = extensions.collect();
    if hid_command || hid_args {
        let why = format!(
            "the LSP server {} holds what may be a secret, which is withheld; \
             take it from the environment: `${{NAME}}`",
            text::shown(&name)
        );
        fields.warn(Code::SecretWithheld, why);
    }
    fields.unknown(at, KEYS);
    Some(LspServer {
        name,
        command: command.into(),
        args,
        withheld: hid_command || hid_args || !environment.is_empty(),
        environment,
        extensions,
        file: RelPath::root(),
    })
}
