//! Mirrors agree with lists through edits, lost connections and restarts.

use std::sync::Arc;
use std::time::Duration;

use caproot_client::{Mirror, MirrorSelection, MirrorSnapshot, MirrorState};
use caproot_core::proto::caproot::v1::{Consistency, ListSkillsRequest, SkillView};

use super::{client, published, serve_tree, start_daemon};
use crate::harness::fixture::Fixture;
use crate::harness::test_servers::unused_address;
use crate::harness::{Daemon, HANG_TIMEOUT, Setup, in_time, selected};

/// Waits until the mirror agrees with a fresh list.
pub(crate) async fn wait_until_equal_to_list(mirror: &mut Mirror, daemon: &Daemon, root: &str) {
    let request = ListSkillsRequest {
        selected_capability_roots: vec![published(root)],
        view: SkillView::Basic.into(),
        consistency: Consistency::Fresh.into(),
        ..ListSkillsRequest::default()
    };
    let list = daemon.try_list(request).await.expect("a list");
    in_time(async {
        loop {
            let snapshot = mirror.snapshot();
            let skills: Vec<_> = snapshot.catalog.skills().map(|s| (**s).clone()).collect();
            let same = skills == list.skills
                && snapshot.catalog.roots() == list.roots
                && snapshot.catalog.diagnostics().eq(&list.diagnostics);
            if snapshot.state == MirrorState::Live && *snapshot.epoch == list.epoch && same {
                return;
            }
            mirror.changed().await;
        }
    })
    .await;
}

