//! Mirrors: what they hold is what a list gives, through edits, lost daemons and new ones.

use std::sync::Arc;
use std::time::Duration;

use caproot::client::{Mirror, MirrorSelection, MirrorSnapshot, MirrorState};
use caproot::proto::caproot::v1::{Consistency, ListSkillsRequest, ResolveRootsRequest, SkillView};

use super::{client, nobody, published, serving};
use crate::fixture::Fixture;
use crate::harness::{Daemon, HANG_TIMEOUT, Setup, in_time, selected};

/// What a fresh list gives is what the mirror holds, at the list's revision or a later one.
pub(crate) async fn assert_mirrors(mirror: &mut Mirror, daemon: &Daemon, root: &str) {
    let request = ListSkillsRequest {
        selected_capability_roots: vec![published(root)],
        view: SkillView::Basic.into(),
        consistency: Consistency::Fresh.into(),
        ..ListSkillsRequest::default()
    };
    let list = daemon.try_list(request).await.expect("a list");
    in_time(async {
        loop {
            let held = mirror.snapshot();
            let skills: Vec<_> = held.catalog.skills().iter().map(|s| (**s).clone()).collect();
            let same = skills == list.skills
                && held.catalog.roots() == list.roots
                && held.catalog.diagnostics() == list.diagnostics;
            if held.state == MirrorState::Live && *held.epoch == list.epoch && same {
                return;
            }
            mirror.changed().await;
        }
    })
    .await;
}

