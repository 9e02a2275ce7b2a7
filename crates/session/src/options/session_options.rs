//! Options of a new session.

use super::choice::SkillChoice;
#[cfg(feature = "mcp")]
use super::server_options::{McpServerChoice, McpServerOptions};
use crate::skills::result::{DEFAULT_RESULT_BYTES, MAX_RESULT_BYTES, ResultForm};
use crate::skills::selection::SelectionError;
use crate::skills::tool_names::ToolNames;
use crate::tools::ToolRegistry;
use caproot_client::Trust;
use std::time::Duration;

/// Options of a new session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is an option
pub struct SessionOptions {
    /// Product whose skills are listed, next to skills for every product. Empty: all skills.
    pub product: String,
    /// How long `start` waits for executors that do not answer; 5 s by default. The skills of an
    /// executor that answers later appear then. `start` does not wait for an executor whose socket
    /// is missing, that refuses the connection, or that the registry does not name.
    pub start_timeout: Duration,
    /// How long the skills of a lost executor stay listed, so that a restart of its daemon changes
    /// nothing; 10 s by default. Reading such a skill still calls the executor.
    pub grace_period: Duration,
    /// Id of the session and key of its saved state: 1 to 128 visible ASCII characters. Random by
    /// default.
    pub id: Option<String>,
    /// Skills of the session, out of all skills of its sources; all skills by default. The choice
    /// never changes, is saved with the session and inherited by forks.
    pub choice: SkillChoice,
    /// Whether [`Session::plugins`](crate::Session::plugins) has the plugins of executors; false by default. With plugins, an
    /// executor also sends the frontmatter and other details of each skill. For the plugins of local
    /// directories, start their source with these options.
    pub plugins: bool,
    /// Whether the text for a model says how to run a script of a skill by `caproot exec`, and the result
    /// of a read has the digest of the skill; false by default. Set it if the model has a shell on the
    /// executors.
    pub scripts: bool,
    /// Whether the session leaves out skills that miss a program, a variable or their platform on the
    /// executor, and counts them in a warning; false by default, so that such a skill stays listed with a
    /// note for the model.
    pub ready_only: bool,
    /// Spelling of the names of the tools in every text, hint and error; `skills.list` and
    /// `skills.read` by default.
    pub tool_names: ToolNames,
    /// Limit of the JSON of a tool's result in bytes: [`DEFAULT_RESULT_BYTES`] by default, at most
    /// [`MAX_RESULT_BYTES`]. A larger limit reads a long SKILL.md by one call.
    pub result_bytes: usize,
    /// Skills that the session trusts, of executors and of all other sources; all skills by default. A fleet
    /// file with `trust` replaces the default. A lock is not part of the saved state.
    pub trust: Trust,
    /// Whether the selection has the roots that executors list, as by
    /// [`Fleet::published_roots`](caproot_client::Fleet::published_roots), so that the ids of the roots are theirs;
    /// false by default. With a lock, a model then sees a digest in place of such an id.
    pub published_roots: bool,
    /// Custom tools of the program; none by default. The registry is sealed once `start` is called.
    pub tools: ToolRegistry,
    /// HTTP MCP servers of plugins whose tools the session has; none by default. The servers are
    /// connected to at the start. A session with servers also has
    /// [`plugins`](SessionOptions::plugins).
    #[cfg(feature = "mcp")]
    pub mcp_servers: McpServerOptions,
}

impl SessionOptions {
    /// Returns whether executors send plugins.
    pub(crate) fn has_plugins(&self) -> bool {
        #[cfg(feature = "mcp")]
        if self.mcp_servers.servers != McpServerChoice::None {
            return true;
        }
        self.plugins
    }

    /// Returns the form of the results of tools.
    pub(crate) fn result_form(&self) -> ResultForm {
        ResultForm {
            names: self.tool_names,
            max_bytes: self.result_bytes,
        }
    }

    pub(crate) fn check_result_bytes(&self) -> Result<(), SelectionError> {
        if (DEFAULT_RESULT_BYTES..=MAX_RESULT_BYTES).contains(&self.result_bytes) {
            return Ok(());
        }
        let given = self.result_bytes;
        Err(SelectionError(vec![format!(
            "result_bytes is {given}; expected {DEFAULT_RESULT_BYTES} to {MAX_RESULT_BYTES}"
        )]))
    }
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            product: String::new(),
            start_timeout: Duration::from_secs(5),
            grace_period: Duration::from_secs(10),
            id: None,
            choice: SkillChoice::default(),
            plugins: false,
            scripts: false,
            ready_only: false,
            tool_names: ToolNames::default(),
            result_bytes: DEFAULT_RESULT_BYTES,
            trust: Trust::default(),
            published_roots: false,
            tools: ToolRegistry::default(),
            #[cfg(feature = "mcp")]
            mcp_servers: McpServerOptions::default(),
        }
    }
}
