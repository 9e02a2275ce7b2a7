//! Executors with equal catalogs: a fleet transfers and stores one catalog, whichever executor it
//! came from, and trusts none of them.
//!
//! A landing tests by `fleet_simulation` that a fleet shares catalogs. The tests that measure the transfer
//! of many equal catalogs run with the storm, if `CAPROOT_STORM` is set.

use std::sync::Arc;

use caproot::daemon::config::{Config, RootFlag, ServeFlags};
use caproot_client::fleet::RegistryFuture;
use caproot_client::{ExecutorRegistry, Fleet, Mirror, MirrorSelection, MirrorState};
use caproot_core::proto::caproot::v1::{Skill, SkillView};
use caproot_session::{Session, SessionOptions};
use futures_util::future::join_all;
use serde_json::json;
use tokio::sync::watch;

use super::mirror::wait_until;
use super::session::list_all;
use super::{client, executor, published};
use crate::harness::fixture::Fixture;
use crate::harness::test_servers::{HostileDaemon, RecordingProxy, free_port, hostile_skill};
use crate::harness::{Daemon, HANG_TIMEOUT, in_time, isolated_env};
use crate::soak::fleet_storm::storm_length;

/// Tree with this number of skills, each with a description as long as those of public plugins.
fn plugin_set(skills: usize) -> String {
    let text = "Reviews a change for mistakes before it is merged, and names each with its place. \
                Use when asked to review a change, a branch or a pull request. ";
    let skill =
        |n| format!("file r/s{n}/SKILL.md\n| ---\n| name: s{n}\n| description: {text}\n| ---\n");
    (0..skills).map(skill).collect()
}

fn environment_ids(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("e{n}")).collect()
}

/// Starts one daemon that has all of these environments.
async fn start_environments(ids: &[String], fixture: &Fixture, address: Option<&str>) -> Daemon {
    let flags = ServeFlags {
        roots: vec![RootFlag {
            id: Some("r".to_owned()),
            dir: fixture.path("r"),
        }],
        environment_ids: ids.to_vec(),
        listen: vec![format!(
            "tcp:{}",
            address.map_or_else(free_port, str::to_owned)
        )],
        ..ServeFlags::default()
    };
    let env = isolated_env(std::path::Path::new("/nonexistent"));
    let mut config = Config::from_flags(flags, &env).expect("a valid configuration");
    config.limits.max_connections = 4_096;
    config.limits.max_connections_per_caller = 4_096;
    config.limits.max_streams_per_caller = 4_096;
    config.limits.max_streams = 4_096;
    Daemon::start_with(config).await
}

/// Returns a selection of the root `r` of an environment.
fn selection(environment_id: &str) -> MirrorSelection {
    let mut root = published(environment_id);
    "r".clone_into(&mut root.id);
    "published:r".clone_into(&mut root.location.as_mut().expect("a location").path);
    MirrorSelection::new(vec![root])
}

fn fleet_at(ids: &[String], address: &str) -> Fleet {
    let limits = caproot_client::DialLimits {
        dials_per_second: 10_000,
        ..Default::default()
    };
    let executors = ids.iter().map(|id| (id.clone(), executor(address)));
    Fleet::from_executors(executors).with_dial_limits(limits)
}

async fn wait_until_all_live(mirrors: &[Mirror]) {
    for mirror in mirrors {
        assert!(
            mirror.wait_until_live(HANG_TIMEOUT).await,
            "{:?}",
            mirror.snapshot().state
        );
    }
}

/// Returns the addresses of the skills of a mirror in memory.
fn skill_addresses(mirror: &Mirror) -> Vec<*const Skill> {
    mirror
        .snapshot()
        .catalog
        .skills()
        .map(Arc::as_ptr)
        .collect()
}

