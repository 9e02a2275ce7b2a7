//! Start of a session: its sources, and the state of a new session.

#[cfg(feature = "mcp")]
use crate::options::server_options::{McpServerChoice, McpServerOptions};
use crate::options::session_options::SessionOptions;
#[cfg(feature = "mcp")]
use crate::servers::{PluginServerSet, ServerStart};
use crate::skills::selection::{SelectionError, check_selection};
use crate::skills::skill::mirrored_view;
use crate::skills::skill_source::SkillSource;
use crate::sources::DaemonSource;
use crate::state::{Session, SessionInner};
use crate::storage::session_id::{check_session_id, random_id};
use caproot_client::fleet::group_by_environment;
use caproot_client::{
    Fleet, MirrorSelection, ResumePoint, Trust, approved_root_id, published_name, shown_id,
};
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Session {
    /// Starts a session with these roots; the selection never changes. An executor that does not
    /// answer, or that the registry does not name yet, is a warning, and its skills appear once it
    /// answers. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// An invalid root id, two different roots with one id, or two tools with one name.
    pub async fn start(
        fleet: &Fleet,
        selection: Vec<SelectedCapabilityRoot>,
        options: &SessionOptions,
    ) -> Result<Self, SelectionError> {
        Self::start_with(fleet, selection, Vec::new(), options).await
    }

    /// Starts a session with other sources next to the executors. If two skills have one name, the
    /// session lists the skill of an executor before the skill of a local directory, and both
    /// before the skill of an MCP server.
    ///
    /// # Errors
    ///
    /// As [`Session::start`], and an authority that two sources of one kind have.
    pub async fn start_with(
        fleet: &Fleet,
        selection: Vec<SelectedCapabilityRoot>,
        others: Vec<Arc<dyn SkillSource>>,
        options: &SessionOptions,
    ) -> Result<Self, SelectionError> {
        Self::start_resumed(fleet, selection, others, options, BTreeMap::new()).await
    }

    /// Starts a session whose executors resume at these points, by environment.
    pub(crate) async fn start_resumed(
        fleet: &Fleet,
        selection: Vec<SelectedCapabilityRoot>,
        others: Vec<Arc<dyn SkillSource>>,
        options: &SessionOptions,
        points: BTreeMap<String, ResumePoint>,
    ) -> Result<Self, SelectionError> {
        // A session without a lock of its own has the lock of the fleet file.
        let trust = match &options.trust {
            Trust::All => fleet.trust(),
            trust @ Trust::Lock(_) => trust.clone(),
        };
        let selection = match trust {
            Trust::All => selection,
            Trust::Lock(_) => selection
                .into_iter()
                .map(|root| with_shown_id(root, options.published_roots))
                .collect(),
        };
        let selection = check_selection(selection)?;
        let custom_tools = options.tools.seal(options.result_form())?;

        let starts = group_by_environment(selection.clone()).into_iter().map(
            |(environment_id, roots)| async {
                let selection = MirrorSelection {
                    product: options.product.clone(),
                    view: mirrored_view(options.has_plugins()),
                    ..MirrorSelection::new(roots)
                };
                let from = points.get(&environment_id).cloned();
                DaemonSource::start_executor(fleet, environment_id, selection, from, options).await
            },
        );
        let executors = join_all(starts).await.into_iter().map(Arc::new).collect();

        let inner = SessionInner::new(options, trust, selection, points)?;
        let others = others
            .into_iter()
            .map(|source| inner.approved_source(source))
            .collect();
        let mut session = Self::from_sources(executors, others, inner)?;
        session.custom_tools = Arc::new(custom_tools);
        #[cfg(feature = "mcp")]
        session.start_servers(&options.mcp_servers).await;
        Ok(session)
    }
}

/// Returns a root under an id that a model may see. `is_listed`: the executor listed the root and chose the id.
fn with_shown_id(root: SelectedCapabilityRoot, is_listed: bool) -> SelectedCapabilityRoot {
    if published_name(&root).is_none() {
        return root;
    }
    let id = if is_listed {
        approved_root_id(&root)
    } else {
        shown_id(&root.id)
    };
    SelectedCapabilityRoot { id, ..root }
}

#[cfg(feature = "mcp")]
impl Session {
    /// Adds the tools of the chosen MCP servers of plugins.
    async fn start_servers(&mut self, options: &McpServerOptions) {
        if options.servers == McpServerChoice::None {
            return;
        }
        let request = ServerStart {
            sources: &self.sources,
            choice: &self.inner.options.choice,
            options,
            program: &self.custom_tools,
            form: self.inner.options.result_form(),
        };
        self.plugin_servers = PluginServerSet::start(request).await;
    }
}

impl SessionInner {
    /// Returns the state of a new session, with the id of the options or a random id.
    fn new(
        options: &SessionOptions,
        trust: Trust,
        selection: Vec<SelectedCapabilityRoot>,
        resume_points: BTreeMap<String, ResumePoint>,
    ) -> Result<Self, SelectionError> {
        if let Some(id) = &options.id {
            check_session_id(id).map_err(|error| SelectionError(vec![error]))?;
        }
        options.choice.check()?;
        options.check_result_bytes()?;
        #[cfg(feature = "mcp")]
        options.mcp_servers.check()?;

        Ok(Self {
            id: options.id.clone().unwrap_or_else(random_id),
            options: SessionOptions {
                trust,
                ..options.clone()
            },
            selection,
            resume_points,
            ..Self::default()
        })
    }
}
