//! Digests of catalogs: equal digests mean equal messages, and a root with a known catalog is not sent.

use std::collections::BTreeMap;
use std::fs::File;
use std::time::{Duration, SystemTime};

use caproot_core::proto::caproot::v1::{
    Diagnostic, KnownCatalog, ListSkillsRequest, ListSkillsResponse, Marketplace, Plugin,
    ResetReason, ResolvedRoot, SelectedCapabilityRoot, Skill, SkillView, WatchSkillsRequest,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use prost::Message;
use sha2::{Digest as _, Sha256};
use tonic::Code;

use crate::harness::fixture::Fixture;
use crate::harness::replica::Replica;
use crate::harness::watch_harness::{fast_timing, skill_text, watch_request};
use crate::harness::{Daemon, Setup, list_request, selected};

/// The readiness is not part of the digest.
fn without_readiness(skill: &Skill) -> Skill {
    Skill {
        readiness: None,
        ..skill.clone()
    }
}

/// Computes a digest as `root.proto` describes it, without code of the daemon.
pub(crate) fn digest_messages<'a>(
    skills: impl Iterator<Item = &'a Skill>,
    plugins: impl Iterator<Item = &'a Plugin>,
    marketplaces: impl Iterator<Item = &'a Marketplace>,
    diagnostics: impl Iterator<Item = &'a Diagnostic>,
) -> String {
    let hash = |kind: u8, message: Vec<u8>| Sha256::digest([&[kind][..], &message].concat());
    let mut hashes: Vec<_> = (skills
        .map(|skill| hash(1, without_readiness(skill).encode_to_vec())))
    .chain(plugins.map(|plugin| hash(2, plugin.encode_to_vec())))
    .chain(marketplaces.map(|list| hash(3, list.encode_to_vec())))
    .chain(diagnostics.map(|diagnostic| hash(4, diagnostic.encode_to_vec())))
    .collect();
    hashes.sort();
    let groups = hashes.chunk_by(|one, other| one[0] == other[0]);
    let groups: Vec<_> = groups.map(|group| Sha256::digest(group.concat())).collect();
    let digest: [u8; 32] = Sha256::digest(groups.concat()).into();
    digest.iter().fold("sha256:".to_owned(), |text, byte| {
        format!("{text}{byte:02x}")
    })
}

/// Digest of the messages of one root in a list.
fn digest_of(list: &ListSkillsResponse, root: Option<&ResolvedRoot>, id: &str) -> String {
    let is_its = |skill: &&Skill| skill.authority.as_ref().is_some_and(|a| a.id == id);
    digest_messages(
        list.skills.iter().filter(is_its),
        root.into_iter().flat_map(|root| &root.plugins),
        root.into_iter().flat_map(|root| &root.marketplaces),
        list.diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.root_id == id),
    )
}

/// Asserts the digest of each root of a list with the full view.
pub(crate) fn assert_digests(list: &ListSkillsResponse, resolved: &[ResolvedRoot]) {
    for (status, root) in list.roots.iter().zip(resolved) {
        let expected = match status.counts {
            Some(_) => digest_of(list, Some(root), &status.id),
            None => String::new(),
        };
        assert_eq!(status.catalog_digest, expected, "{}", status.id);
    }
}

