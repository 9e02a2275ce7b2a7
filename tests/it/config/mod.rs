//! Effect of each key of a config file, tested with the real binary, a file and a client.

mod command;
mod disabled_skills;
mod limits;
pub(crate) mod metrics;
mod traces;
mod watch;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use caproot::proto::caproot::v1::{
    Consistency, Diagnostic, DiagnosticCode, GetExecutorRequest, GetExecutorResponse,
    LandlockState, ListResourcesRequest, ListRootsRequest, ListSkillsResponse, RootReason, Scope,
    SelectedCapabilityRoot,
};
use rustix::process::{Pid, Signal, kill_process};
use tonic::Code;

use crate::fixture::Fixture;
use crate::harness::{
    Client, assert_rpc_error, bytes_of, connect, in_time, list_request, located, read_request,
    selected,
};

/// Returns a command of the binary in an environment in which no user's skills are found.
fn caproot_command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_caproot"));
    command.args(args).env_clear().env("HOME", "/nonexistent").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the binary until it exits.
fn run_to_end(args: &[&str]) -> Output {
    caproot_command(args).output().expect("the binary runs")
}

/// Daemon with a config file, and a client of its first TCP listener.
struct ConfiguredDaemon {
    child: Child,
    /// Addresses that the daemon printed on stdout.
    listening: Vec<String>,
    client: Option<Client>,
}

impl ConfiguredDaemon {
    /// Writes the file into the fixture and starts the daemon. Adds `listen` if the file lacks the
    /// key.
    async fn start(fixture: &Fixture, config: &str) -> Self {
        Self::start_with(fixture, config, &[]).await
    }

    async fn start_with(fixture: &Fixture, config: &str, flags: &[&str]) -> Self {
        let listen = "listen: ['tcp:127.0.0.1:0']\n";
        let listen = if config.contains("listen:") { "" } else { listen };
        let config = format!("{config}\n{listen}");
        let file = fixture.path("caproot.yaml");
        fs::write(&file, &config).expect("a file");
        let file = file.to_str().expect("a path in UTF-8");
        // Another working directory: relative paths must be resolved from the file's directory.
        let mut command = caproot_command(&[&["serve", "--config", file], flags].concat());
        let child = command.current_dir("/").spawn().expect("the binary runs");
        let mut served = Self { child, listening: Vec::new(), client: None };
        let mut lines = BufReader::new(served.child.stdout.take().expect("piped")).lines();
        while let Some(Ok(line)) = lines.next() {
            let address = line.strip_prefix("listening ").expect("a line `listening …`");
            served.listening.push(address.to_owned());
            if let Some(address) = address.strip_prefix("tcp:") {
                served.client = Some(connect(address).await);
                return served;
            }
        }
        let log = read_pipe(served.child.stderr.take().expect("piped"));
        panic!("no TCP listener: {:?} {log}", served.listening);
    }

    fn client(&self) -> Client {
        self.client.clone().expect("connected")
    }

    async fn list(&self, roots: &[SelectedCapabilityRoot]) -> ListSkillsResponse {
        let mut client = self.client();
        in_time(client.list_skills(list_request(roots))).await.expect("a list").into_inner()
    }

    /// Returns the listed packages in order.
    async fn packages(&self, roots: &[SelectedCapabilityRoot]) -> Vec<String> {
        self.list(roots).await.skills.into_iter().map(|skill| skill.package).collect()
    }

    async fn executor(&self) -> GetExecutorResponse {
        let mut client = self.client();
        in_time(client.get_executor(GetExecutorRequest {})).await.expect("an answer").into_inner()
    }

    /// Reads the first page of a file.
    async fn read(
        &self,
        root: &SelectedCapabilityRoot,
        package: &str,
        resource: &str,
    ) -> Result<Vec<u8>, tonic::Status> {
        let mut client = self.client();
        let answer = in_time(client.read_resource(read_request(root, package, resource))).await;
        answer.map(|page| bytes_of(&page.into_inner()))
    }

    /// Lists the files of a package in a published root.
    async fn list_files(&self, root: &str, package: &str) -> Vec<String> {
        let request = ListResourcesRequest {
            root: Some(published(root)),
            package: package.into(),
            ..Default::default()
        };
        let answer = in_time(self.client().list_resources(request)).await.expect("files");
        let files = answer.into_inner().resources.into_iter();
        files.map(|file| file.resource[package.len() + 1..].to_owned()).collect()
    }

    /// Stops the daemon with SIGTERM, and returns its log.
    async fn stop_and_read_log(mut self) -> String {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, Signal::TERM).expect("a signal");
        let stderr = self.child.stderr.take().expect("piped");
        // The client's task must run meanwhile, to close its connection.
        tokio::task::spawn_blocking(|| read_pipe(stderr)).await.expect("no panic")
    }
}

fn read_pipe(mut pipe: impl std::io::Read) -> String {
    let mut text = String::new();
    pipe.read_to_string(&mut text).expect("text");
    text
}