/// A view of everything has the plugins too, as they are after a change of a manifest.
#[tokio::test]
async fn plugins() {
    let fixture = Fixture::new("skill r/p/skills/a");
    let manifest = |name: &str| {
        let text = format!(r#"{{"name":"{name}","mcpServers":{{"s":{{"command":"serve"}}}}}}"#);
        fixture.write("r/p/.claude-plugin/plugin.json", text);
    };
    std::fs::create_dir(fixture.path("r/p/.claude-plugin")).expect("a directory");
    manifest("first");
    let daemon = serving("x", fixture.path("r"), None).await;
    let roots = vec![published("x")];
    let selection =
        MirrorSelection { view: SkillView::Full, ..MirrorSelection::new(roots.clone()) };
    let mut mirror = Mirror::start(&client(&daemon.address).await, selection);
    for name in ["first", "second"] {
        manifest(name);
        let held = until(&mut mirror, |held| {
            held.catalog.plugins().iter().any(|plugin| plugin.name == name)
        });
        let held = held.await;
        let request = ResolveRootsRequest {
            selected_capability_roots: roots.clone(),
            ..ResolveRootsRequest::default()
        };
        let resolved = daemon.client.clone().resolve_roots(request).await.expect("an answer");
        let plugins: Vec<_> = held.catalog.plugins().iter().map(|p| (**p).clone()).collect();
        assert_eq!(plugins, resolved.into_inner().roots[0].plugins);
        assert_eq!(held.catalog.skills()[0].name, format!("{name}:a"));
    }
    daemon.stop().await;
}

async fn until(mirror: &mut Mirror, what: impl Fn(&MirrorSnapshot) -> bool) -> MirrorSnapshot {
    in_time(async {
        let mut held = mirror.snapshot();
        while !what(&held) {
            held = mirror.changed().await;
        }
        held
    })
    .await
}

#[tokio::test]
async fn through_edits_and_a_restart() {
    let mut fixture = Fixture::new("skill r/a\nskill r/b\nfile r/bad/SKILL.md\n| no fence");
    let daemon = serving("x", fixture.path("r"), None).await;
    let address = daemon.address.clone();
    let mut mirror =
        Mirror::start(&client(&address).await, MirrorSelection::new(vec![published("x")]));
    assert!(mirror.wait_until_live(HANG_TIMEOUT).await);
    assert_mirrors(&mut mirror, &daemon, "x").await;
    let first = mirror.snapshot();
    assert_eq!(first.catalog.diagnostics().len(), 1);
    assert!(first.catalog.skill("skill://x/b").is_some() && first.revision > 0);
    assert!(Arc::ptr_eq(&first.catalog, &mirror.snapshot().catalog), "nothing is copied");

    fixture.add("skill r/c");
    fixture.write("r/a/SKILL.md", "---\nname: a\ndescription: Another.\n---\n");
    std::fs::remove_dir_all(fixture.path("r/b")).expect("a directory");
    assert_mirrors(&mut mirror, &daemon, "x").await;
    assert!(first.catalog.skill("skill://x/b").is_some(), "a snapshot stays what it was");

    daemon.stop().await;
    let stale = until(&mut mirror, |held| held.state != MirrorState::Live).await;
    let MirrorState::Stale { why, .. } = &stale.state else { panic!("{:?}", stale.state) };
    assert!(!why.is_empty());
    assert_eq!(stale.catalog.skills().len(), 2, "what was held stays");
    fixture.add("skill r/d");

    let daemon = serving("x", fixture.path("r"), Some(&address)).await;
    let again = until(&mut mirror, |held| held.state == MirrorState::Live).await;
    assert_ne!(again.epoch, stale.epoch);
    assert_mirrors(&mut mirror, &daemon, "x").await;
    assert_eq!(mirror.snapshot().catalog.skills().len(), 3);
    daemon.stop().await;
}

#[tokio::test]
async fn nobody_is_there_yet() {
    let fixture = Fixture::new("skill r/a");
    let address = nobody();
    let mut mirror =
        Mirror::start(&client(&address).await, MirrorSelection::new(vec![published("x")]));
    let held = until(&mut mirror, |held| held.state != MirrorState::Connecting(None)).await;
    let MirrorState::Failed(why) = &held.state else { panic!("{:?}", held.state) };
    assert!(why.contains("no connection to the daemon"), "{why}");
    assert!(held.catalog.skills().is_empty() && held.epoch.is_empty());
    let daemon = serving("x", fixture.path("r"), Some(&address)).await;
    assert!(mirror.wait_until_live(HANG_TIMEOUT).await, "it comes by itself");
    assert_mirrors(&mut mirror, &daemon, "x").await;
    daemon.stop().await;
}

#[tokio::test]
async fn too_large_for_its_bound() {
    let fixture = Fixture::new("repeat 50 skill r/s{}");
    let daemon = serving("x", fixture.path("r"), None).await;
    let selection =
        MirrorSelection { max_bytes: 10_000, ..MirrorSelection::new(vec![published("x")]) };
    let mut mirror = Mirror::start(&client(&daemon.address).await, selection);
    let held = until(&mut mirror, |held| held.state != MirrorState::Connecting(None)).await;
    let MirrorState::Failed(why) = &held.state else { panic!("{:?}", held.state) };
    assert!(why.contains("10000 bytes"), "{why}");
    assert!(held.catalog.skills().is_empty());
    daemon.stop().await;
}

/// At whatever the daemon says, the mirror holds what a list gives at that revision.
#[tokio::test]
async fn at_each_state_and_bookmark() {
    let mut fixture = Fixture::new("skill r/a\nskill other/a");
    let daemon = Daemon::start(Setup::allowing([fixture.top()])).await;
    let (root, other) = (selected("x", fixture.path("r")), selected("y", fixture.path("other")));
    let selection = MirrorSelection {
        bookmark_interval: Duration::from_secs(1),
        view: SkillView::Full,
        ..MirrorSelection::new(vec![root.clone()])
    };
    let mut mirror = Mirror::start(&client(&daemon.address).await, selection);
    let (mut compared, mut of_others) = (0, 0);
    let mut n = 0;
    while compared < 8 || of_others < 2 {
        let before = mirror.snapshot();
        let held = in_time(mirror.next_message()).await;
        let list = daemon.list(std::slice::from_ref(&root)).await;
        if (&*held.epoch, held.revision) == (list.epoch.as_str(), list.revision) {
            let skills: Vec<_> = held.catalog.skills().iter().map(|s| (**s).clone()).collect();
            assert_eq!((skills, held.catalog.roots()), (list.skills, &list.roots[..]));
            compared += 1;
            // Nothing of its own changed, and it is told so.
            of_others += u32::from(Arc::ptr_eq(&before.catalog, &held.catalog));
        }
        n += 1;
        let (mine, name) = if n % 3 == 0 { (false, "other") } else { (true, "r") };
        fixture.add(&format!("skill {name}/n{n}"));
        if !mine {
            daemon.list(std::slice::from_ref(&other)).await;
        }
    }
    daemon.stop().await;
}
