//! States of skills in lists and streams, with both modes.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use caproot_core::proto::caproot::v1::{DiagnosticCode, RemovalReason, Severity, TrustState};

use super::{LockedDaemon, TREE, bytes_read, config, diagnostic, lock_skills, states, warnings};
use crate::harness::fixture::Fixture;
use crate::harness::process::ConfiguredDaemon;
use crate::harness::replica::Replica;
use crate::harness::watch_harness::{skill_text, watch_request};
use crate::harness::{published, read_request, selected};

const PDF: &str = "skill://r/pdf";

/// Change of the files, and its opposite.
type UndoneChange<'a> = (&'a dyn Fn(), &'a dyn Fn());

#[tokio::test]
async fn with_warn_each_skill_has_its_state() {
    let locked = LockedDaemon::start(TREE, "warn").await;
    let mut replica = Replica::synced(&locked.daemon, watch_request(vec![published("r")])).await;
    let list = locked.list().await;
    assert_eq!(
        states(&list),
        [
            ("mail", TrustState::Approved),
            ("pdf", TrustState::Approved)
        ]
    );
    assert_eq!(warnings(&list), 0, "{:?}", list.diagnostics);

    locked.fixture.write("r/pdf/references/steps.md", "Two.\n");
    let change = replica.next_change().await;
    assert_eq!(change.upserted, [PDF]);
    assert_eq!(replica.skills[PDF].trust(), TrustState::Changed);

    locked
        .fixture
        .write("r/new/SKILL.md", skill_text("new", "New."));
    replica.wait_while(|replica| replica.skills.len() < 3).await;
    assert_eq!(replica.skills["skill://r/new"].trust(), TrustState::Unknown);

    let list = locked.list().await;
    let changed = diagnostic(&list, DiagnosticCode::PackageChanged).expect("a diagnostic");
    assert_eq!(changed.severity(), Severity::Warning);
    assert_eq!(
        changed.message,
        "`pdf` differs from the lock: ~ `references/steps.md`; review the files, then run caproot lock \
         with --update"
    );
    assert_eq!(changed.resource, "skill://r/pdf/SKILL.md");
    let unknown = diagnostic(&list, DiagnosticCode::PackagesNotApproved).expect("a diagnostic");
    assert_eq!(
        unknown.message,
        "1 skill is not in the lock; review them, then run caproot lock with --add"
    );

    // The approved content makes the state as before.
    locked.fixture.write("r/pdf/references/steps.md", "One.\n");
    replica
        .wait_while(|replica| replica.skills[PDF].trust() != TrustState::Approved)
        .await;
    replica.catch_up(&locked.daemon).await;
    locked.daemon.stop().await;
}

