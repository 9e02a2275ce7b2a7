//! Tools of `tools/list`. The description of the read tool names the skills, because hosts show a
//! model neither resources nor the instructions of a server.

use super::backend::McpBackend;
use super::limits::MIN_TOOL_LIST_INTERVAL;
use caproot_client::session::{Session, SessionWatch, SkillNameListOptions, ToolNames};
use rmcp::model::{Tool, ToolAnnotations};
use serde_json::Value;
use std::sync::Arc;
use tokio::time::{Instant, sleep_until};

/// Tools that the server offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServedTools {
    /// Spelling of the names.
    pub names: ToolNames,
    /// List of the skills in the description of the read tool.
    pub skills: SkillNameListOptions,
}

/// Changes of the tools for one client. Reports at most one change in [`MIN_TOOL_LIST_INTERVAL`].
pub struct ToolListChanges {
    backend: Arc<McpBackend>,
    /// Watch of the session's skills, once the daemon has answered.
    watch: Option<SessionWatch>,
    /// Whether the skills may have changed since the list was last compared.
    is_outdated: bool,
    /// List of the skills that the client may know.
    known: String,
    /// Earliest time of the next report.
    next_report: Instant,
}

impl ServedTools {
    /// Returns the tools for a session, or for a daemon that has not answered yet.
    pub(super) fn describe(self, session: Option<&Session>) -> Vec<Tool> {
        let skills = session.map(|session| session.describe_skills(self.skills));
        let skills = skills.unwrap_or_default();
        let payloads = self.names.skill_tools();
        let payloads = payloads.as_array().into_iter().flatten();

        payloads
            .map(|payload| {
                let mut description = text_field(payload, "description");
                if text_field(payload, "name").ends_with("read") && !skills.is_empty() {
                    description = format!("{description}\n\n{skills}");
                }
                tool_from_payload(payload, description)
            })
            .collect()
    }
}

impl ToolListChanges {
    /// Starts with the list of now.
    pub fn new(backend: Arc<McpBackend>) -> Self {
        let known = backend.skill_name_list();
        Self {
            is_outdated: known.is_none(),
            known: known.unwrap_or_default(),
            watch: None,
            next_report: Instant::now(),
            backend,
        }
    }

    /// Waits for the next change. Never returns if the server has no tools. Cancel-safe.
    pub async fn next(&mut self) {
        let Some(session) = self.backend.first_tool_session().await else {
            return std::future::pending().await;
        };

        loop {
            let watch = self.watch.get_or_insert_with(|| session.watch());
            if !self.is_outdated {
                watch.next().await;
                self.is_outdated = true;
            }
            // Further changes until then are part of the same report.
            sleep_until(self.next_report).await;

            self.is_outdated = false;
            let now = self.backend.skill_name_list().unwrap_or_default();
            if now != self.known {
                self.known = now;
                self.next_report = Instant::now() + MIN_TOOL_LIST_INTERVAL;
                return;
            }
        }
    }
}

fn tool_from_payload(payload: &Value, description: String) -> Tool {
    let name = match payload["namespace"].as_str() {
        Some(namespace) => format!("{namespace}.{}", text_field(payload, "name")),
        None => text_field(payload, "name"),
    };
    let schema = payload["inputSchema"]
        .as_object()
        .cloned()
        .unwrap_or_default();

    let hints = ToolAnnotations::new().read_only(true).open_world(false);
    Tool::new(name, description, schema).with_annotations(hints)
}

fn text_field(payload: &Value, key: &str) -> String {
    payload[key].as_str().unwrap_or_default().to_owned()
}
