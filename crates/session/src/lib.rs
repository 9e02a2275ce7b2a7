#![doc = include_str!("../README.md")]
//!
//! # Sessions
//!
//! Skills of one conversation, from executors and other sources. A session has a fixed selection of
//! roots, the tools that a model calls, the instruction text for the model, and skills that the
//! user mentions. With the feature `handlers`, a session also has the custom tools of the program.
//!
//! Every text for a model has a size limit. Skills are external context: their authors are neither
//! the user nor the program.
//!
//! ```
//! use caproot_client::{ExecutorConfig, Fleet, parse_selected_roots};
//! use caproot_session::{DEFAULT_BUDGET, Session, SessionOptions};
//! use serde_json::{Value, json};
//! # mod demo { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/support/demo.rs")); }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let endpoint = demo::start_demo_daemon().await;
//! // The platform selects roots of environments, and the fleet has the executor of each environment.
//! let selected = json!({"selectedCapabilityRoots": [{"id": "demo", "location": {
//!     "type": "environment", "environmentId": "local", "path": "published:demo"}}]});
//! let roots = parse_selected_roots(&selected.to_string())?;
//! let fleet = Fleet::from_executors([("local".to_owned(), ExecutorConfig::new(endpoint))]);
//! let session = Session::start(&fleet, roots, &SessionOptions::default()).await?;
//!
//! // The model gets the text and the tools at its first turn.
//! let instructions = session.instruction_text(DEFAULT_BUDGET);
//! assert!(instructions.text.contains("- triage-logs: Finds the first cause in a long log."));
//! assert_eq!(session.dynamic_tools()[0]["tools"][1]["name"], "read");
//!
//! // The model calls a tool.
//! let arguments = json!({"package": "triage-logs"});
//! let result = session.call("skills.read", &arguments).await;
//! assert!(result.success && result.external_context);
//! let page: Value = serde_json::from_str(&result.json)?;
//! assert!(page["contents"].to_string().contains("# Triage a log"));
//!
//! // A failed call has a result, too, which tells the model the next step.
//! let result = session.call("skills.read", &json!({"package": "skill://demo/none"})).await;
//! let error: Value = serde_json::from_str(&result.json)?;
//! assert_eq!(error["error"]["code"], "PACKAGE_NOT_FOUND");
//!
//! // The user mentions a skill.
//! let injected = session.inject(&"Look at this log with $triage-logs.".into()).await;
//! assert_eq!(injected.fragments[0].package, "skill://demo/triage-logs");
//! # Ok(())
//! # }
//! ```
//!
//! # Tools
//!
//! | tool | arguments | result |
//! | --- | --- | --- |
//! | `skills.list` | `cursor?` | `skills` (each with `authority`, `package`, `name`, `description`, `main_resource`, and `environments` if several have it), `next_cursor`, `warnings`, `truncated` |
//! | `skills.read` | `package`, `resource?`, `authority?`, `cursor?` | of a file: `resource`, `contents`, `next_cursor`, `truncated`, and with [`SessionOptions::scripts`] the `skill_digest`; of a directory: `resource`, `files` (each with `path` and `bytes`), `next_cursor`, `truncated` |
//! | `skills.search` | `query`, `limit?`, `cursor?` | as `skills.list`, the best match first |
//!
//! - A result has at most [`SessionOptions::result_bytes`] of JSON. `next_cursor` is `null` at the end.
//! - `truncated` means that more follows, or that a limit stopped a scan.
//! - `package` is a handle, or the name of a skill. If several skills have the name, the error has their
//!   handles; `ROOT/NAME` is the name in one root.
//! - `resource` is a path relative to the package, as a SKILL.md links to its files, or a whole handle.
//!   Without `resource`, the tool reads the SKILL.md. Unknown arguments are rejected.
//! - The path of a directory lists the files below, and `./` lists all files of the skill.
//! - `authority` is needed only if several sources have the package. Its `id` may be missing.
//! - `null` and empty texts are absent fields, and a number may be a text, as models write them.
//! - A cursor of a list or a search pages through the list as of the first page. The joined pages of a file are the
//!   file.
//! - Skills with a reason in [`not_offered`](caproot_core::proto::caproot::v1::Skill::not_offered)
//!   are counted in a warning and not listed. They can be read.
//! - A mention of a skill that is not `user_invocable` is omitted with a reason.
//! - Each executor gets at most 16 calls at once. Other calls wait up to 30 s, and then fail with
//!   [`ToolErrorCode::Overloaded`].
//!
//! If your platform rejects a dot in the name of a tool, set [`SessionOptions::tool_names`] to
//! [`ToolNames::Flat`]. A call is accepted in either spelling.
//!
//! # Characters without a glyph
//!
//! Bidirectional controls, zero-width characters and tags can tell a model something that no reviewer
//! sees. In names, descriptions, warnings, errors and the heads of fragments they are escaped: U+202E
//! becomes `\u{202e}`. Joiners and variation selectors stay where scripts and emoji need them. The
//! contents of files are never changed; their diagnostic is `HIDDEN_TEXT`.
//!
//! # Long conversations
//!
//! [`Session::instruction_update`] returns a notice of changed skills for a model that has an older
//! text. [`Session::used_skills`] has the files that the model read or was given, and
//! [`Session::reinject`] gives them back after a compaction.
//!
//! # Sources
//!
//! | source | is | authority | handles |
//! | --- | --- | --- | --- |
//! | [`Fleet`](caproot_client::Fleet) | the executors of the selection | `executor`, with the id of the root | `skill://ROOT/…` |
//! | `caproot::daemon::local_source::LocalSource` | directories of this machine | `local`, with the id of the directory | `skill://ID/…` |
//! | `sources::mcp::McpSource` | an MCP server | `mcp`, with the name of the server | `mcp+skill://NAME/…`, or `mcp+SCHEME://NAME/…` of another scheme |
//!
//! [`Session::start_with`] adds sources next to the executors. If skills of two kinds have one name,
//! the skill of the upper row hides the others, and a warning names the hidden skills. Skills of one
//! kind with one name are all listed. A source that cannot be used keeps its names reserved, so a name
//! never starts to mean the skill of another source. A read asks only the source of the authority.

