//! Services of the orchestrator example: two daemons, a directory, an MCP server and a platform.

use std::error::Error;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::{fs, io};

use caproot::daemon::config::{Config, RootFlag, ServeFlags};
use caproot::daemon::local_source::LocalSource;
use caproot::daemon::server;
use caproot_client::{DaemonEndpoint, ExecutorConfig, Fleet, parse_selected_roots};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use caproot_session::dispatch::{HttpManager, HttpManagerConfig};
use caproot_session::sources::mcp::{McpEndpoint, McpServerConfig, McpSource};
use caproot_session::{SessionOptions, SkillSource};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::service::Service;

/// Id that the platform has for the thread.
pub(crate) const THREAD: &str = "thread-1";

pub(crate) struct ExampleServices {
    pub(crate) fleet: Fleet,
    pub(crate) service: Service,
    pub(crate) manager: Arc<HttpManager>,
    dir: TempDir,
    _build: Daemon,
    docs: Option<Daemon>,
    docs_address: String,
    command: Vec<String>,
    mcp: (Child, String),
}

/// Daemon. In production, it runs on the executor's machine.
struct Daemon {
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), server::StartError>>,
}

impl ExampleServices {
    /// Starts all services, with a few skills each.
    pub(crate) async fn start(command: &[String]) -> Result<Self, Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        write_skill(&dir.path().join("build/deploy"), "deploy", "Deploys.")?;
        write_skill(&dir.path().join("docs/style"), "style", "Writes well.")?;
        write_skill(&dir.path().join("local/notes"), "notes", "Keeps notes.")?;
        write_skill(
            &dir.path().join("local/deploy"),
            "deploy",
            "Deploys, as a person has it.",
        )?;
        let (build, build_endpoint) =
            start_daemon(&dir.path().join("build"), "build", "127.0.0.1:0").await?;
        let (docs, docs_endpoint) =
            start_daemon(&dir.path().join("docs"), "docs", "127.0.0.1:0").await?;
        let executors = [("build", &build_endpoint), ("docs", &docs_endpoint)];
        let executors = executors.map(|(id, at)| (id.to_owned(), ExecutorConfig::new(at.clone())));
        let service = Service::start().await;
        let manager = HttpManagerConfig::new(service.base_url(), THREAD);
        Ok(Self {
            fleet: Fleet::from_executors(executors),
            manager: Arc::new(HttpManager::new(manager).await?),
            service,
            dir,
            _build: build,
            docs: Some(docs),
            docs_address: docs_endpoint.to_string().replace("tcp:", ""),
            command: command.to_vec(),
            mcp: start_mcp_server(command).await?,
        })
    }

    /// Returns the roots that the platform selects.
    pub(crate) fn selected() -> Result<Vec<SelectedCapabilityRoot>, Box<dyn Error>> {
        let root = |id: &str| {
            json!({"id": id, "location": {
                "type": "environment", "environmentId": id, "path": format!("published:{id}")}})
        };
        let selected = json!({"selectedCapabilityRoots": [root("build"), root("docs")]});
        Ok(parse_selected_roots(&selected.to_string())?)
    }

    /// Returns a local source and an MCP source.
    pub(crate) async fn other_sources(
        &self,
        options: &SessionOptions,
    ) -> Result<Vec<Arc<dyn SkillSource>>, Box<dyn Error>> {
        let directories = vec![("mine".to_owned(), self.dir.path().join("local"))];
        let local = LocalSource::start("here", directories, options).await?;
        let server = McpServerConfig::new("web", McpEndpoint::http(&self.mcp.1));
        Ok(vec![
            Arc::new(local),
            Arc::new(McpSource::start(server).await?),
        ])
    }

    pub(crate) async fn stop_docs(&mut self) -> Result<(), Box<dyn Error>> {
        let Daemon { stop, running } = self.docs.take().ok_or("docs is not running")?;
        drop(stop);
        Ok(running.await??)
    }

    pub(crate) async fn start_docs(&mut self) -> Result<(), Box<dyn Error>> {
        let (docs, _) =
            start_daemon(&self.dir.path().join("docs"), "docs", &self.docs_address).await?;
        self.docs = Some(docs);
        Ok(())
    }

    pub(crate) async fn kill_mcp(&mut self) -> io::Result<()> {
        self.mcp.0.kill().await
    }

    pub(crate) async fn start_mcp(&mut self) -> Result<(), Box<dyn Error>> {
        self.mcp = start_mcp_server(&self.command).await?;
        Ok(())
    }

    pub(crate) fn add_release(&self) -> io::Result<()> {
        write_skill(
            &self.dir.path().join("build/release"),
            "release",
            "Makes a release.",
        )
    }
}

/// Starts a daemon of one environment that publishes one directory. Returns its endpoint, too.
async fn start_daemon(
    dir: &Path,
    id: &str,
    address: &str,
) -> Result<(Daemon, DaemonEndpoint), Box<dyn Error>> {
    let flags = ServeFlags {
        roots: vec![RootFlag {
            id: Some(id.to_owned()),
            dir: dir.to_owned(),
        }],
        environment_ids: vec![id.to_owned()],
        listen: vec![format!("tcp:{address}")],
        ..ServeFlags::default()
    };
    let config =
        Config::from_flags(flags, &ProcessEnv::from_process()).map_err(|all| format!("{all:?}"))?;
    let daemon = server::build_daemon(config).await?;
    let endpoint = daemon.listen_addresses()[0].parse()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(daemon.run(async { drop(stopped.await) }));
    Ok((Daemon { stop, running }, endpoint))
}

/// Starts an MCP server. Returns its URL, too.
async fn start_mcp_server(command: &[String]) -> Result<(Child, String), Box<dyn Error>> {
    let (program, arguments) = command
        .split_first()
        .ok_or("orchestrator COMMAND ARGUMENT…")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdout = child.stdout.take().ok_or("the process has no stdout")?;
    let line = BufReader::new(stdout)
        .lines()
        .next_line()
        .await?
        .unwrap_or_default();
    let url = line
        .strip_prefix("listening ")
        .ok_or("the MCP server does not listen")?;
    Ok((child, url.to_owned()))
}

fn write_skill(dir: &Path, name: &str, description: &str) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let text = format!("---\nname: {name}\ndescription: {description}\n---\nAll about {name}.\n");
    fs::write(dir.join("SKILL.md"), text)
}
