//! The check and the daemon find the same skills and diagnostics in a tree.

use super::check_json;
use crate::harness::{Daemon, Setup, list_request, located};
use caproot::daemon::model;
use caproot::daemon::scan::search::DEFAULT_RESOURCE_DIRS;
use caproot_core::proto::caproot::v1::{
    DiagnosticCode, ListSkillsRequest, ListSkillsResponse, Severity,
};
use caproot_core::wire::ResourceHandle;
use serde_json::Value;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Starts a daemon that publishes a directory as `root`, and lists all its skills.
pub(super) async fn list_skills(dir: PathBuf) -> ListSkillsResponse {
    let daemon = Daemon::start(Setup::publishing("root", dir)).await;
    let roots = [located("root", "published:root")];
    let mut all = daemon.list(&roots).await;
    while !all.next_page_token.is_empty() {
        let page_token = std::mem::take(&mut all.next_page_token);
        let request = ListSkillsRequest {
            page_token,
            ..list_request(&roots)
        };
        let page = daemon.try_list(request).await.expect("a page");
        all.skills.extend(page.skills);
        all.next_page_token = page.next_page_token;
    }
    daemon.stop().await;
    all
}

/// Whether only the check reports a diagnostic: by its code, or because it is about a link in a
/// resource directory.
pub(super) fn is_check_only(diagnostic: &Value) -> bool {
    let text = |key: &str| diagnostic[key].as_str().expect("text");
    let is_in_resource_dir = text("path")
        .split('/')
        .rev()
        .skip(1)
        .any(|dir| DEFAULT_RESOURCE_DIRS.contains(&dir));
    model::DiagnosticCode::CHECK_ONLY
        .iter()
        .any(|code| code.name() == text("code"))
        || is_in_resource_dir && ["OUTSIDE_ROOT", "DANGLING_LINK"].contains(&text("code"))
}

/// Compares the output of the check and of the daemon for `dir`, a directory in `top`. The check
/// may report more diagnostics if the daemon's limit cut the list.
pub(super) async fn assert_agrees(top: &Path, dir: &str) {
    let list = list_skills(top.join(dir)).await;
    let report = check_json(top, dir);
    let array = |key: &str| report[key].as_array().expect("an array").clone();
    let below = |value: &Value| {
        let path = value["path"].as_str().expect("a path");
        let path = path.strip_prefix(dir).expect("below the directory");
        path.strip_prefix('/').unwrap_or(path).to_owned()
    };
    let path_of = |handle: &str| {
        let path = ResourceHandle::parse(handle).expect("a handle").path;
        String::from_utf8_lossy(path.as_bytes()).into_owned()
    };
    let text = |value: &Value| value.as_str().expect("text").to_owned();

    let served: Vec<_> = list
        .skills
        .iter()
        .map(|s| {
            (
                s.name.clone(),
                s.description.clone(),
                path_of(&s.main_resource),
            )
        })
        .collect();
    let checked: Vec<_> = array("skills")
        .iter()
        .map(|s| (text(&s["name"]), text(&s["description"]), below(s)))
        .collect();
    assert_eq!(checked, served, "{dir}");
    for skill in array("skills") {
        let bare = text(&skill["bareName"]);
        let qualified = skill["plugin"].as_str().map(|p| format!("{p}:{bare}"));
        assert_eq!(text(&skill["name"]), qualified.unwrap_or(bare));
    }

    let total = list.roots[0].counts.expect("counts").diagnostics as usize;
    let mut checked: Vec<_> = array("diagnostics")
        .iter()
        .filter(|diagnostic| !is_check_only(diagnostic))
        .map(|d| {
            let code = text(&d["code"]);
            // The daemon has no handle for a path that is too long.
            let path = if code == "HANDLE_TOO_LONG" {
                String::new()
            } else {
                below(d)
            };
            let at = [&d["line"], &d["column"]].map(|n| n.as_u64().expect("a number"));
            (code, text(&d["severity"]), path, at, text(&d["message"]))
        })
        .collect();
    assert_eq!(checked.len(), total, "{dir}");
    let mut served: Vec<_> = list
        .diagnostics
        .iter()
        .map(|d| {
            let code = DiagnosticCode::try_from(d.code)
                .expect("a code")
                .as_str_name();
            let severity = Severity::try_from(d.severity)
                .expect("a severity")
                .as_str_name();
            let path = if d.resource.is_empty() {
                String::new()
            } else {
                path_of(&d.resource)
            };
            (
                code.trim_start_matches("DIAGNOSTIC_CODE_").to_owned(),
                severity.trim_start_matches("SEVERITY_").to_owned(),
                path,
                [d.line.into(), d.column.into()],
                d.message.clone(),
            )
        })
        .collect();
    // Only `check` shows the target of a link, and whether something is there.
    for diagnostic in checked.iter_mut().chain(&mut served) {
        if ["DANGLING_LINK", "OUTSIDE_ROOT"].contains(&&*diagnostic.0) {
            *diagnostic = (
                "OUTSIDE_ROOT".to_owned(),
                String::new(),
                diagnostic.2.clone(),
                diagnostic.3,
                String::new(),
            );
        }
    }
    if served.len() < total {
        checked.retain(|d| served.contains(d));
    }
    checked.sort();
    served.sort();
    assert_eq!(checked, served, "{dir}");
}

#[tokio::test]
async fn check_and_daemon_agree_on_a_corpus_of_real_skills() {
    let Some(corpus) = corpus() else {
        eprintln!("SKIPPED: CAPROOT_CORPUS is not set");
        return;
    };
    let mut roots = 0;
    for entry in std::fs::read_dir(&corpus).expect("CAPROOT_CORPUS can be read") {
        let entry = entry.expect("an entry");
        if entry.file_type().expect("a type").is_dir() {
            assert_agrees(&corpus, entry.file_name().to_str().expect("UTF-8")).await;
            roots += 1;
        }
    }
    assert!(roots > 0, "CAPROOT_CORPUS holds directories");
    let parent = corpus.parent().expect("a parent");
    assert_agrees(
        parent,
        corpus.file_name().and_then(|n| n.to_str()).expect("UTF-8"),
    )
    .await;
}

/// Returns the directory in `CAPROOT_CORPUS`, if the variable is set.
fn corpus() -> Option<PathBuf> {
    let corpus = std::env::var_os("CAPROOT_CORPUS").filter(|path| !path.is_empty())?;
    Some(
        PathBuf::from(corpus)
            .canonicalize()
            .expect("CAPROOT_CORPUS is a directory"),
    )
}

/// `CAPROOT_PYTHON` is the path of an interpreter with `ruamel.yaml` or `PyYAML`.
#[test]
fn another_yaml_library_agrees() {
    let python = std::env::var_os("CAPROOT_PYTHON").filter(|path| !path.is_empty());
    let (Some(corpus), Some(python)) = (corpus(), python) else {
        eprintln!("SKIPPED: CAPROOT_CORPUS or CAPROOT_PYTHON is not set");
        return;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign/yaml_agrees.py");
    let mut command = Command::new(python);
    command
        .arg(script)
        .current_dir(&corpus)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut reader = command.spawn().expect("CAPROOT_PYTHON runs");
    let report = check_json(&corpus, ".").to_string();
    reader
        .stdin
        .take()
        .expect("piped")
        .write_all(report.as_bytes())
        .expect("the script reads");
    let output = reader.wait_with_output().expect("the script ends");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}
