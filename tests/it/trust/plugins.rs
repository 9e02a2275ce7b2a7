//! Plugins under a lock, in lists and streams of the real daemon.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::Arc;

use caproot_client::{Fleet, Trust};
use caproot_core::lock::Lock;
use caproot_core::proto::caproot::v1::{
    Diagnostic, DiagnosticCode, ListSkillsResponse, Plugin, RemovalReason, Severity, TrustState,
};
use caproot_session::{Session, SessionOptions};
use serde_json::json;
use tonic::Code;

use super::{LockedDaemon, bytes_read, diagnostic, lock_skills, states};
use crate::harness::fixture::Fixture;
use crate::harness::process::{ConfiguredDaemon, client_command_with};
use crate::harness::replica::Replica;
use crate::harness::shared_mapping::SharedMapping;
use crate::harness::watch_harness::{skill_text, watch_request};
use crate::harness::{
    HANG_TIMEOUT, assert_rpc_error, files_request, in_time, published, read_request,
};
use crate::orchestrator::call_command::CallProcess;
use crate::orchestrator::{self, executor, serve_tree};

/// Plugin with a server whose declaration has a secret, a hook, a command and a skill; and another skill.
pub(super) const TREE: &str = r#"
file r/kit/.claude-plugin/plugin.json
| {"name": "kit", "version": "1.0.0"}
file r/kit/.mcp.json
| {"mcpServers": {"db": {"command": "./run", "env": {"PASSWORD": "hunter2"}}}}
file r/kit/hooks/hooks.json
| {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "./run"}]}]}}
file r/kit/commands/go.md
| Go.
file r/kit/run
| #!/bin/sh
mode 0755 r/kit/run
skill r/kit/skills/deploy
skill r/mail
"#;

const KIT: &str = "skill://r/kit";
const MANIFEST: &str = "r/kit/.claude-plugin/plugin.json";

/// Change of the files, and its opposite.
type UndoneChange<'a> = (&'a dyn Fn(), &'a dyn Fn());

impl LockedDaemon {
    async fn plugins(&self) -> Vec<Plugin> {
        let roots = self.daemon.resolve(&[published("r")]).await.roots;
        roots.into_iter().flat_map(|root| root.plugins).collect()
    }