impl Drop for ConfiguredDaemon {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn published(id: &str) -> SelectedCapabilityRoot {
    located(id, &format!("published:{id}"))
}

#[tokio::test]
async fn environment_ids_select_the_roots_of_this_daemon() {
    let fixture = Fixture::new("skill root/a");
    let served =
        ConfiguredDaemon::start(&fixture, "environment_ids: [one, two]\nallow: [root]").await;
    assert_eq!(served.executor().await.environment_ids, ["one", "two"]);
    let root = |environment: &str| {
        let mut root = selected("r", fixture.path("root"));
        root.location.as_mut().expect("a location").environment_id = environment.into();
        root
    };
    assert_eq!(served.packages(&[root("two")]).await, ["skill://r/a"]);
    let status = &served.list(&[root("local")]).await.roots[0];
    assert_eq!(status.reason(), RootReason::WrongEnvironment);
}

#[tokio::test]
async fn listen_takes_unix_and_tcp_addresses() {
    let fixture = Fixture::new("dir run\nmode 0700 run");
    let config = "listen: ['unix:run/c.sock', 'tcp:localhost:0']\nallow: []";
    let served = ConfiguredDaemon::start(&fixture, config).await;
    let socket = format!("unix:{}", fixture.path("run/c.sock").display());
    assert_eq!(served.listening[0], socket);
    assert!(served.listening[1].starts_with("tcp:127.0.0.1:"), "{:?}", served.listening);
    assert_eq!(run_to_end(&["status", "--endpoint", &socket]).status.code(), Some(0));
}

#[tokio::test]
async fn allow_limits_selected_roots_and_link_targets() {
    let fixture =
        Fixture::new("skill in/root/a\nskill out/b\nlink in/root/l -> ../../more/c\nskill more/c");
    let served = ConfiguredDaemon::start(&fixture, "allow: [in, more]").await;
    let inside = selected("i", fixture.path("in/root"));
    let outside = selected("o", fixture.path("out"));
    let list = served.list(&[inside, outside]).await;
    let packages: Vec<_> = list.skills.iter().map(|s| &*s.package).collect();
    assert_eq!(packages, ["skill://i/a", "skill://i/l"]);
    assert_eq!(list.roots[1].reason(), RootReason::NotAllowed);
    assert!(
        in_time(served.client().list_roots(ListRootsRequest {}))
            .await
            .expect("roots")
            .into_inner()
            .roots
            .is_empty()
    );
}

#[tokio::test]
async fn roots_are_listed_in_the_order_of_their_scopes() {
    let fixture = Fixture::new("skill r/one\nskill u/two\nskill s/three\nskill a/four");
    let config = "roots:\n- {id: d, path: a, scope: admin}\n- {id: c, path: s, scope: system}\n\
                  - {id: b, path: u}\n- {id: z, path: r, scope: repo}\n- {id: a, path: gone}\n";
    let served = ConfiguredDaemon::start(&fixture, config).await;
    let mut client = served.client();
    let roots = in_time(client.list_roots(ListRootsRequest {})).await.expect("roots").into_inner();
    let order: Vec<_> = roots.roots.iter().map(|r| (r.id.as_str(), r.scope())).collect();
    let expected = [
        ("z", Scope::Repo),
        ("a", Scope::User),
        ("b", Scope::User),
        ("c", Scope::System),
        ("d", Scope::Admin),
    ];
    assert_eq!(order, expected);
    assert_eq!(roots.roots[1].reason(), RootReason::NotFound, "a root may be created later");
    fixture.write("gone/five/SKILL.md", "---\nname: five\ndescription: Five.\n---\n");
    let mut fresh = list_request(&[published("a")]);
    fresh.set_consistency(Consistency::Fresh);
    let listed = in_time(client.list_skills(fresh)).await.expect("a list").into_inner();
    assert_eq!(listed.skills.len(), 1);
}

#[tokio::test]
async fn follow_links_can_be_switched_off() {
    let fixture = Fixture::new(
        "skill on/a\nlink on/l -> ../more/b\nlink on/a/x -> ../../more/b/SKILL.md\n\
         skill off/a\nlink off/l -> ../more/b\nlink off/a/x -> ../../more/b/SKILL.md\n\
         skill sys/a\nlink sys/l -> ../more/b\nskill more/b",
    );
    let config = "allow: [more]\nroots: [{id: on, path: on}, {id: off, path: off, \
                  follow_links: false}, {id: sys, path: sys, scope: system}]";
    let served = ConfiguredDaemon::start(&fixture, config).await;
    assert_eq!(served.packages(&[published("on")]).await, ["skill://on/a", "skill://on/l"]);
    assert!(served.read(&published("on"), "skill://on/a", "skill://on/a/x").await.is_ok());
    for id in ["off", "sys"] {
        let list = served.list(&[published(id)]).await;
        assert_eq!(list.skills.len(), 1, "{id}");
        let codes: Vec<_> = list.diagnostics.iter().map(Diagnostic::code).collect();
        assert!(codes.contains(&DiagnosticCode::OutsideRoot), "{id}: {codes:?}");
    }
    let answer = served.read(&published("off"), "skill://off/a", "skill://off/a/x").await;
    assert_rpc_error(answer, Code::PermissionDenied, "OUTSIDE_ROOT", None);
}

#[tokio::test]
async fn excluded_dirs_and_resource_dirs_replace_the_defaults() {
    let fixture = Fixture::new(
        "skill root/target/a\nskill root/vendor/b\nskill root/c\nskill root/c/scripts/d\n\
         skill root/c/bin/e\nfile root/c/vendor/x\n| x\nfile root/c/target/x\n| x",
    );
    let roots = "roots: [{id: r, path: root}]\n";
    let served = ConfiguredDaemon::start(&fixture, roots).await;
    let default = ["skill://r/vendor/b", "skill://r/c", "skill://r/c/bin/e"];
    assert_eq!(served.packages(&[published("r")]).await, default);
    let config = "search:\n  excluded_dirs: [vendor]\n  resource_dirs: [bin]\n";
    let served = ConfiguredDaemon::start(&fixture, &format!("{roots}{config}")).await;
    let list = served.list(&[published("r")]).await;
    let packages: Vec<_> = list.skills.iter().map(|s| &*s.package).collect();
    assert_eq!(packages, ["skill://r/target/a", "skill://r/c", "skill://r/c/scripts/d"]);
    let messages: BTreeMap<_, _> =
        list.diagnostics.iter().map(|d| (d.code(), &d.message)).collect();
    let skipped = messages[&DiagnosticCode::DirectoriesSkipped];
    assert!(skipped.ends_with("`bin` (1) `vendor` (2)"), "{skipped}");
    let read = |file: &'static str| served.read_file("r", "skill://r/c", file);
    assert_rpc_error(read("vendor/x").await, Code::NotFound, "RESOURCE_NOT_FOUND", None);
    assert!(read("target/x").await.is_ok() && read("bin/e/SKILL.md").await.is_ok());
}

impl ConfiguredDaemon {
    /// Reads a file of a package in a published root.
    async fn read_file(
        &self,
        root: &str,
        package: &str,
        file: &str,
    ) -> Result<Vec<u8>, tonic::Status> {
        self.read(&published(root), package, &format!("{package}/{file}")).await
    }
}

#[tokio::test]
async fn log_sets_the_format_and_the_filter() {
    let fixture = Fixture::new("dir root");
    let served = |log: &'static str, flags: &'static [&str]| {
        let fixture = &fixture;
        async move {
            let config = format!("allow: [root]\n{log}");
            ConfiguredDaemon::start_with(fixture, &config, flags).await.stop_and_read_log().await
        }
    };
    let text = served("", &[]).await;
    assert!(text.contains("INFO") && text.contains("stopping"), "{text}");
    let json = served("log: {format: json}", &[]).await;
    let lines: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines.iter().any(|l| l["fields"]["message"] == "stopping"), "{json}");
    // Without the sandbox, no warning about missing kernel features is logged.
    let quiet = "log: {filter: warn}\nsandbox: {landlock: off}";
    assert_eq!(served(quiet, &[]).await, "");
    let loud = served("log: {filter: warn}", &["--log", "info"]).await;
    assert!(loud.contains("stopping"), "{loud}");
}