/// File of a tree, and its contents.
type TreeFile = (&'static str, String);

fn tree_files() -> impl Strategy<Value = BTreeMap<&'static str, String>> {
    let skill = |fields: &'static [&'static str]| {
        let name = prop::sample::select(&["a", "b"][..]);
        (
            name,
            prop::sample::subsequence(fields, 0..=fields.len()).prop_shuffle(),
        )
            .prop_map(|(name, fields)| {
                format!(
                    "---\nname: {name}\ndescription: d\n{}\n---\n",
                    fields.join("\n")
                )
            })
    };
    let fields = &[
        "license: MIT",
        "metadata: {z: 1, b: two, a: [1, {y: 1, x: 2}]}",
        "extra: {k: v, c: w}",
    ];
    let manifest = prop::sample::select(&[r#"{"name":"p"}"#, r#"{"name":"q"}"#, "{"][..]);
    let market = r#"{"name":"m","owner":{"name":"o"},"plugins":[{"name":"p","source":"./p"}]}"#;
    let sidecar = prop::sample::select(
        &[
            "interface:\n  display_name: D\n",
            "policy:\n  products: [codex]\n",
            "interface: 7\n",
        ][..],
    );
    let file = prop_oneof![
        skill(fields).prop_map(|text| ("one/SKILL.md", text)),
        skill(fields).prop_map(|text| ("p/skills/two/SKILL.md", text)),
        Just(("bad/SKILL.md", "---\nname: [\n---\n".to_owned())),
        Just(("worse/SKILL.md", "no fence\n".to_owned())),
        sidecar.prop_map(|text| ("one/agents/openai.yaml", text.to_owned())),
        manifest.prop_map(|text| ("p/.claude-plugin/plugin.json", text.to_owned())),
        Just((".claude-plugin/marketplace.json", market.to_owned())),
    ];
    prop::collection::btree_set(file, 0..4).prop_map(|files| files.into_iter().collect())
}

/// Writes the files in an order, with times of their own.
fn write_tree(fixture: &Fixture, dir: &str, files: &[&TreeFile], seconds: u64) {
    std::fs::create_dir(fixture.path(dir)).expect("a directory");
    for (path, text) in files {
        let path = format!("{dir}/{path}");
        fixture.write(&path, text);
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let file = File::options()
            .write(true)
            .open(fixture.path(&path))
            .expect("the file");
        file.set_modified(time).expect("a time");
    }
}

/// Encoded messages of one root, without its state.
fn served_bytes(list: &ListSkillsResponse, root: &ResolvedRoot) -> Vec<Vec<u8>> {
    let skills = list.skills.iter().map(Message::encode_to_vec);
    let diagnostics = list.diagnostics.iter().map(Message::encode_to_vec);
    let plugins = root.plugins.iter().map(Message::encode_to_vec);
    let marketplaces = root.marketplaces.iter().map(Message::encode_to_vec);
    skills
        .chain(diagnostics)
        .chain(plugins)
        .chain(marketplaces)
        .collect()
}

/// Law: two directories have equal digests if and only if the daemon serves the same bytes for them.
/// The order of their entries, their inode numbers and their times do not matter.
#[tokio::test]
async fn digests_are_equal_for_equal_bytes() {
    let fixture = Fixture::new("");
    let daemon = Daemon::start(Setup::allowing([fixture.top()])).await;
    let mut runner = TestRunner::deterministic();
    let (mut equal, mut different) = (0, 0);
    for round in 0..40_u64 {
        let mut tree = || {
            tree_files()
                .new_tree(&mut runner)
                .expect("a tree")
                .current()
        };
        let (first, second) = (tree(), tree());
        let sorted: Vec<TreeFile> = first.clone().into_iter().collect();
        let other: Vec<TreeFile> = second.into_iter().collect();
        write_tree(
            &fixture,
            &format!("a{round}"),
            &sorted.iter().collect::<Vec<_>>(),
            1,
        );
        let reversed: Vec<_> = sorted.iter().rev().collect();
        write_tree(&fixture, &format!("b{round}"), &reversed, 1_000_000 + round);
        write_tree(
            &fixture,
            &format!("c{round}"),
            &other.iter().collect::<Vec<_>>(),
            1,
        );
        for (view, product) in [
            (SkillView::Full, ""),
            (SkillView::Basic, ""),
            (SkillView::Full, "other"),
        ] {
            let mut served = Vec::new();
            for dir in ["a", "b", "c"] {
                let roots = [selected("r", fixture.path(&format!("{dir}{round}")))];
                let request = ListSkillsRequest {
                    view: view.into(),
                    product: product.into(),
                    ..list_request(&roots)
                };
                let list = daemon.try_list(request).await.expect("a list");
                let resolved = daemon.resolve(&roots).await.roots.remove(0);
                let is_full = view == SkillView::Full;
                let digest = digest_of(&list, is_full.then_some(&resolved), "r");
                assert_eq!(list.roots[0].catalog_digest, digest, "{first:?}");
                let none = ResolvedRoot::default();
                let bytes = served_bytes(&list, if is_full { &resolved } else { &none });
                served.push((digest, bytes));
            }
            assert_eq!(served[0], served[1], "{first:?}");
            let is_equal = served[0].0 == served[2].0;
            assert_eq!(is_equal, served[0].1 == served[2].1, "{first:?} {other:?}");
            *if is_equal { &mut equal } else { &mut different } += 1;
        }
    }
    assert!(equal > 0 && different > 20, "{equal} {different}");
    daemon.stop().await;
}

fn known(list: &ListSkillsResponse) -> Vec<KnownCatalog> {
    let known = |root: &caproot_core::proto::caproot::v1::RootStatus| KnownCatalog {
        root_id: root.id.clone(),
        catalog_digest: root.catalog_digest.clone(),
    };
    list.roots.iter().map(known).collect()
}

async fn two_roots() -> (Fixture, Daemon, Vec<SelectedCapabilityRoot>) {
    let fixture = Fixture::new("repeat 4 skill r/s{}\nfile r/bad/SKILL.md\n| no fence\nskill t/a");
    let setup = Setup {
        timing: fast_timing(),
        ..Setup::allowing([fixture.top()])
    };
    let daemon = Daemon::start(setup).await;
    let roots = vec![
        selected("r", fixture.path("r")),
        selected("t", fixture.path("t")),
    ];
    (fixture, daemon, roots)
}

#[tokio::test]
async fn a_malformed_known_digest_is_an_invalid_argument() {
    let (_fixture, daemon, roots) = two_roots().await;
    let digest = daemon.list(&roots).await.roots[0].catalog_digest.clone();
    for malformed in [
        "x".repeat(1_000),
        "sha256:".to_owned(),
        digest.to_uppercase(),
        digest.trim_start_matches("sha256:").to_owned(),
        format!("{digest}0"),
        format!("{digest} "),
    ] {
        // The root need not be selected.
        for root_id in ["r", "other"] {
            let known_catalogs = vec![
                KnownCatalog {
                    root_id: "t".into(),
                    catalog_digest: digest.clone(),
                },
                KnownCatalog {
                    root_id: root_id.into(),
                    catalog_digest: malformed.clone(),
                },
            ];
            let listed = daemon.try_list(ListSkillsRequest {
                known_catalogs: known_catalogs.clone(),
                ..list_request(&roots)
            });
            let watched = daemon.watch(WatchSkillsRequest {
                known_catalogs,
                ..watch_request(roots.clone())
            });
            let statuses = [
                listed.await.expect_err("a malformed digest"),
                watched.await.expect_err("a malformed digest"),
            ];
            for status in statuses {
                assert_eq!(status.code(), Code::InvalidArgument, "{malformed}");
                let field = "`known_catalogs[1].catalog_digest` is not `sha256:`";
                assert!(status.message().contains(field), "{}", status.message());
            }
        }
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_list_omits_known_catalogs() {
    let (fixture, daemon, roots) = two_roots().await;
    let all = daemon.list(&roots).await;
    let request = ListSkillsRequest {
        known_catalogs: known(&all),
        ..list_request(&roots)
    };
    let none = daemon.try_list(request.clone()).await.expect("a list");
    assert!(none.skills.is_empty() && none.diagnostics.is_empty());
    for (status, before) in none.roots.iter().zip(&all.roots) {
        assert!(status.unchanged && !before.unchanged);
        assert_eq!((&status.counts, &status.id), (&before.counts, &before.id));
    }
    assert_eq!(none.resume_token, all.resume_token);

    // Digests of other roots, and digests that are not of this root, are ignored.
    let mut swapped = known(&all);
    swapped[0]
        .catalog_digest
        .clone_from(&all.roots[1].catalog_digest);
    swapped.push(KnownCatalog {
        root_id: "t".into(),
        catalog_digest: String::new(),
    });
    swapped.push(KnownCatalog {
        root_id: "x".into(),
        catalog_digest: all.roots[0].catalog_digest.clone(),
    });
    let request = ListSkillsRequest {
        known_catalogs: swapped,
        page_size: 1,
        ..request
    };
    let (mut skills, mut page_token) = (Vec::new(), String::new());
    loop {
        let page = ListSkillsRequest {
            page_token,
            ..request.clone()
        };
        let page = daemon.try_list(page).await.expect("a page");
        assert_eq!(
            page.roots
                .iter()
                .map(|root| root.unchanged)
                .collect::<Vec<_>>(),
            [false, true]
        );
        skills.extend(page.skills);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(skills, all.skills[..4]);

    // A page token belongs to the catalogs of its request.
    let first = daemon.try_list(request.clone()).await.expect("a page");
    let page_token = first.next_page_token;
    let other = ListSkillsRequest {
        known_catalogs: Vec::new(),
        page_token,
        ..request
    };
    daemon
        .try_list(other)
        .await
        .expect_err("a token of another list");

    fixture.write("r/s0/SKILL.md", skill_text("s0", "Changed."));
    let request = ListSkillsRequest {
        known_catalogs: known(&all),
        consistency: 2,
        ..list_request(&roots)
    };
    let changed = daemon.try_list(request).await.expect("a list");
    assert_eq!((changed.skills.len(), changed.diagnostics.len()), (4, 1));
    assert_ne!(changed.roots[0].catalog_digest, all.roots[0].catalog_digest);
    assert!(changed.roots[1].unchanged);
    daemon.stop().await;
}

/// A change of one skill, an added skill and a removed skill each give the digest that a new daemon
/// computes from nothing.
#[tokio::test]
async fn digests_follow_changes() {
    let (mut fixture, daemon, roots) = two_roots().await;
    let mut replica = Replica::synced(&daemon, watch_request(roots.clone())).await;
    let mut digests = vec![replica.roots["r"].catalog_digest.clone()];
    for step in 0..4 {
        match step {
            0 => fixture.write("r/s0/SKILL.md", skill_text("s0", "Changed.")),
            1 => fixture.add("skill r/another"),
            2 => std::fs::remove_dir_all(fixture.path("r/s2")).expect("a directory"),
            _ => fixture.write("r/bad/SKILL.md", skill_text("bad", "Good.")),
        }
        replica.catch_up(&daemon).await;
        let digest = replica.roots["r"].catalog_digest.clone();
        assert!(!digests.contains(&digest), "step {step}");
        digests.push(digest);
        let fresh = Daemon::start(Setup::allowing([fixture.top()])).await;
        let list = fresh.list(&roots).await;
        assert_digests(&list, &fresh.resolve(&roots).await.roots);
        assert_eq!(
            list.roots[0].catalog_digest,
            replica.roots["r"].catalog_digest
        );
        fresh.stop().await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_stream_omits_known_catalogs_after_a_restart() {
    let (fixture, daemon, roots) = two_roots().await;
    for view in [SkillView::Full, SkillView::Basic] {
        let request = WatchSkillsRequest {
            view: view.into(),
            ..watch_request(roots.clone())
        };
        let mut replica = Replica::synced(&daemon, request).await;
        // The first daemon may not have read the change of the other view.
        replica.catch_up(&daemon).await;
        replica.reverse_roots();
        for changed in [false, true] {
            let restarted = Daemon::start(Setup::allowing([fixture.top()])).await;
            if changed {
                fixture.write(
                    "t/a/SKILL.md",
                    skill_text("a", &format!("Changed for {view:?}.")),
                );
                restarted.list(&roots).await;
            }
            replica.resume(&restarted).await;
            let step = replica.next_batch().await;
            assert_eq!(step.reset, Some(ResetReason::EpochChanged));
            let (unchanged, upserted) = (step.unchanged.len(), step.upserted.len());
            assert_eq!(
                (unchanged, upserted, step.deltas),
                if changed { (1, 1, 1) } else { (2, 0, 0) }
            );
            replica.catch_up(&restarted).await;
            restarted.stop().await;
        }
    }
    daemon.stop().await;
}
