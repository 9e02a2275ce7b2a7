//! Local directories as a source of a session: a daemon inside this process, reached by a private
//! socket pair. Discovery, containment, limits and watches are those of an executor. The daemon does
//! not restrict the process, which keeps its rights.
//!
//! ```
//! use caproot_client::Fleet;
//! use caproot::daemon::local_source::LocalSource;
//! use caproot_session::{DEFAULT_BUDGET, Session, SessionOptions};
//! use std::sync::Arc;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = SessionOptions::default();
//! let directories = vec![("mine".to_owned(), "tests/trees/demo".into())];
//! let local = LocalSource::start("here", directories, &options).await?;
//!
//! // The session has no executor, and no other process can reach the source.
//! let fleet = Fleet::from_executors([]);
//! let session = Session::start_with(&fleet, Vec::new(), vec![Arc::new(local)], &options).await?;
//! let text = session.instruction_text(DEFAULT_BUDGET).text;
//! assert!(text.contains("- triage-logs: "));
//! # Ok(())
//! # }
//! ```

use crate::daemon::config::{Config, ConfigError, RootFlag, RootPreset, ServeFlags};
use crate::daemon::server::EmbeddedDaemon;
use caproot_client::{Client, RetryPolicy};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::{CapabilityRootLocation, Plugin, SelectedCapabilityRoot};
use caproot_session::sources::{
    DaemonSource, PackageFilesPage, PackageFilesRequest, SkillSource, SourceChanges, SourceKind,
    SourceSnapshot, TextPage, TextPageRequest,
};
use caproot_session::{SessionOptions, ToolError};
use futures_util::future::BoxFuture;
use hyper_util::rt::TokioIo;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::{Endpoint, Uri};

/// Time limit of a call; the daemon is in the same process.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Environment of the embedded daemon.
const ENVIRONMENT: &str = "local";

/// Invalid directories or ids. Displays as sentences.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct LocalError(Vec<String>);

/// Directories of a daemon or a source in this process.
#[derive(Debug, Clone, Default)]
pub struct LocalDirectories {
    /// Directories by the ids of their authorities.
    pub named: Vec<(String, PathBuf)>,
    /// Tools whose directories of skills are sources, too. The ids are those of the config key
    /// `roots[].preset`, such as `claude` and `claude-repo`.
    pub presets: Vec<RootPreset>,
    /// Directory in which the search for the directories of a project begins; the working directory by
    /// default. The search ends at the root of the repository.
    pub project: Option<PathBuf>,
}

impl From<Vec<(String, PathBuf)>> for LocalDirectories {
    fn from(named: Vec<(String, PathBuf)>) -> Self {
        Self {
            named,
            ..Self::default()
        }
    }
}

/// Daemon in this process that publishes local directories, and its client.
#[derive(Debug)]
pub struct LocalDaemon {
    /// Client of the daemon.
    pub client: Client,
    /// Roots of the directories: the named ones in the order of the caller, then those of the presets.
    pub roots: Vec<SelectedCapabilityRoot>,
    /// Ids of the roots that may be missing without a warning.
    pub optional_roots: Vec<String>,
    _daemon: EmbeddedDaemon,
}

impl LocalDaemon {
    /// Starts a daemon that publishes directories by the ids of their roots. The daemon ends when the
    /// value is dropped.
    ///
    /// # Errors
    ///
    /// All invalid ids and directories, and presets without any directory.
    pub async fn start(directories: impl Into<LocalDirectories>) -> Result<Self, LocalError> {
        let directories = directories.into();
        if directories.named.is_empty() && directories.presets.is_empty() {
            return Err(LocalError(vec!["no directory is given".to_owned()]));
        }

        let named: Vec<_> = directories.named.iter().map(|(id, _)| id.clone()).collect();
        let config = daemon_config(directories)?;
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        let published = &config.published_roots;
        if published.is_empty() {
            return Err(LocalError(vec!["no preset has a directory".to_owned()]));
        }

        let of_presets = published
            .iter()
            .map(|root| root.id.as_str())
            .filter(|id| !named.iter().any(|name| name == id));
        let ids = named.iter().map(String::as_str).chain(of_presets);
        let roots = ids.map(published_root).collect();
        let optional_roots = published
            .iter()
            .filter(|root| root.is_optional)
            .map(|root| root.id.as_str().to_owned())
            .collect();

        let daemon = EmbeddedDaemon::start(config)
            .await
            .map_err(|error| LocalError(vec![error.to_string()]))?;
        Ok(Self {
            client: connect_to_daemon(&daemon),
            roots,
            optional_roots,
            _daemon: daemon,
        })
    }
}