#[tokio::test]
async fn sandbox_can_be_switched_off() {
    let fixture = Fixture::new("dir root");
    let off = "allow: [root]\nsandbox: {landlock: off}";
    let served = ConfiguredDaemon::start(&fixture, off).await;
    let status = served.executor().await.sandbox.expect("a status");
    assert_eq!((status.landlock(), status.readable_dirs), (LandlockState::Off, 0));
    assert!(status.no_new_privs, "no_new_privs is always set");
    for (config, flags) in [("allow: [root]", &[][..]), (off, &["--sandbox", "best-effort"])] {
        let served = ConfiguredDaemon::start_with(&fixture, config, flags).await;
        let status = served.executor().await.sandbox.expect("a status");
        assert_ne!(status.landlock(), LandlockState::Off, "{config} {flags:?}");
    }
}

#[tokio::test]
async fn flags_replace_lists_of_the_file() {
    let fixture = Fixture::new("skill a/one\nskill b/two");
    let flag = format!("flag={}", fixture.path("b").display());
    let config = "environment_ids: [x]\nroots: [{id: file, path: a}]\nlimits: {max_depth: 3}\n\
                  disabled_skills: [{root: file, path: one}]";
    let flags = ["--root", &flag, "--environment-id", "local", "--listen", "tcp:127.0.0.1:0"];
    let served = ConfiguredDaemon::start_with(&fixture, config, &flags).await;
    let executor = served.executor().await;
    assert_eq!(executor.environment_ids, ["local"]);
    assert_eq!(executor.limits.expect("limits").max_depth, 3, "no flag sets this limit");
    assert_eq!(served.packages(&[published("flag")]).await, ["skill://flag/two"]);
    let gone = served.list(&[published("file")]).await;
    assert_eq!(gone.roots[0].reason(), RootReason::InvalidPath);
}

/// Converts a path into a command line argument.
fn arg(path: impl AsRef<Path>) -> String {
    PathBuf::from(path.as_ref()).into_os_string().into_string().expect("a path in UTF-8")
}