/// Many executors with one plugin set of 200 skills cost 1.05 catalogs and 1 KiB an executor on the
/// wire, and one catalog in memory. The bench starts all mirrors at once: on a busy machine, a
/// transfer may take so long that a second one starts.
#[tokio::test(flavor = "multi_thread")]
async fn equal_catalogs_are_transferred_once() {
    if storm_length().is_none() {
        return;
    }
    let ids = environment_ids(1_000);
    let fixture = Fixture::new(&plugin_set(200));
    let daemon = start_environments(&ids, &fixture, None).await;
    let proxy = RecordingProxy::start(&daemon.address).await;
    let alone = Mirror::start(&client(&proxy.address).await, selection("e0"));
    assert!(alone.wait_until_live(HANG_TIMEOUT).await);
    let catalog = proxy.byte_count();
    drop(alone);

    let fleet = fleet_at(&ids, &proxy.address);
    let before = proxy.byte_count();
    let mut mirrors = Vec::new();
    for ids in [&ids[..1]].into_iter().chain(ids[1..].chunks(20)) {
        let next: Vec<_> = ids
            .iter()
            .map(|id| fleet.mirror(id, selection(id)))
            .collect();
        wait_until_all_live(&next).await;
        mirrors.extend(next);
    }
    let bytes = proxy.byte_count() - before;
    let each = bytes.saturating_sub(catalog) / ids.len();
    println!(
        "{} executors: {bytes} bytes, one catalog {catalog}, {each} an executor",
        ids.len()
    );
    let stats = fleet.stats();
    assert_eq!(
        (stats.catalogs, stats.rejected_catalogs),
        (1, 0),
        "{stats:?}"
    );
    assert_eq!(stats.catalog_hits, ids.len() as u64 - 1, "{stats:?}");
    assert!(
        bytes <= catalog * 105 / 100 + 1_024 * ids.len(),
        "{bytes} {catalog}"
    );
    let first = skill_addresses(&mirrors[0]);
    assert_eq!(first.len(), 200);
    assert!(
        mirrors
            .iter()
            .all(|mirror| skill_addresses(mirror) == first),
        "one copy in memory"
    );

    // A change reaches every mirror, and the new catalogs share their memory again.
    fixture.write(
        "r/s0/SKILL.md",
        "---\nname: s0\ndescription: Changed.\n---\n",
    );
    join_all(mirrors.iter().map(|mirror| {
        let mut mirror = mirror.clone();
        async move {
            let is_changed = |skill: &Arc<Skill>| skill.description == "Changed.";
            wait_until(&mut mirror, |now| now.catalog.skills().any(is_changed)).await;
        }
    }))
    .await;
    let first = skill_addresses(&mirrors[0]);
    assert!(
        mirrors
            .iter()
            .all(|mirror| skill_addresses(mirror) == first)
    );
    assert_eq!(fleet.stats().catalogs, 1, "the catalog of before is gone");
    drop(mirrors);
    daemon.stop().await;
}