    /// Resolves again until a condition holds.
    async fn wait_for_plugins(&self, holds: impl Fn(&[Plugin]) -> bool) -> Vec<Plugin> {
        loop {
            let plugins = self.plugins().await;
            if holds(&plugins) {
                return plugins;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Returns the message about the plugin, once a list has one.
    async fn change_message(&self) -> String {
        let is_about = |list: &ListSkillsResponse| {
            let found = diagnostic(list, DiagnosticCode::PackageChanged);
            found.is_some_and(|found| found.message.contains("plugin"))
        };
        let list = self.wait_for_list(is_about).await;
        let found = diagnostic(&list, DiagnosticCode::PackageChanged).expect("a diagnostic");
        found.message.clone()
    }
}

fn is_listed(replica: &Replica) -> bool {
    replica.plugins.contains_key(KIT)
}

#[tokio::test]
async fn an_approved_plugin_is_listed_whole() {
    let locked = LockedDaemon::start(TREE, "hide").await;
    let list = locked.list().await;
    assert_eq!(
        states(&list),
        [
            ("kit:deploy", TrustState::Approved),
            ("mail", TrustState::Approved)
        ]
    );
    let found: Vec<_> = list.diagnostics.iter().map(Diagnostic::code).collect();
    assert_eq!(
        found,
        [DiagnosticCode::SecretRedacted],
        "{:?}",
        list.diagnostics
    );
    let plugins = locked.plugins().await;
    let plugin = plugins.first().expect("the plugin");
    assert_eq!(plugin.trust(), TrustState::Approved);
    assert_eq!(plugin.mcp_servers[0].name, "db");
    let kinds: Vec<_> = plugin.components.iter().map(|c| &*c.name).collect();
    assert_eq!(kinds, ["Stop", "go"]);

    // The files are listed and readable as approved, and the secret stays where it is.
    let files = files_request(&published("r"), KIT);
    let files = locked.daemon.list_resources(files).await.expect("a list");
    assert_eq!(files.resources.len(), 5);
    let withheld: Vec<_> = files.withheld.iter().map(|file| &*file.resource).collect();
    assert_eq!(withheld, ["skill://r/kit/.mcp.json"]);
    let read = |name: &str| read_request(&published("r"), KIT, &format!("{KIT}/{name}"));
    let text = locked.daemon.read_all(read("commands/go.md")).await;
    assert_eq!(text.expect("an approved file"), b"Go.\n");
    let secret = locked.daemon.read(read(".mcp.json")).await;
    assert_eq!(secret.expect_err("withheld").code(), Code::NotFound);

    let status = locked.daemon.executor().await.trust.expect("a lock");
    assert_eq!((status.lock_plugins, status.approved_plugins), (1, 1));
    locked.daemon.stop().await;
}

#[tokio::test]
async fn with_hide_each_kind_of_change_omits_the_plugin_until_it_is_undone() {
    let locked = LockedDaemon::start(TREE, "hide").await;
    let fixture = &locked.fixture;
    let mut replica = Replica::synced(&locked.daemon, watch_request(vec![published("r")])).await;
    let run = fixture.path("r/kit/run");
    let link = fixture.path("r/kit/link");
    let set_mode = |mode| {
        fs::set_permissions(&run, fs::Permissions::from_mode(mode)).expect("a mode");
    };
    let servers = fs::read_to_string(fixture.path("r/kit/.mcp.json")).expect("the servers");
    let manifest = fs::read(fixture.path(MANIFEST)).expect("the manifest");
    let skill = fs::read(fixture.path("r/kit/skills/deploy/SKILL.md")).expect("the skill");
    let changes: [UndoneChange<'_>; 9] = [
        (
            // A value that no caller sees.
            &|| fixture.write("r/kit/.mcp.json", servers.replace("hunter2", "hunter3")),
            &|| fixture.write("r/kit/.mcp.json", &servers),
        ),
        (&|| fixture.write("r/kit/run", "#!/bin/no\n"), &|| {
            fixture.write("r/kit/run", "#!/bin/sh\n");
        }),
        (&|| set_mode(0o644), &|| set_mode(0o755)),
        (
            &|| fixture.write(MANIFEST, r#"{"name": "kit", "version": "2.0.0"}"#),
            &|| fixture.write(MANIFEST, &manifest),
        ),
        (
            &|| {
                fixture.write(
                    "r/kit/skills/deploy/SKILL.md",
                    skill_text("deploy", "Evil."),
                );
            },
            &|| fixture.write("r/kit/skills/deploy/SKILL.md", &skill),
        ),
        (&|| fixture.write("r/kit/deep/er/file", "x"), &|| {
            fs::remove_dir_all(fixture.path("r/kit/deep")).expect("removed");
        }),
        (&|| fixture.write("r/kit/.env", "TOKEN=1"), &|| {
            fs::remove_file(fixture.path("r/kit/.env")).expect("removed");
        }),
        (
            &|| symlink("/etc/hostname", &link).expect("a link"),
            &|| {
                fs::remove_file(&link).expect("removed");
            },
        ),
        (
            &|| fs::rename(fixture.path("r/kit/commands"), fixture.path("saved")).expect("moved"),
            &|| fs::rename(fixture.path("saved"), fixture.path("r/kit/commands")).expect("moved"),
        ),
    ];
    for (number, (change, undo)) in changes.into_iter().enumerate() {
        change();
        replica.wait_while(is_listed).await;
        let list = locked.list().await;
        let found = diagnostic(&list, DiagnosticCode::PackageChanged).expect("a diagnostic");
        assert_eq!(found.severity(), Severity::Error, "{number}");
        assert!(!found.message.contains("evil"), "{number}");
        undo();
        replica.wait_while(|replica| !is_listed(replica)).await;
    }
    replica.catch_up(&locked.daemon).await;
    locked.daemon.stop().await;
}

#[tokio::test]
async fn with_warn_each_plugin_has_its_state() {
    let locked = LockedDaemon::start(TREE, "warn").await;
    let mut replica = Replica::synced(&locked.daemon, watch_request(vec![published("r")])).await;
    assert_eq!(replica.plugins[KIT].trust(), TrustState::Approved);
    locked.fixture.write("r/kit/run", "#!/bin/no\n");
    replica
        .wait_while(|replica| replica.plugins[KIT].trust() != TrustState::Changed)
        .await;
    assert_eq!(
        locked.change_message().await,
        "the plugin `kit` differs from the lock: ~ `run`; review the files, then run caproot lock with \
         --update"
    );
    locked
        .fixture
        .write("r/more/.codex-plugin/plugin.json", r#"{"name": "more"}"#);
    replica
        .wait_while(|replica| !replica.plugins.contains_key("skill://r/more"))
        .await;
    let more = &replica.plugins["skill://r/more"];
    assert_eq!(more.trust(), TrustState::Unknown);
    let list = locked.list().await;
    let unknown = diagnostic(&list, DiagnosticCode::PackagesNotApproved).expect("a diagnostic");
    assert_eq!(
        unknown.message,
        "1 plugin is not in the lock; review them, then run caproot lock with --add"
    );
    assert_eq!(unknown.severity(), Severity::Warning);

    locked
        .fixture
        .write(MANIFEST, r#"{"name": "kit", "version": "2.0.0"}"#);
    let is_other = |list: &ListSkillsResponse| {
        let found = diagnostic(list, DiagnosticCode::PackageChanged);
        found.is_some_and(|found| found.message.contains("version `1.0.0` -> `2.0.0`"))
    };
    locked.wait_for_list(is_other).await;
    replica.catch_up(&locked.daemon).await;
    locked.daemon.stop().await;
}

#[tokio::test]
async fn a_skill_that_is_approved_alone_stays_without_its_plugin() {
    let locked = LockedDaemon::start(TREE, "hide").await;
    locked.fixture.write("r/kit/run", "#!/bin/no\n");
    locked.wait_for_plugins(<[_]>::is_empty).await;
    let list = locked.list().await;
    assert_eq!(
        states(&list),
        [
            ("kit:deploy", TrustState::Approved),
            ("mail", TrustState::Approved)
        ]
    );
    let read = read_request(&published("r"), KIT, "skill://r/kit/run");
    let refused = locked.daemon.read(read).await;
    assert_rpc_error(refused, Code::NotFound, "PACKAGE_NOT_FOUND", None);

    // An approved plugin needs no entry of its skills, which need one themselves.
    locked.fixture.write("r/kit/run", "#!/bin/sh\n");
    lock_skills(&locked.fixture, "--remove kit:deploy --out caproot.lock").await;
    locked
        .wait_for_list(|list| states(list) == [("mail", TrustState::Approved)])
        .await;
    locked.wait_for_plugins(|plugins| plugins.len() == 1).await;
    locked.daemon.stop().await;
}

#[tokio::test]
async fn a_lock_with_another_version_or_without_the_plugin_hides_it() {
    let locked = LockedDaemon::start(TREE, "hide").await;
    let lock = fs::read_to_string(locked.fixture.path("caproot.lock")).expect("a lock");
    locked
        .fixture
        .replace("caproot.lock", lock.replace("\"1.0.0\"", "\"0.9.0\""));
    locked.wait_for_plugins(<[_]>::is_empty).await;
    assert_eq!(
        locked.change_message().await,
        "the plugin `kit` differs from the lock: another version than `0.9.0`; review the files, then \
         run caproot lock with --update"
    );

    lock_skills(&locked.fixture, "--remove kit --out caproot.lock").await;
    let is_unknown =
        |list: &ListSkillsResponse| diagnostic(list, DiagnosticCode::PackagesNotApproved).is_some();
    let list = locked.wait_for_list(is_unknown).await;
    let unknown = diagnostic(&list, DiagnosticCode::PackagesNotApproved).expect("a diagnostic");
    assert_eq!(unknown.severity(), Severity::Error);
    assert!(locked.plugins().await.is_empty());
    lock_skills(&locked.fixture, "--add kit --out caproot.lock").await;
    locked.wait_for_plugins(|plugins| plugins.len() == 1).await;
    locked.daemon.stop().await;
}

#[tokio::test]
async fn equal_copies_are_approved_and_others_are_not() {
    let fixture = Fixture::new(TREE);
    let copy = |name: &str| fixture.add_copy("r/kit", name);
    copy("r/copy");
    lock_skills(&fixture, "--out caproot.lock").await;
    copy("r/evil");
    fixture.write("r/evil/run", "#!/bin/evil\n");
    let config = "roots: [{id: r, path: r}]\ntrust: {lock: caproot.lock, mode: hide}";
    let daemon = ConfiguredDaemon::start(&fixture, config).await;
    let roots = daemon.resolve(&[published("r")]).await.roots;
    let packages: Vec<_> = roots[0].plugins.iter().map(|p| &*p.package).collect();
    assert_eq!(packages, ["skill://r/copy", KIT]);

    // Eight copies are compared, and further ones count as changed.
    for n in 0..8 {
        copy(&format!("r/more{n}"));
    }
    let plugins = loop {
        let roots = daemon.resolve(&[published("r")]).await.roots;
        let text = format!("{:?}", roots[0].diagnostics);
        if text.contains("more than 8 plugins are named `kit`") {
            break roots[0].plugins.len();
        }
        tokio::task::yield_now().await;
    };
    assert!((2..=8).contains(&plugins), "{plugins}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_write_without_an_event_is_refused_and_then_hides_the_plugin() {
    let tree = format!("{TREE}\nfile r/kit/data\n| \\{{100*g}}\\");
    let fixture = Fixture::new(&tree);
    let (good, evil) = (vec![b'g'; 100], vec![b'e'; 100]);
    // The first write sets the times. The later ones need not.
    let mut mapping = SharedMapping::new(&fixture.path("r/kit/data"));
    mapping.write(&evil);
    mapping.write(&good);
    let locked = LockedDaemon::start_with(fixture, "hide").await;
    let request = read_request(&published("r"), KIT, "skill://r/kit/data");
    let text = locked.daemon.read_all(request.clone()).await;
    assert_eq!(text.expect("the approved bytes"), good);
    mapping.write(&evil);
    let refused = locked.daemon.read_all(request).await;
    assert_rpc_error(refused, Code::FailedPrecondition, "NOT_APPROVED", None);
    locked.wait_for_plugins(<[_]>::is_empty).await;
    locked.daemon.stop().await;
}

#[tokio::test]
async fn an_unapproved_plugin_under_an_approved_name_costs_little() {
    let mut fixture = Fixture::new(TREE);
    lock_skills(&fixture, "--out caproot.lock").await;
    fixture.add("repeat 10000 file r/kit/data/{}");
    fixture.add("sparse 200000000 r/kit/large");
    let config = "roots: [{id: r, path: r}]\ntrust: {lock: caproot.lock, mode: hide}";
    let daemon = ConfiguredDaemon::start(&fixture, config).await;
    let roots = daemon.resolve(&[published("r")]).await.roots;
    assert!(roots[0].plugins.is_empty());
    let pid = daemon.process.pid();
    assert!(bytes_read(pid) < 20_000_000, "{}", bytes_read(pid));
    daemon.stop().await;
}

#[tokio::test]
async fn a_stream_names_the_removed_plugin_and_the_reason_of_its_skill() {
    let locked = LockedDaemon::start(TREE, "hide").await;
    let mut replica = Replica::synced(&locked.daemon, watch_request(vec![published("r")])).await;
    locked.fixture.write(
        "r/kit/skills/deploy/SKILL.md",
        skill_text("deploy", "Evil."),
    );
    let change = replica.next_change().await;
    let skill = (
        "skill://r/kit/skills/deploy".to_owned(),
        RemovalReason::NotApproved,
    );
    assert_eq!(change.removed, [skill]);
    replica.wait_while(is_listed).await;
    replica.catch_up(&locked.daemon).await;
    locked.daemon.stop().await;
}

#[tokio::test]
async fn a_session_with_a_lock_has_only_the_declarations_of_its_lock() {
    let tree = TREE.replace("r/kit/", "r/a. NOTE: obey/");
    let (fixture, daemon) = serve_tree("r", &tree).await;
    lock_skills(&fixture, "--out caproot.lock").await;
    let lock = Lock::read(&fixture.path("caproot.lock")).expect("a lock");
    let digest = lock.plugins()[0].content_digest.to_string();

    let fleet = Fleet::from_executors([("r".to_owned(), executor(&daemon.address))]);
    let options = SessionOptions {
        plugins: true,
        trust: Trust::Lock(Arc::new(lock)),
        start_timeout: HANG_TIMEOUT,
        ..SessionOptions::default()
    };
    let session = Session::start(&fleet, vec![orchestrator::published("r")], &options).await;
    let session = session.expect("a session");
    let plugins = session.plugins();
    let plugin = &plugins.first().expect("the plugin").plugin;
    assert_eq!(plugin.package, KIT);
    assert_eq!(plugin.mcp_servers[0].handle, "skill://r/kit#db");
    assert_eq!(plugin.mcp_servers[0].declared_by, "skill://r/kit/.mcp.json");
    assert!(!format!("{plugin:?}").contains("obey"), "{plugin:?}");
    let command = plugins[0]
        .server_commands()
        .remove("db")
        .expect("a command");
    assert_eq!(
        command,
        [
            "caproot",
            "exec",
            "--server",
            "skill://r/kit#db",
            "--digest",
            &*digest
        ]
    );

    // A plugin with another declaration is not approved.
    let mut watch = session.watch_plugins();
    let good = fs::read_to_string(fixture.path("r/a. NOTE: obey/.mcp.json")).expect("the servers");
    fixture.replace("r/a. NOTE: obey/.mcp.json", good.replace("./run", "./evil"));
    let gone = in_time(watch.next()).await;
    assert_eq!(gone.removed.len(), 1);
    assert!(session.plugins().is_empty());
    fixture.replace("r/a. NOTE: obey/.mcp.json", good);
    let back = in_time(watch.next()).await;
    assert_eq!(back.added.len(), 1);
    assert_eq!(back.added[0].plugin.package, KIT);

    // The lines of `caproot call` have the same plugins.
    let lock = fixture.path("caproot.lock");
    let words = ["call", "--root", "published:r", "--lock"];
    let mut command = client_command_with(&daemon, words);
    command.arg(&lock).arg("--plugins");
    let mut process = CallProcess::start(command);
    let plugins = json!({"method": "plugins"});
    let listed = process.request(plugins.clone()).await["result"].clone();
    assert_eq!(listed[0]["plugin"]["package"], KIT, "{listed}");
    assert_eq!(listed[0]["serverCommands"]["db"][5], digest);
    let manifest = r#"{"name": "kit", "version": "3"}"#;
    fixture.replace("r/a. NOTE: obey/.claude-plugin/plugin.json", manifest);
    loop {
        let listed = process.request(plugins.clone()).await["result"].clone();
        if listed == json!([]) {
            break;
        }
    }
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}
