//! Callers of tools, which the functions of custom tools find again.

use std::sync::Arc;

tokio::task_local! {
    static CURRENT: ToolCaller;
}

/// Caller of a tool as the program names the caller, such as the id of a request. The function of a
/// custom tool runs on a task of its own, and finds the caller there.
///
/// ```
/// use caproot_session::{CustomTool, SessionOptions, ToolCaller, ToolFunctionError, ToolRegistry};
/// use serde_json::json;
/// # mod demo { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/support/demo_session.rs")); }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let schema = json!({"type": "object"});
/// let tool = CustomTool::from_schema("whoami", "Returns the caller.", schema, |_| async {
///     let caller = ToolCaller::current();
///     Ok::<_, ToolFunctionError>(json!(caller.as_ref().map(ToolCaller::name)))
/// });
/// let tools = ToolRegistry::new();
/// tools.register(tool)?;
/// let options = SessionOptions { tools, ..SessionOptions::default() };
/// # let session = demo::start_demo_session(&options).await;
///
/// let caller = ToolCaller::new("request-7");
/// let result = caller.run(session.call("whoami", &json!({}))).await;
/// assert_eq!(result.json, r#"{"result":"request-7"}"#);
/// let result = session.call("whoami", &json!({})).await;
/// assert_eq!(result.json, r#"{"result":null}"#);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCaller(Arc<str>);

impl ToolCaller {
    /// Returns the caller with a name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// Runs calls of tools by this caller.
    pub async fn run<F: Future>(self, calls: F) -> F::Output {
        CURRENT.scope(self, calls).await
    }

    /// Returns the caller of the current call, if a caller runs it.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// Returns the name of the caller.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }
}