/// A mirror that comes back takes its catalog from memory, if the limit of catalogs without a mirror
/// has room for the catalog.
#[tokio::test]
async fn catalogs_of_ended_mirrors_are_kept_up_to_the_limit() {
    let fixture = Fixture::new(&plugin_set(5));
    let ids = environment_ids(1);
    let daemon = start_environments(&ids, &fixture, None).await;
    for (max_bytes, is_kept) in [(0, false), (100, false), (1 << 20, true)] {
        let fleet = fleet_at(&ids, &daemon.address).with_max_idle_catalog_bytes(max_bytes);
        let first = fleet.mirror("e0", selection("e0"));
        wait_until_all_live(std::slice::from_ref(&first)).await;
        assert_eq!(fleet.stats().catalogs, 1, "{max_bytes}");

        drop(first);
        in_time(async {
            while fleet.stats().catalogs > 0 && fleet.stats().idle_catalog_bytes == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let idle_bytes = fleet.stats().idle_catalog_bytes;
        assert!(idle_bytes <= max_bytes, "{max_bytes}: {idle_bytes}");

        let second = fleet.mirror("e0", selection("e0"));
        wait_until_all_live(std::slice::from_ref(&second)).await;
        let hits = u64::from(is_kept);
        assert_eq!(fleet.stats().catalog_hits, hits, "{max_bytes}");
    }
    daemon.stop().await;
}

/// Registry of one address, which can be made to wait.
#[derive(Clone)]
struct GatedRegistry {
    address: String,
    is_open: Arc<watch::Sender<bool>>,
    waiting: Arc<watch::Sender<usize>>,
}

impl ExecutorRegistry for GatedRegistry {
    fn find_executor<'a>(&'a self, _: &'a str) -> RegistryFuture<'a> {
        Box::pin(async {
            self.waiting.send_modify(|waiting| *waiting += 1);
            drop(self.is_open.subscribe().wait_for(|is_open| *is_open).await);
            self.waiting.send_modify(|waiting| *waiting -= 1);
            Ok(Some(executor(&self.address)))
        })
    }
}

/// The time until a connection is open, such as in the queue of dials, does not count as a slow
/// answer of the executor: the mirror still takes the catalog of another one.
#[tokio::test]
async fn a_mirror_that_connects_late_shares_catalogs() {
    let fixture = Fixture::new(&plugin_set(5));
    let ids = environment_ids(2);
    let daemon = start_environments(&ids, &fixture, None).await;
    let (is_open, waiting) = (Arc::new(watch::Sender::new(true)), Arc::default());
    let registry = GatedRegistry {
        address: daemon.address.clone(),
        is_open,
        waiting,
    };
    let fleet = Fleet::new(registry.clone());
    let first = fleet.mirror(&ids[0], selection(&ids[0]));
    assert!(first.wait_until_live(HANG_TIMEOUT).await);

    registry.is_open.send_replace(false);
    let second = fleet.mirror(&ids[1], selection(&ids[1]));
    let mut waiting = registry.waiting.subscribe();
    in_time(waiting.wait_for(|waiting| *waiting > 0))
        .await
        .expect("the registry exists");
    tokio::time::pause();
    // Longer than the time limit of the call for the digests, and shorter than that of the registry.
    tokio::time::advance(std::time::Duration::from_secs(20)).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    tokio::time::resume();
    registry.is_open.send_replace(true);
    assert!(second.wait_until_live(HANG_TIMEOUT).await);
    assert_eq!(fleet.stats().catalog_hits, 1, "{:?}", fleet.stats());
    assert_eq!(skill_addresses(&first), skill_addresses(&second));
    daemon.stop().await;
}

/// An executor that claims the digest of another catalog changes nothing in other sessions, whether
/// its mirror starts before or after theirs.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_digest_changes_no_other_session() {
    let fixture = Fixture::new("skill r/a\nskill r/b");
    let ids = environment_ids(2);
    let daemon = start_environments(&ids, &fixture, None).await;
    let truth = Mirror::start(&client(&daemon.address).await, selection("e0"));
    assert!(truth.wait_until_live(HANG_TIMEOUT).await);
    let digest = truth.snapshot().catalog.roots()[0].catalog_digest.clone();
    let lie = |catalog_digest: &str| HostileDaemon {
        skills: vec![hostile_skill("r", "skill://r/evil")],
        catalog_digest: catalog_digest.to_owned(),
        ..HostileDaemon::default()
    };
    let hostile = [lie(&digest).start().await, lie(&digest).start().await];
    let executors = [
        ("h0", hostile[0].as_str()),
        ("h1", &hostile[1]),
        ("e0", &daemon.address),
        ("e1", &daemon.address),
    ];
    let executors = executors.map(|(id, address)| (id.to_owned(), executor(address)));
    let fleet = Fleet::from_executors(executors);
    let mut mirrors = Vec::new();
    for id in ["h0", "e0", "h1", "e1"] {
        let mirror = fleet.mirror(id, selection(id));
        assert!(mirror.wait_until_live(HANG_TIMEOUT).await);
        mirrors.push(mirror);
    }
    let names = |at: usize| -> Vec<String> {
        mirrors[at]
            .snapshot()
            .catalog
            .skills()
            .map(|skill| skill.package.clone())
            .collect()
    };
    for at in [1, 3] {
        assert_eq!(names(at), ["skill://r/a", "skill://r/b"]);
    }
    for at in [0, 2] {
        assert_eq!(
            names(at),
            ["skill://r/evil"],
            "its own session has its catalog"
        );
    }
    assert_eq!(skill_addresses(&mirrors[1]), skill_addresses(&mirrors[3]));
    assert_eq!(fleet.stats().rejected_catalogs, 2);

    // The catalogs of ended mirrors are idle, and the wrong catalog is not among them.
    drop(mirrors);
    let later = fleet.mirror("e1", selection("e1"));
    assert!(later.wait_until_live(HANG_TIMEOUT).await);
    assert_eq!(later.snapshot().catalog.skill_count(), 2);
    daemon.stop().await;
}

/// Products and views have catalogs of their own, and files are read from the executor of the session.
#[tokio::test(flavor = "multi_thread")]
async fn the_files_come_from_the_executor_of_the_session() {
    let (text, other) = ("---\ndescription: d\n---\n", "Another body.\n");
    let fixture = Fixture::new("dir one/a\ndir two/a");
    fixture.write("one/a/SKILL.md", format!("{text}The body.\n"));
    fixture.write("two/a/SKILL.md", format!("{text}{other}"));
    let start = |dir: &'static str| {
        let path = fixture.path(dir);
        async move {
            let flags = ServeFlags {
                roots: vec![RootFlag {
                    id: Some("r".to_owned()),
                    dir: path,
                }],
                environment_ids: vec![dir.to_owned()],
                listen: vec![format!("tcp:{}", free_port())],
                ..ServeFlags::default()
            };
            let env = isolated_env(std::path::Path::new("/nonexistent"));
            Daemon::start_with(Config::from_flags(flags, &env).expect("a configuration")).await
        }
    };
    let (one, two) = (start("one").await, start("two").await);
    let executors = [("one", &one), ("two", &two)];
    let executors = executors.map(|(id, d)| (id.to_owned(), executor(&d.address)));
    let fleet = Fleet::from_executors(executors);
    let mut sessions = Vec::new();
    for (id, body) in [("one", "The body."), ("two", "Another body.")] {
        let roots = selection(id).roots;
        let session = Session::start(&fleet, roots, &SessionOptions::default()).await;
        let session = session.expect("a selection");
        let arguments = json!({"authority": {"kind": "executor", "id": "r"},
            "package": "skill://r/a", "resource": ""});
        let read = in_time(session.call("skills.read", &arguments)).await;
        assert!(read.json.contains(body), "{}", read.json);
        sessions.push(session);
    }
    let full = MirrorSelection {
        view: SkillView::Full,
        ..selection("one")
    };
    let full = fleet.mirror("one", full);
    assert!(full.wait_until_live(HANG_TIMEOUT).await);
    let stats = fleet.stats();
    assert_eq!(
        stats.catalogs,
        stats.mirrors - usize::try_from(stats.catalog_hits).expect("few")
    );
    one.stop().await;
    two.stop().await;
}

