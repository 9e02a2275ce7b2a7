//! Real plugins, where `CAPROOT_CORPUS` names a directory of trees: every file in which one declares
//! something is told, and the counts are those of a script that shares no code with the daemon.

#![allow(clippy::print_stderr)] // what was skipped

use super::resolve;
use crate::harness::{Daemon, Setup, selected};
use caproot::proto::caproot::v1::{PluginComponents, ResolvedRoot};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// What the script counts; `None` where there is no Python.
fn counted(dir: &Path) -> Option<Value> {
    let python = std::env::var_os("CAPROOT_PYTHON").unwrap_or_else(|| "python3".into());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign/plugin_counts.py");
    let ran = match Command::new(python).arg(script).arg(dir).output() {
        Ok(ran) => ran,
        Err(error) => {
            eprintln!("SKIPPED: no counts to compare with: python3 does not start: {error}");
            return None;
        }
    };
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    Some(serde_json::from_slice(&ran.stdout).expect("JSON"))
}

/// Every file that the answer names: as a component's, as a manifest, or in a diagnostic.
fn told(root: &ResolvedRoot) -> BTreeSet<&str> {
    let mut told: BTreeSet<&str> = root.diagnostics.iter().map(|d| d.resource.as_str()).collect();
    for plugin in &root.plugins {
        told.insert(&plugin.manifest);
        told.extend(plugin.other_manifests.iter().map(String::as_str));
        let all = plugin.components.as_ref().expect("components");
        told.extend(all.mcp_servers.iter().map(|c| c.declared_by.as_str()));
        told.extend(all.apps.iter().map(|c| c.declared_by.as_str()));
        told.extend(all.hooks.iter().map(|c| c.declared_by.as_str()));
    }
    told
}

#[tokio::test]
async fn counts_are_those_of_a_script() {
    let Some(corpus) = std::env::var_os("CAPROOT_CORPUS") else {
        println!("plugins of the corpus skipped: CAPROOT_CORPUS is not set");
        return;
    };
    let corpus = Path::new(&corpus).canonicalize().expect("the directory of the corpus");
    let daemon = Daemon::start(Setup::allowing([&corpus])).await;
    for name in ["openai__plugins", "wshobson__agents", "alirezarezvani__claude-skills"] {
        let dir = corpus.join(name);
        if !dir.is_dir() {
            println!("plugins of the corpus: {name} skipped: it is not there");
            continue;
        }
        let Some(counts) = counted(&dir) else { return };
        let answer = resolve(&daemon, &[selected("r", &dir)]).await;
        let root = &answer.roots[0];
        let sum = |of: fn(&PluginComponents) -> usize| -> u64 {
            let all = root.plugins.iter().filter_map(|plugin| plugin.components.as_ref());
            all.map(|all| of(all) as u64).sum()
        };
        let listed = root.marketplaces.iter().map(|list| list.plugins.len() as u64).sum::<u64>();
        for (kind, found) in [
            ("plugins", root.plugins.len() as u64),
            ("mcp_servers", sum(|c| c.mcp_servers.len())),
            ("apps", sum(|c| c.apps.len())),
            ("hooks", sum(|c| c.hooks.len())),
            ("agents", sum(|c| c.agents.len())),
            ("commands", sum(|c| c.commands.len())),
            ("marketplace_plugins", listed),
        ] {
            assert_eq!(counts[kind].as_u64(), Some(found), "{name}: {kind}");
        }
        let told = told(root);
        for file in counts["files"].as_array().expect("files") {
            let handle = format!("skill://r/{}", file.as_str().expect("a path"));
            assert!(told.contains(&*handle), "{name}: nothing is said of {handle}");
        }
        println!("plugins of {name}: {counts}");
    }
    daemon.stop().await;
}
