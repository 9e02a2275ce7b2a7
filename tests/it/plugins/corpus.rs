//! Real plugins, if `CAPROOT_CORPUS` is set to a directory of trees. Every declaring file is
//! reported, and the counts equal the counts of a script that shares no code with the daemon.

#![allow(clippy::print_stderr)] // Tests report why they are skipped.

use super::resolve;
use crate::harness::{Daemon, Setup, selected};
use caproot_core::proto::caproot::v1::{ComponentKind, ResolvedRoot};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Runs the script, and returns its counts. Returns `None` if Python is missing.
fn count_by_script(dir: &Path) -> Option<Value> {
    let python = std::env::var_os("CAPROOT_PYTHON").unwrap_or_else(|| "python3".into());
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/foreign/plugin_counts.py"
    );
    let output = match Command::new(python).arg(script).arg(dir).output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("SKIPPED: python3 does not start: {error}");
            return None;
        }
    };
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

/// Collects the files that the response names: as a component's file, a manifest, or in a
/// diagnostic.
fn reported_files(root: &ResolvedRoot) -> BTreeSet<&str> {
    let mut files: BTreeSet<&str> = root
        .diagnostics
        .iter()
        .map(|d| d.resource.as_str())
        .collect();
    for plugin in &root.plugins {
        files.insert(&plugin.manifest);
        files.extend(plugin.other_manifests.iter().map(String::as_str));
        files.extend(plugin.mcp_servers.iter().map(|c| c.declared_by.as_str()));
        files.extend(plugin.components.iter().map(|c| c.file.as_str()));
    }
    files
}

#[tokio::test]
async fn counts_equal_the_counts_of_a_script() {
    let Some(corpus) = std::env::var_os("CAPROOT_CORPUS") else {
        println!("SKIPPED: CAPROOT_CORPUS is not set");
        return;
    };
    let corpus = Path::new(&corpus)
        .canonicalize()
        .expect("CAPROOT_CORPUS is a directory");
    let daemon = Daemon::start(Setup::allowing([&corpus])).await;
    for name in [
        "openai__plugins",
        "wshobson__agents",
        "alirezarezvani__claude-skills",
    ] {
        let dir = corpus.join(name);
        if !dir.is_dir() {
            println!("SKIPPED: the corpus has no directory {name}");
            continue;
        }
        let Some(counts) = count_by_script(&dir) else {
            return;
        };
        let answer = resolve(&daemon, &[selected("r", &dir)]).await;
        let root = &answer.roots[0];
        let servers = root.plugins.iter().map(|plugin| plugin.mcp_servers.len());
        let of_kind = |kind| {
            let all = root.plugins.iter().flat_map(|plugin| &plugin.components);
            all.filter(|component| component.kind() == kind).count() as u64
        };
        let listed = root
            .marketplaces
            .iter()
            .map(|list| list.plugins.len() as u64)
            .sum::<u64>();
        for (kind, found) in [
            ("plugins", root.plugins.len() as u64),
            ("mcp_servers", servers.sum::<usize>() as u64),
            ("apps", of_kind(ComponentKind::App)),
            ("hooks", of_kind(ComponentKind::Hook)),
            ("agents", of_kind(ComponentKind::Agent)),
            ("commands", of_kind(ComponentKind::Command)),
            ("marketplace_plugins", listed),
        ] {
            assert_eq!(counts[kind].as_u64(), Some(found), "{name}: {kind}");
        }
        let reported = reported_files(root);
        for file in counts["files"].as_array().expect("files") {
            let handle = format!("skill://r/{}", file.as_str().expect("a path"));
            assert!(
                reported.contains(&*handle),
                "{name}: {handle} is not reported"
            );
        }
        println!("plugins of {name}: {counts}");
    }
    daemon.stop().await;
}