/// Restored sessions transfer no catalog if the process holds it, and in a new process one catalog,
/// however many sessions there are.
#[tokio::test(flavor = "multi_thread")]
async fn restored_sessions_share_catalogs() {
    if storm_length().is_none() {
        return;
    }
    let ids = environment_ids(10);
    let fixture = Fixture::new(&plugin_set(200));
    let daemon = start_environments(&ids, &fixture, None).await;
    let proxy = RecordingProxy::start(&daemon.address).await;
    let fleet = fleet_at(&ids, &proxy.address);
    let options = SessionOptions {
        start_timeout: HANG_TIMEOUT,
        ..SessionOptions::default()
    };
    let start = |id: &str| Session::start(&fleet, selection(id).roots, &options);
    let sessions = join_all(ids.iter().map(|id| start(id))).await.into_iter();
    let saved: Vec<_> = sessions
        .map(|session| session.expect("a selection").save().expect("small"))
        .collect();
    for (fleet, catalogs) in [(fleet.clone(), 0), (fleet_at(&ids, &proxy.address), 1)] {
        let before = proxy.byte_count();
        let restored = join_all((0..3).flat_map(|_| {
            saved
                .iter()
                .map(|saved| Session::restore(&fleet, saved, &options))
        }))
        .await;
        let bytes = proxy.byte_count() - before;
        for restored in &restored {
            let restored = restored.as_ref().expect("a saved session");
            assert_eq!(restored.warnings, [""; 0]);
            assert_eq!(list_all(&restored.session).await.0.len(), 200);
            let changes = restored.changes_since_save[0]
                .changes
                .as_deref()
                .expect("a report");
            let caproot_client::ChangesSince::Known {
                upserted, removed, ..
            } = changes
            else {
                panic!("{changes:?}")
            };
            assert!(upserted.is_empty() && removed.is_empty());
        }
        println!(
            "{} sessions of {} executors: {bytes} bytes",
            restored.len(),
            ids.len()
        );
        let stats = fleet.stats();
        assert_eq!((stats.mirrors, stats.catalogs), (ids.len(), 1), "{stats:?}");
        // A catalog of 200 skills has over 40 KB. On a busy machine, a transfer may be replaced.
        assert!(bytes < catalogs * 300_000 + 2_048 * ids.len(), "{bytes}");
    }
    daemon.stop().await;
}