#[tokio::test]
async fn with_hide_each_kind_of_change_omits_the_skill_until_it_is_undone() {
    let locked = LockedDaemon::start(TREE, "hide").await;
    let fixture = &locked.fixture;
    let mut replica = Replica::synced(&locked.daemon, watch_request(vec![published("r")])).await;
    let script = fixture.path("r/pdf/scripts/fill.py");
    let set_mode = |mode| {
        fs::set_permissions(&script, fs::Permissions::from_mode(mode)).expect("a mode");
    };
    let good = fs::read(fixture.path("r/pdf/SKILL.md")).expect("the skill");
    let changes: [UndoneChange<'_>; 7] = [
        (
            &|| fixture.write("r/pdf/SKILL.md", skill_text("pdf", "Other.")),
            &|| fixture.write("r/pdf/SKILL.md", &good),
        ),
        (
            &|| fixture.write("r/pdf/references/steps.md", "Two.\n"),
            &|| fixture.write("r/pdf/references/steps.md", "One.\n"),
        ),
        (&|| fixture.write("r/pdf/scripts/more.py", "#!\n"), &|| {
            fs::remove_file(fixture.path("r/pdf/scripts/more.py")).expect("removed");
        }),
        (
            &|| fs::rename(&script, fixture.path("r/saved")).expect("renamed"),
            &|| fs::rename(fixture.path("r/saved"), &script).expect("renamed"),
        ),
        (&|| set_mode(0o755), &|| set_mode(0o644)),
        (
            &|| {
                fs::rename(&script, fixture.path("r/saved")).expect("renamed");
                symlink("/etc/hostname", &script).expect("a link");
            },
            &|| {
                fs::remove_file(&script).expect("removed");
                fs::rename(fixture.path("r/saved"), &script).expect("renamed");
            },
        ),
        (
            &|| {
                fixture.write(
                    "r/pdf/agents/openai.yaml",
                    "interface: {display_name: Evil}\n",
                );
            },
            &|| fs::remove_dir_all(fixture.path("r/pdf/agents")).expect("removed"),
        ),
    ];
    for (number, (change, undo)) in changes.into_iter().enumerate() {
        change();
        replica
            .wait_while(|replica| replica.skills.contains_key(PDF))
            .await;
        let list = locked.list().await;
        assert_eq!(states(&list), [("mail", TrustState::Approved)], "{number}");
        let found = diagnostic(&list, DiagnosticCode::PackageChanged).expect("a diagnostic");
        assert_eq!(found.severity(), Severity::Error, "{number}");
        undo();
        replica
            .wait_while(|replica| !replica.skills.contains_key(PDF))
            .await;
    }
    replica.catch_up(&locked.daemon).await;
    locked.daemon.stop().await;
}

#[tokio::test]
async fn a_hidden_skill_is_removed_with_its_reason() {
    let locked = LockedDaemon::start(TREE, "hide").await;
    let mut replica = Replica::synced(&locked.daemon, watch_request(vec![published("r")])).await;
    locked.fixture.write("r/pdf/scripts/fill.py", "#!evil\n");
    let change = replica.next_change().await;
    assert_eq!(
        change.removed,
        [(PDF.to_owned(), RemovalReason::NotApproved)]
    );
    locked.daemon.stop().await;
}

#[tokio::test]
async fn names_of_added_files_and_texts_of_hidden_skills_are_not_sent() {
    let locked = LockedDaemon::start(TREE, "hide").await;
    locked.fixture.write("r/pdf/secret-name.md", "secret text");
    locked.fixture.write(
        "r/odd/SKILL.md",
        "---\nname: odd\nsecret-key: secret text\n---\n",
    );
    locked.fixture.write(
        "r/secret place/SKILL.md",
        skill_text("mail", "Secret copy."),
    );
    locked
        .fixture
        .write("r/secret place/broken/SKILL.md", "secret text");
    let list = locked
        .wait_for_list(|list| {
            list.skills.len() == 1
                && diagnostic(list, DiagnosticCode::PackageChanged).is_some()
                && diagnostic(list, DiagnosticCode::PackagesNotApproved).is_none()
        })
        .await;
    let text = format!("{list:?}");
    assert!(!text.contains("secret"), "{text}");
    let reserved: Vec<_> = list.roots.iter().flat_map(|r| &r.reserved_names).collect();
    assert_eq!(reserved, ["mail", "pdf"]);
    locked.daemon.stop().await;
}