/// Source of the skills in local directories.
#[derive(Debug)]
pub struct LocalSource {
    source: DaemonSource,
    _daemon: LocalDaemon,
}

impl LocalSource {
    /// Starts a source with directories by the ids of their authorities. A missing named directory
    /// causes a warning until it exists, and a missing directory of a preset causes no warning. Waits
    /// for the first list at most for the start timeout of the options.
    ///
    /// # Errors
    ///
    /// All invalid ids and directories, and presets without any directory.
    pub async fn start(
        id: &str,
        directories: impl Into<LocalDirectories>,
        options: &SessionOptions,
    ) -> Result<Self, LocalError> {
        let daemon = LocalDaemon::start(directories).await?;
        let client = daemon.client.clone();
        let roots = daemon.roots.clone();
        let source = DaemonSource::start(SourceKind::Local, id, client, roots, options).await;
        Ok(Self {
            source: source.with_optional_roots(daemon.optional_roots.clone()),
            _daemon: daemon,
        })
    }
}

/// Returns the configuration of a daemon that publishes the directories.
fn daemon_config(directories: LocalDirectories) -> Result<Config, LocalError> {
    let process = ProcessEnv::from_process();
    let base = process.current_dir.clone().unwrap_or_default();
    let roots = directories.named.into_iter().map(|(id, dir)| RootFlag {
        id: Some(id),
        dir: base.join(dir),
    });
    let flags = ServeFlags {
        roots: roots.collect(),
        presets: directories.presets,
        environment_ids: vec![ENVIRONMENT.to_owned()],
        ..ServeFlags::default()
    };
    // Sockets that this process inherited are not for the embedded daemon.
    let env = ProcessEnv {
        inherited_sockets: Vec::new(),
        unit_socket_group: None,
        current_dir: directories.project.or(process.current_dir),
        ..process
    };

    Config::from_flags(flags, &env).map_err(|errors| {
        let sentences = errors.into_iter().map(|error| {
            // The key is a flag of `caproot serve`.
            let key = String::new();
            ConfigError { key, ..error }.to_string()
        });
        LocalError(sentences.collect())
    })
}

/// Returns a client of the daemon over its private socket pair.
fn connect_to_daemon(daemon: &EmbeddedDaemon) -> Client {
    let connector = daemon.connector.clone();
    let service = tower::service_fn(move |_: Uri| {
        let connector = connector.clone();
        async move { connector.connect().await.map(TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(service);
    Client::new(channel, CALL_TIMEOUT).with_retry_policy(RetryPolicy::default())
}

impl SkillSource for LocalSource {
    fn kind(&self) -> SourceKind {
        self.source.kind()
    }

    fn id(&self) -> &str {
        self.source.id()
    }

    fn authorities(&self) -> Vec<String> {
        self.source.authorities()
    }

    fn snapshot(&self) -> SourceSnapshot {
        self.source.snapshot()
    }

    fn changes(&self) -> SourceChanges {
        self.source.changes()
    }

    fn read_timeout(&self) -> Duration {
        self.source.read_timeout()
    }

    fn plugins(&self) -> Vec<Arc<Plugin>> {
        self.source.plugins()
    }

    fn read_page<'a>(
        &'a self,
        request: &'a TextPageRequest,
    ) -> BoxFuture<'a, Result<TextPage, ToolError>> {
        self.source.read_page(request)
    }

    fn list_files<'a>(
        &'a self,
        request: &'a PackageFilesRequest,
    ) -> BoxFuture<'a, Result<PackageFilesPage, ToolError>> {
        self.source.list_files(request)
    }
}

/// Returns the root that the embedded daemon publishes under an id.
fn published_root(id: &str) -> SelectedCapabilityRoot {
    SelectedCapabilityRoot {
        id: id.to_owned(),
        location: Some(CapabilityRootLocation {
            r#type: "environment".to_owned(),
            environment_id: ENVIRONMENT.to_owned(),
            path: format!("published:{id}"),
        }),
    }
}