/// A selection has the same mirror in any order of its roots.
#[tokio::test]
async fn the_order_of_roots_does_not_matter() {
    let fixture = Fixture::new("skill r/a\nskill s/b");
    let flags = ServeFlags {
        roots: ["r", "s"]
            .map(|id| RootFlag {
                id: Some(id.to_owned()),
                dir: fixture.path(id),
            })
            .into(),
        environment_ids: vec!["x".to_owned()],
        listen: vec![format!("tcp:{}", free_port())],
        ..ServeFlags::default()
    };
    let env = isolated_env(std::path::Path::new("/nonexistent"));
    let daemon = Daemon::start_with(Config::from_flags(flags, &env).expect("a config")).await;
    let fleet = Fleet::from_executors([("x".to_owned(), executor(&daemon.address))]);
    let roots = ["r", "s"].map(|id| {
        let mut root = published("x");
        id.clone_into(&mut root.id);
        root.location.as_mut().expect("a location").path = format!("published:{id}");
        root
    });
    let reversed: Vec<_> = roots.iter().rev().cloned().collect();
    let options = SessionOptions::default();
    let first = Session::start(&fleet, roots.to_vec(), &options)
        .await
        .expect("a selection");
    let second = Session::start(&fleet, reversed, &options)
        .await
        .expect("a selection");
    assert_eq!(fleet.stats().mirrors, 1);
    assert_eq!(list_all(&first).await.0, ["skill://r/a", "skill://s/b"]);
    assert_eq!(list_all(&second).await.0, ["skill://s/b", "skill://r/a"]);
    let restored = Session::restore(&fleet, &second.save().expect("small"), &options).await;
    let restored = restored.expect("a saved session");
    assert_eq!(fleet.stats().mirrors, 1);
    assert_eq!(
        list_all(&restored.session).await.0,
        ["skill://s/b", "skill://r/a"]
    );
    daemon.stop().await;
}

/// A change during a restart of all executors is transferred once.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_during_restarts_is_transferred_once() {
    if storm_length().is_none() {
        return;
    }
    let ids = environment_ids(20);
    let fixture = Fixture::new(&plugin_set(200));
    let daemon = start_environments(&ids, &fixture, None).await;
    let address = daemon.address.clone();
    let proxy = RecordingProxy::start(&address).await;
    let fleet = fleet_at(&ids, &proxy.address);
    let mirrors: Vec<_> = ids
        .iter()
        .map(|id| fleet.mirror(id, selection(id)))
        .collect();
    wait_until_all_live(&mirrors).await;
    let first = proxy.byte_count();
    proxy.set_paused(true);
    daemon.stop().await;
    for mirror in &mirrors {
        wait_until(&mut mirror.clone(), |now| now.state != MirrorState::Live).await;
    }
    fixture.write(
        "r/s0/SKILL.md",
        "---\nname: s0\ndescription: Changed.\n---\n",
    );
    let daemon = start_environments(&ids, &fixture, Some(&address)).await;
    let before = proxy.byte_count();
    proxy.set_paused(false);
    wait_until_all_live(&mirrors).await;
    let bytes = proxy.byte_count() - before;
    println!("first {first} bytes, after the change {bytes} bytes");
    let addresses = skill_addresses(&mirrors[0]);
    assert!(
        mirrors
            .iter()
            .all(|mirror| skill_addresses(mirror) == addresses)
    );
    let snapshot = mirrors[0].snapshot();
    let changed = snapshot.catalog.skill("skill://r/s0").expect("a skill");
    assert_eq!(
        (&*changed.description, fleet.stats().catalogs),
        ("Changed.", 1)
    );
    // On a busy machine, a transfer may be replaced.
    assert!(bytes < 3 * first, "{bytes} {first}");
    daemon.stop().await;
}
