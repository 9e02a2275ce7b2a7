//! Directories of the orchestrator's own machine as a source of a session: a daemon inside this process,
//! reached by a private pair of sockets and no network, so that finding, containment, bounds and watches
//! are those of an executor's. Leaves what a session does with it to `session`.

use crate::client::{Client, Retries};
use crate::config::{Config, Flags, RootFlag};
use crate::endpoint::Env;
use crate::proto::caproot::v1::{CapabilityRootLocation, SelectedCapabilityRoot};
use crate::server::Embedded;
use crate::session::source::{
    DaemonSource, Listed, SkillSource, SourceKind, SourceWatch, TextPage, Wanted,
};
use crate::session::{Options, Refusal};
use futures_util::future::BoxFuture;
use hyper_util::rt::TokioIo;
use std::path::PathBuf;
use std::time::Duration;
use tonic::transport::{Endpoint, Uri};

/// The deadline of a call: nothing but a disk is in between.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The environment of the daemon inside.
const ENVIRONMENT: &str = "local";

/// Why directories are no source. Displays as sentences.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct LocalError(Vec<String>);

/// Directories of this machine.
#[derive(Debug)]
pub struct LocalSource {
    source: DaemonSource,
    _daemon: Embedded,
}

impl LocalSource {
    /// A source of this name, of these directories by the ids of their authorities. A directory that is
    /// not there is a warning until it is. Waits for the first list no longer than the patience of the
    /// options.
    ///
    /// # Errors
    ///
    /// An id that no root can have, or a directory that none can be; all that is wrong.
    pub async fn start(
        id: &str,
        directories: Vec<(String, PathBuf)>,
        options: &Options,
    ) -> Result<Self, LocalError> {
        let ids: Vec<String> = directories.iter().map(|(id, _)| id.clone()).collect();
        let roots = directories.into_iter().map(|(id, dir)| RootFlag { id: Some(id), dir });
        let flags = Flags {
            roots: roots.collect(),
            environment_ids: vec![ENVIRONMENT.to_owned()],
            ..Flags::default()
        };
        // What was handed to this program is none of the daemon's.
        let env = Env { handed_over: Vec::new(), ..Env::of_process() };
        let config = if ids.is_empty() {
            return Err(LocalError(vec!["no directory is named".to_owned()]));
        } else {
            Config::from_flags(flags, &env)
        };
        let config = config
            .map_err(|mistakes| LocalError(mistakes.iter().map(ToString::to_string).collect()))?;
        let daemon = Embedded::start(config).await;
        let daemon = daemon.map_err(|error| LocalError(vec![error.to_string()]))?;
        let way = daemon.way();
        let connector = tower::service_fn(move |_: Uri| {
            let way = way.clone();
            async move { way.connect().await.map(TokioIo::new) }
        });
        let channel =
            Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector);
        let client = Client::new(channel, TIMEOUT).retrying(Retries::default());
        let roots = ids.iter().map(|id| published(id)).collect();
        let source = DaemonSource::start(SourceKind::Local, id, client, roots, options).await;
        Ok(Self { source, _daemon: daemon })
    }
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

    fn listed(&self) -> Listed {
        self.source.listed()
    }

    fn watch(&self) -> Option<Box<dyn SourceWatch>> {
        self.source.watch()
    }

    fn read_time(&self) -> Duration {
        self.source.read_time()
    }

    fn read<'a>(&'a self, wanted: &'a Wanted) -> BoxFuture<'a, Result<TextPage, Refusal>> {
        self.source.read(wanted)
    }
}

/// The root that the daemon inside publishes by this id.
fn published(id: &str) -> SelectedCapabilityRoot {
    SelectedCapabilityRoot {
        id: id.to_owned(),
        location: Some(CapabilityRootLocation {
            r#type: "environment".to_owned(),
            environment_id: ENVIRONMENT.to_owned(),
            path: format!("published:{id}"),
        }),
    }
}
