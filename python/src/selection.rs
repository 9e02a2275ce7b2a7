//! Options of a new session, as Python passes them.

use crate::callback::CallbackTarget;
use crate::fleet::parse_seconds;
use crate::mailbox::MailboxShared;
use caproot_client::session::{
    ChoiceRule, McpServerChoice, McpServerOptions, ServerValueRequest, ServerValues,
    SessionOptions, SkillChoice, ToolNames, ToolRegistry,
};
use caproot_client::{Trust, parse_selected_roots};
use caproot_core::lock::LockFile;
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use serde::Deserialize;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Options of a new session.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptionsSpec {
    product: String,
    /// Seconds.
    start_timeout: f64,
    grace_period: f64,
    id: Option<String>,
    choice: ChoiceSpec,
    plugins: bool,
    scripts: bool,
    ready_only: bool,
    result_bytes: usize,
    /// Lock of approved skills.
    lock: Option<PathBuf>,
    /// Keys that may sign the lock.
    signers: Option<PathBuf>,
    plugin_servers: Option<PluginServersSpec>,
}

/// MCP servers of plugins, as Python passes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginServersSpec {
    /// `None` for all servers.
    names: Option<Vec<String>>,
    private_origins: Vec<String>,
    /// Number of the handler that returns a withheld value.
    value: Option<u64>,
}

/// Rules of a choice, as Python passes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChoiceSpec {
    include: Vec<String>,
    exclude: Vec<String>,
    pin: Vec<String>,
    name_only: Vec<String>,
    manual: Vec<String>,
    enable: Vec<String>,
    /// Product of a fork.
    #[serde(default)]
    product: String,
}

impl OptionsSpec {
    /// Returns the options, and adds the mistakes.
    pub fn to_options(
        &self,
        tools: ToolRegistry,
        mailbox: &Arc<MailboxShared>,
        mistakes: &mut Vec<String>,
    ) -> SessionOptions {
        let start_timeout = check_seconds("start_timeout", self.start_timeout, mistakes);
        let grace_period = check_seconds("grace_period", self.grace_period, mistakes);
        let choice = self.choice.parse(mistakes);

        SessionOptions {
            product: self.product.clone(),
            start_timeout,
            grace_period,
            id: self.id.clone(),
            choice,
            plugins: self.plugins,
            scripts: self.scripts,
            ready_only: self.ready_only,
            result_bytes: self.result_bytes,
            trust: self.read_trust(mistakes),
            // Model platforms reject a dot in the name of a tool.
            tool_names: ToolNames::Flat,
            tools,
            mcp_servers: self
                .plugin_servers
                .as_ref()
                .map(|servers| servers.to_options(mailbox))
                .unwrap_or_default(),
        }
    }
}

impl OptionsSpec {
    /// Reads the lock, and adds the mistakes.
    fn read_trust(&self, mistakes: &mut Vec<String>) -> Trust {
        let Some(lock) = &self.lock else {
            if self.signers.is_some() {
                mistakes.push("signers: set `lock`, too".to_owned());
            }
            return Trust::All;
        };
        match LockFile::read(lock, self.signers.as_deref()) {
            Ok(file) => Trust::Lock(Arc::new(file.lock)),
            Err(error) => {
                mistakes.push(format!("lock: {error}"));
                Trust::All
            }
        }
    }
}

impl PluginServersSpec {
    fn to_options(&self, mailbox: &Arc<MailboxShared>) -> McpServerOptions {
        let servers = match &self.names {
            None => McpServerChoice::All,
            Some(names) => McpServerChoice::Named(names.clone()),
        };
        let values = self.value.map(|handler| {
            let mailbox = mailbox.clone();
            callback_values(CallbackTarget { mailbox, handler })
        });
        McpServerOptions {
            servers,
            values: values.unwrap_or_default(),
            private_origins: self.private_origins.clone(),
        }
    }
}

/// Returns values that a Python function returns. A function that fails gives no value, and its
/// failure is logged.
fn callback_values(target: CallbackTarget) -> ServerValues {
    ServerValues::new(move |request| {
        let target = target.clone();
        async move {
            let asked = target.call(0, request_text(&request)).await;
            asked
                .map_err(String::from)
                .and_then(|answer| serde_json::from_str(&answer).map_err(|error| error.to_string()))
                .unwrap_or_else(|reason| {
                    tracing::warn!("no value of a plugin's MCP server: {reason}");
                    None
                })
        }
    })
}

fn request_text(request: &ServerValueRequest) -> String {
    let fields = json!({
        "source_kind": request.source_kind.name(),
        "source_id": request.source_id,
        "package": request.package,
        "plugin": request.plugin,
        "server": request.server,
        "origin": request.origin,
        "name": request.name,
    });
    fields.to_string()
}

/// Returns the selected roots of a JSON text, or `None` without a text or after a mistake.
pub fn parse_roots(
    text: Option<&str>,
    mistakes: &mut Vec<String>,
) -> Option<Vec<SelectedCapabilityRoot>> {
    let parsed = parse_selected_roots(text?);
    parsed
        .map_err(|error| mistakes.push(format!("roots: {error}")))
        .ok()
}

impl ChoiceSpec {
    /// Returns the choice, and adds the mistakes.
    pub fn parse(&self, mistakes: &mut Vec<String>) -> SkillChoice {
        SkillChoice {
            include: ChoiceRule::parse_all(&self.include, mistakes),
            exclude: ChoiceRule::parse_all(&self.exclude, mistakes),
            pin: ChoiceRule::parse_all(&self.pin, mistakes),
            name_only: ChoiceRule::parse_all(&self.name_only, mistakes),
            manual: ChoiceRule::parse_all(&self.manual, mistakes),
            enable: ChoiceRule::parse_all(&self.enable, mistakes),
            product: self.product.clone(),
            within: None,
        }
    }
}

/// Returns a duration, and adds a mistake if the number is not valid.
pub fn check_seconds(name: &str, seconds: f64, mistakes: &mut Vec<String>) -> Duration {
    parse_seconds(seconds).unwrap_or_else(|reason| {
        mistakes.push(format!("{name}: {reason}"));
        Duration::ZERO
    })
}