/// A mirror with the full view has plugins and follows changes of a manifest.
#[tokio::test]
async fn plugins_follow_their_manifests() {
    let fixture = Fixture::new("skill r/p/skills/a");
    let manifest = |name: &str| {
        let text = format!(r#"{{"name":"{name}","mcpServers":{{"s":{{"command":"serve"}}}}}}"#);
        fixture.write("r/p/.claude-plugin/plugin.json", text);
    };
    std::fs::create_dir(fixture.path("r/p/.claude-plugin")).expect("a directory");
    manifest("first");
    let daemon = start_daemon("x", fixture.path("r"), None).await;
    let roots = vec![published("x")];
    let selection = MirrorSelection {
        view: SkillView::Full,
        ..MirrorSelection::new(roots.clone())
    };
    let mut mirror = Mirror::start(&client(&daemon.address).await, selection);
    for name in ["first", "second"] {
        manifest(name);
        let snapshot = wait_until(&mut mirror, |snapshot| {
            snapshot.catalog.plugins().any(|plugin| plugin.name == name)
        });
        let snapshot = snapshot.await;
        let resolved = daemon.resolve(&roots).await;
        let plugins: Vec<_> = snapshot.catalog.plugins().map(|p| (**p).clone()).collect();
        assert_eq!(plugins, resolved.roots[0].plugins);
        assert_eq!(
            snapshot.catalog.skills().next().expect("a skill").name,
            format!("{name}:a")
        );
    }
    daemon.stop().await;
}

pub(crate) async fn wait_until(
    mirror: &mut Mirror,
    condition: impl Fn(&MirrorSnapshot) -> bool,
) -> MirrorSnapshot {
    in_time(async {
        let mut snapshot = mirror.snapshot();
        while !condition(&snapshot) {
            snapshot = mirror.changed().await;
        }
        snapshot
    })
    .await
}

#[tokio::test]
async fn a_mirror_follows_edits_and_a_restart() {
    let (mut fixture, daemon) =
        serve_tree("x", "skill r/a\nskill r/b\nfile r/bad/SKILL.md\n| no fence").await;
    let address = daemon.address.clone();
    let mut mirror = Mirror::start(
        &client(&address).await,
        MirrorSelection::new(vec![published("x")]),
    );
    assert!(mirror.wait_until_live(HANG_TIMEOUT).await);
    wait_until_equal_to_list(&mut mirror, &daemon, "x").await;
    let first = mirror.snapshot();
    assert_eq!(first.catalog.diagnostics().count(), 1);
    assert!(first.catalog.skill("skill://x/b").is_some() && first.revision > 0);
    assert!(
        Arc::ptr_eq(&first.catalog, &mirror.snapshot().catalog),
        "the catalog is shared"
    );

    fixture.add("skill r/c");
    fixture.write("r/a/SKILL.md", "---\nname: a\ndescription: Another.\n---\n");
    std::fs::remove_dir_all(fixture.path("r/b")).expect("a directory");
    wait_until_equal_to_list(&mut mirror, &daemon, "x").await;
    assert!(
        first.catalog.skill("skill://x/b").is_some(),
        "snapshots do not change"
    );

    daemon.stop().await;
    let stale = wait_until(&mut mirror, |snapshot| snapshot.state != MirrorState::Live).await;
    let MirrorState::Stale { why, .. } = &stale.state else {
        panic!("{:?}", stale.state)
    };
    assert!(!why.is_empty());
    assert_eq!(stale.catalog.skill_count(), 2, "the last skills stay");
    fixture.add("skill r/d");

    let daemon = start_daemon("x", fixture.path("r"), Some(&address)).await;
    let again = wait_until(&mut mirror, |snapshot| snapshot.state == MirrorState::Live).await;
    assert_ne!(again.epoch, stale.epoch);
    wait_until_equal_to_list(&mut mirror, &daemon, "x").await;
    assert_eq!(mirror.snapshot().catalog.skill_count(), 3);
    daemon.stop().await;
}

#[tokio::test]
async fn a_mirror_connects_once_the_daemon_starts() {
    let fixture = Fixture::new("skill r/a");
    let address = unused_address();
    let mut mirror = Mirror::start(
        &client(&address).await,
        MirrorSelection::new(vec![published("x")]),
    );
    let snapshot = wait_until(&mut mirror, |snapshot| {
        snapshot.state != MirrorState::Connecting(None)
    })
    .await;
    let MirrorState::Failed(why) = &snapshot.state else {
        panic!("{:?}", snapshot.state)
    };
    assert!(why.contains("no connection to the daemon"), "{why}");
    assert!(snapshot.catalog.skill_count() == 0 && snapshot.epoch.is_empty());
    let daemon = start_daemon("x", fixture.path("r"), Some(&address)).await;
    assert!(
        mirror.wait_until_live(HANG_TIMEOUT).await,
        "the mirror connects by itself"
    );
    wait_until_equal_to_list(&mut mirror, &daemon, "x").await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_mirror_over_its_size_limit_fails() {
    let (_fixture, daemon) = serve_tree("x", "repeat 50 skill r/s{}").await;
    let selection = MirrorSelection {
        max_bytes: 10_000,
        ..MirrorSelection::new(vec![published("x")])
    };
    let mut mirror = Mirror::start(&client(&daemon.address).await, selection);
    let snapshot = wait_until(&mut mirror, |snapshot| {
        snapshot.state != MirrorState::Connecting(None)
    })
    .await;
    let MirrorState::Failed(why) = &snapshot.state else {
        panic!("{:?}", snapshot.state)
    };
    assert!(why.contains("10000 bytes"), "{why}");
    assert!(snapshot.catalog.skill_count() == 0);
    daemon.stop().await;
}

/// At each state and bookmark, the mirror agrees with a list of the same revision.
#[tokio::test]
async fn each_state_and_bookmark_agrees_with_a_list() {
    let mut fixture = Fixture::new("skill r/a\nskill other/a");
    let daemon = Daemon::start(Setup::allowing([fixture.top()])).await;
    let (root, other) = (
        selected("x", fixture.path("r")),
        selected("y", fixture.path("other")),
    );
    let selection = MirrorSelection {
        bookmark_interval: Duration::from_secs(1),
        view: SkillView::Full,
        ..MirrorSelection::new(vec![root.clone()])
    };
    let mut mirror = Mirror::start(&client(&daemon.address).await, selection);
    let (mut compared, mut unrelated) = (0, 0);
    let mut n = 0;
    while compared < 8 || unrelated < 2 {
        let before = mirror.snapshot();
        let snapshot = in_time(mirror.next_message()).await;
        let list = daemon.list(std::slice::from_ref(&root)).await;
        if (&*snapshot.epoch, snapshot.revision) == (list.epoch.as_str(), list.revision) {
            let skills: Vec<_> = snapshot.catalog.skills().map(|s| (**s).clone()).collect();
            assert_eq!(
                (skills, snapshot.catalog.roots()),
                (list.skills, &list.roots[..])
            );
            compared += 1;
            // A bookmark for changes of other roots keeps the same catalog.
            unrelated += u32::from(Arc::ptr_eq(&before.catalog, &snapshot.catalog));
        }
        n += 1;
        let (mine, name) = if n % 3 == 0 {
            (false, "other")
        } else {
            (true, "r")
        };
        fixture.add(&format!("skill {name}/n{n}"));
        if !mine {
            daemon.list(std::slice::from_ref(&other)).await;
        }
    }
    daemon.stop().await;
}