mod calls;
pub mod dispatch;
mod life;
#[cfg(any(feature = "mcp", feature = "manager"))]
mod network;
mod options;
mod prompt;
mod search;
#[cfg(feature = "mcp")]
mod servers;
mod skills;
pub mod sources;
mod state;
mod storage;
mod text;
mod tools;
mod uses;
mod view;

pub use calls::ListedSkill;
pub use life::lifecycle::{
    CloseOutcome, ExecutorChanges, ForkError, ForkScope, PersistError, RestoreError,
    RestoredSession, ScopeOutcome,
};
pub use life::plugins::{
    ChangedPlugin, ComponentChange, ComponentChangeKind, PluginWatch, SessionPlugin,
    SessionPluginChanges,
};
#[cfg(feature = "mcp")]
pub use network::{AuthorizationFailed, AuthorizationRequest, ServerAuthorization};
pub use options::choice::{ChoiceRule, ChoiceRuleError, SkillChoice};
#[cfg(feature = "mcp")]
pub use options::server_options::{
    McpServerChoice, McpServerOptions, ServerValueRequest, ServerValues,
};
pub use options::session_options::SessionOptions;
pub use prompt::name_list::{SkillNameLine, SkillNameList, SkillNameListOptions};
pub use prompt::reinject::{ReinjectedFragment, ReinjectedSkills};
pub use prompt::{
    AmbiguousName, InjectedSkills, MAX_FRAGMENT_BYTES, MAX_INJECTED_BYTES, MentionCandidate,
    OmittedMention, SkillFragment, SkillMention, UserPrompt,
};
#[cfg(feature = "mcp")]
pub use servers::{McpServerStatus, limits as mcp_server_limits};
pub use skills::readiness::{is_missing_something, missing_notes, missing_requirements};
pub use skills::selection::SelectionError;
pub use skills::skill::SkillAuthority;
pub use skills::skill_source::SourceState;
pub use skills::tool_names::ToolNames;
pub use skills::{
    DEFAULT_RESULT_BYTES, MAX_RESULT_BYTES, ResultImage, ToolError, ToolErrorCode, ToolResult,
};
pub use sources::{ExecutorState, ExecutorStatus, SkillSource, SourceKind};
pub use state::Session;
pub use storage::{MemoryStore, SavedError, SessionStore, StoreError};
pub use text::instructions::{DEFAULT_BUDGET, InstructionText, SkillInText, TextPlace};
pub use text::notices::{InstructionUpdate, MAX_NOTICE_BYTES, NoticeChanges, UpdateKind};
pub use text::placeholders::{PluginDirectory, SkillDirectories, fill_placeholders};
pub use tools::{
    CustomTool, ToolCaller, ToolFunctionError, ToolRegistry, ToolRegistryError,
    limits as tool_limits,
};
pub use uses::{MAX_USED_FILES, UsageEvent, UsageKind, UsageWatch, UsedSkill, UsedState};
pub use view::session_view::{ChangedSource, SessionWatch};
