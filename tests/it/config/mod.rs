//! Effect of each key of a config file, tested with the real binary, a file and a client.

mod command;
mod disabled_skills;
mod errors;
mod limits;
pub(crate) mod metrics;
mod reload;
mod traces;
mod watch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use caproot_core::proto::caproot::v1::{
    Diagnostic, DiagnosticCode, LandlockState, RootReason, Scope,
};
use tonic::Code;

use crate::harness::fixture::Fixture;
use crate::harness::process::{ConfiguredDaemon, caproot, run_command};
use crate::harness::watch_harness::fresh_list;
use crate::harness::{
    Daemon, assert_rpc_error, bytes_of, files_request, packages, published, read_request, selected,
};

/// Lists the files of a package in a published root.
async fn list_package_files(served: &Daemon, root: &str, package: &str) -> Vec<String> {
    let request = files_request(&published(root), package);
    let files = served
        .list_resources(request)
        .await
        .expect("files")
        .resources
        .into_iter();
    files
        .map(|file| file.resource[package.len() + 1..].to_owned())
        .collect()
}

/// Reads the first page of a file of a package in a published root.
async fn read_file(
    served: &Daemon,
    root: &str,
    package: &str,
    file: &str,
) -> Result<Vec<u8>, tonic::Status> {
    let request = read_request(&published(root), package, &format!("{package}/{file}"));
    served.read(request).await.map(|page| bytes_of(&page))
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
    assert_eq!(served.process.endpoints()[0], socket);
    assert!(
        served.process.endpoints()[1].starts_with("tcp:127.0.0.1:"),
        "{:?}",
        served.process.endpoints()
    );
    run_command(caproot(["status", "--endpoint", &socket]))
        .await
        .succeeded();
}

#[tokio::test]
async fn allow_limits_selected_roots_and_link_targets() {
    let fixture =
        Fixture::new("skill in/root/a\nskill out/b\nlink in/root/l -> ../../more/c\nskill more/c");
    let served = ConfiguredDaemon::start(&fixture, "allow: [in, more]").await;
    let inside = selected("i", fixture.path("in/root"));
    let outside = selected("o", fixture.path("out"));
    let list = served.list(&[inside, outside]).await;
    assert_eq!(packages(&list), ["skill://i/a", "skill://i/l"]);
    assert_eq!(list.roots[1].reason(), RootReason::NotAllowed);
    assert!(served.published_roots().await.is_empty());
}

#[tokio::test]
async fn roots_are_listed_in_the_order_of_their_scopes() {
    let fixture = Fixture::new("skill r/one\nskill u/two\nskill s/three\nskill a/four");
    let config = "roots:\n- {id: d, path: a, scope: admin}\n- {id: c, path: s, scope: system}\n\
                  - {id: b, path: u}\n- {id: z, path: r, scope: repo}\n- {id: a, path: gone}\n";
    let served = ConfiguredDaemon::start(&fixture, config).await;
    let roots = served.published_roots().await;
    let order: Vec<_> = roots.iter().map(|r| (r.id.as_str(), r.scope())).collect();
    let expected = [
        ("z", Scope::Repo),
        ("a", Scope::User),
        ("b", Scope::User),
        ("c", Scope::System),
        ("d", Scope::Admin),
    ];
    assert_eq!(order, expected);
    assert_eq!(
        roots[1].reason(),
        RootReason::NotFound,
        "a root may be created later"
    );
    fixture.write(
        "gone/five/SKILL.md",
        "---\nname: five\ndescription: Five.\n---\n",
    );
    assert_eq!(fresh_list(&served, &[published("a")]).await.skills.len(), 1);
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
    assert_eq!(
        served.packages(&[published("on")]).await,
        ["skill://on/a", "skill://on/l"]
    );
    assert!(read_file(&served, "on", "skill://on/a", "x").await.is_ok());
    for id in ["off", "sys"] {
        let list = served.list(&[published(id)]).await;
        assert_eq!(list.skills.len(), 1, "{id}");
        let codes: Vec<_> = list.diagnostics.iter().map(Diagnostic::code).collect();
        assert!(
            codes.contains(&DiagnosticCode::OutsideRoot),
            "{id}: {codes:?}"
        );
    }
    let answer = read_file(&served, "off", "skill://off/a", "x").await;
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
    assert_eq!(
        packages(&list),
        ["skill://r/target/a", "skill://r/c", "skill://r/c/scripts/d"]
    );
    let messages: BTreeMap<_, _> = list
        .diagnostics
        .iter()
        .map(|d| (d.code(), &d.message))
        .collect();
    let skipped = messages[&DiagnosticCode::DirectoriesSkipped];
    assert!(skipped.ends_with("`bin` (1) `vendor` (2)"), "{skipped}");
    let read = |file: &'static str| read_file(&served, "r", "skill://r/c", file);
    assert_rpc_error(
        read("vendor/x").await,
        Code::NotFound,
        "RESOURCE_NOT_FOUND",
        None,
    );
    assert!(read("target/x").await.is_ok() && read("bin/e/SKILL.md").await.is_ok());
}

#[tokio::test]
async fn log_sets_the_format_and_the_filter() {
    let fixture = Fixture::new("dir root");
    let served = |log: &'static str, flags: &'static [&str]| {
        let fixture = &fixture;
        async move {
            let config = format!("allow: [root]\n{log}");
            ConfiguredDaemon::start_with(fixture, &config, flags)
                .await
                .stop()
                .await
        }
    };
    let text = served("", &[]).await;
    assert!(text.contains("INFO") && text.contains("stopping"), "{text}");
    let json = served("log: {format: json}", &[]).await;
    let lines: Vec<serde_json::Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert!(
        lines.iter().any(|l| l["fields"]["message"] == "stopping"),
        "{json}"
    );
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
    assert_eq!(
        (status.landlock(), status.readable_dirs),
        (LandlockState::Off, 0)
    );
    assert!(status.no_new_privs, "no_new_privs is always set");
    for (config, flags) in [
        ("allow: [root]", &[][..]),
        (off, &["--sandbox", "best-effort"]),
    ] {
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
    let flags = [
        "--root",
        &flag,
        "--environment-id",
        "local",
        "--listen",
        "tcp:127.0.0.1:0",
    ];
    let served = ConfiguredDaemon::start_with(&fixture, config, &flags).await;
    let executor = served.executor().await;
    assert_eq!(executor.environment_ids, ["local"]);
    assert_eq!(
        executor.limits.expect("limits").max_depth,
        3,
        "no flag sets this limit"
    );
    assert_eq!(
        served.packages(&[published("flag")]).await,
        ["skill://flag/two"]
    );
    let gone = served.list(&[published("file")]).await;
    assert_eq!(gone.roots[0].reason(), RootReason::InvalidPath);
}

/// Converts a path into a command line argument.
fn arg(path: impl AsRef<Path>) -> String {
    PathBuf::from(path.as_ref())
        .into_os_string()
        .into_string()
        .expect("a path in UTF-8")
}