#[tokio::test]
async fn a_skill_of_an_unapproved_plugin_is_listed_by_its_qualified_name() {
    let tree = "file r/kit/.codex-plugin/plugin.json\n| {\"name\": \"kit\", \"mcpServers\": {\"evil\": \
                {\"command\": \"evil\"}}, \"requires\": {\"hostCapabilities\": [\"evil\"]}}\n\
                skill r/kit/skills/deploy";
    let fixture = Fixture::new(tree);
    lock_skills(&fixture, "--out caproot.lock").await;
    lock_skills(&fixture, "--remove kit --out caproot.lock").await;
    let daemon = ConfiguredDaemon::start(&fixture, &config("hide")).await;
    let locked = LockedDaemon { fixture, daemon };
    let list = locked.list().await;
    assert_eq!(states(&list), [("kit:deploy", TrustState::Approved)]);
    let roots = locked.daemon.resolve(&[published("r")]).await;
    assert!(roots.roots.iter().all(|root| root.plugins.is_empty()));
    assert!(!format!("{roots:?} {list:?}").contains("evil"), "{roots:?}");
    assert_eq!(list.skills[0].plugin_depth, None);
    let omitted = diagnostic(&list, DiagnosticCode::PackagesNotApproved).expect("a diagnostic");
    assert_eq!(
        omitted.message,
        "1 plugin is not in the lock; review them, then run caproot lock with --add"
    );
    assert_eq!(omitted.severity(), Severity::Error);

    // Another prefix is another name.
    locked
        .fixture
        .replace("r/kit/.codex-plugin/plugin.json", "{\"name\": \"other\"}");
    locked.wait_for_list(|list| list.skills.is_empty()).await;
    locked.daemon.stop().await;
}

#[tokio::test]
async fn a_lock_applies_to_its_roots_and_to_selected_directories_in_them() {
    let fixture = Fixture::new("skill r/a\nskill s/b");
    lock_skills(&fixture, "--out caproot.lock").await;
    fixture.write("r/a/new.md", "new");
    let config = "roots: [{id: r, path: r}, {id: s, path: s}]\n\
                  trust: {lock: caproot.lock, mode: hide, roots: [r]}";
    let daemon = ConfiguredDaemon::start(&fixture, config).await;
    let s = daemon.list(&[published("s")]).await;
    assert_eq!(states(&s), [("b", TrustState::Unspecified)]);
    for root in [published("r"), selected("r", fixture.path("r/a"))] {
        assert!(daemon.list(&[root]).await.skills.is_empty());
    }
    daemon.stop().await;
}

#[tokio::test]
async fn both_versions_of_a_rolling_update_are_approved() {
    let fixture = Fixture::new(TREE);
    lock_skills(&fixture, "--out caproot.lock").await;
    fixture.write("r/pdf/references/steps.md", "Two.\n");
    lock_skills(&fixture, "--add pdf --out caproot.lock").await;
    let daemon = ConfiguredDaemon::start(&fixture, &config("hide")).await;
    let locked = LockedDaemon { fixture, daemon };
    assert_eq!(locked.list().await.skills.len(), 2);

    let resource = "skill://r/pdf/references/steps.md";
    let request = read_request(&published("r"), PDF, resource);
    for content in ["Two.\n", "One.\n", "Two.\n"] {
        locked.fixture.replace("r/pdf/references/steps.md", content);
        // Until the new version is compared, its bytes are refused.
        loop {
            match locked.daemon.read_all(request.clone()).await {
                Ok(text) if text == content.as_bytes() => break,
                Ok(text) => panic!("{text:?} after the change to {content:?}"),
                Err(_) => tokio::task::yield_now().await,
            }
        }
        assert_eq!(locked.list().await.skills.len(), 2);
    }
    locked.daemon.stop().await;
}

#[tokio::test]
async fn an_unapproved_package_costs_no_read_however_large_it_is() {
    let locked = LockedDaemon::start("skill r/pdf\nskill r/mail", "hide").await;
    let mut fixture = locked.fixture;
    let daemon = locked.daemon;
    let mut replica = Replica::synced(&daemon, watch_request(vec![published("r")])).await;
    let before = bytes_read(daemon.process.pid());
    fixture.add("repeat 2000 sparse 65536 r/pdf/data/{}\nsparse 17179869184 r/mail/data/huge");
    replica
        .wait_while(|replica| !replica.skills.is_empty())
        .await;
    let read = bytes_read(daemon.process.pid()) - before;
    assert!(read < 8 << 20, "{read} bytes were read");
    daemon.stop().await;
}
