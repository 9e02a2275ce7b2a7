//! The check and the daemon say the same of a tree, skill by skill and diagnostic by diagnostic.

use super::json;
use crate::harness::{Daemon, Setup, list_request, located};
use caproot::domain::ResourceHandle;
use caproot::proto::caproot::v1::{
    DiagnosticCode, ListSkillsRequest, ListSkillsResponse, Severity,
};
use serde_json::Value;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// All pages of what a daemon lists that publishes a directory as `root`, joined.
pub(super) async fn listed(dir: PathBuf) -> ListSkillsResponse {
    let daemon = Daemon::start(Setup::publishing("root", dir)).await;
    let roots = [located("root", "published:root")];
    let mut all = daemon.list(&roots).await;
    while !all.next_page_token.is_empty() {
        let page_token = std::mem::take(&mut all.next_page_token);
        let request = ListSkillsRequest { page_token, ..list_request(&roots) };
        let page = daemon.try_list(request).await.expect("a page");
        all.skills.extend(page.skills);
        all.next_page_token = page.next_page_token;
    }
    daemon.stop().await;
    all
}

/// Compares what both say of `dir`, which lies in `top`. The check may know more diagnostics, where
/// the daemon had no room for all.
pub(super) async fn assert_agrees(top: &Path, dir: &str) {
    let list = listed(top.join(dir)).await;
    let said = json(top, dir);
    let array = |key: &str| said[key].as_array().expect("an array").clone();
    let below = |value: &Value| {
        let path = value["path"].as_str().expect("a path");
        let path = path.strip_prefix(dir).expect("below the directory");
        path.strip_prefix('/').unwrap_or(path).to_owned()
    };
    let place = |handle: &str| {
        let path = ResourceHandle::parse(handle).expect("a handle").path;
        String::from_utf8_lossy(path.as_bytes()).into_owned()
    };
    let text = |value: &Value| value.as_str().expect("text").to_owned();

    let theirs: Vec<_> = list
        .skills
        .iter()
        .map(|s| (s.name.clone(), s.description.clone(), place(&s.main_resource)))
        .collect();
    let ours: Vec<_> = array("skills")
        .iter()
        .map(|s| (text(&s["name"]), text(&s["description"]), below(s)))
        .collect();
    assert_eq!(ours, theirs, "{dir}");
    for skill in array("skills") {
        let bare = text(&skill["bareName"]);
        let qualified = skill["plugin"].as_str().map(|p| format!("{p}:{bare}"));
        assert_eq!(text(&skill["name"]), qualified.unwrap_or(bare));
    }

    let total = list.roots[0].counts.expect("counts").diagnostics as usize;
    let mut ours: Vec<_> = array("diagnostics")
        .iter()
        .map(|d| {
            let code = text(&d["code"]);
            // The daemon cannot name a place that is too long to name.
            let path = if code == "HANDLE_TOO_LONG" { String::new() } else { below(d) };
            let at = [&d["line"], &d["column"]].map(|n| n.as_u64().expect("a number"));
            (code, text(&d["severity"]), path, at, text(&d["message"]))
        })
        .collect();
    assert_eq!(ours.len(), total, "{dir}");
    let mut theirs: Vec<_> = list
        .diagnostics
        .iter()
        .map(|d| {
            let code = DiagnosticCode::try_from(d.code).expect("a code").as_str_name();
            let severity = Severity::try_from(d.severity).expect("a severity").as_str_name();
            let path = if d.resource.is_empty() { String::new() } else { place(&d.resource) };
            (
                code.trim_start_matches("DIAGNOSTIC_CODE_").to_owned(),
                severity.trim_start_matches("SEVERITY_").to_owned(),
                path,
                [d.line.into(), d.column.into()],
                d.message.clone(),
            )
        })
        .collect();
    if theirs.len() < total {
        ours.retain(|d| theirs.contains(d));
    }
    ours.sort();
    theirs.sort();
    assert_eq!(ours, theirs, "{dir}");
}

#[tokio::test]
async fn over_a_corpus_of_real_skills() {
    let Some(corpus) = corpus() else {
        eprintln!("SKIPPED: CAPROOT_CORPUS names no directory of real skills");
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
    assert_agrees(parent, corpus.file_name().and_then(|n| n.to_str()).expect("UTF-8")).await;
}

/// The directory that `CAPROOT_CORPUS` names.
fn corpus() -> Option<PathBuf> {
    let corpus = std::env::var_os("CAPROOT_CORPUS").filter(|path| !path.is_empty())?;
    Some(PathBuf::from(corpus).canonicalize().expect("CAPROOT_CORPUS is a directory"))
}

/// `CAPROOT_PYTHON` names an interpreter that has `ruamel.yaml` or `PyYAML`.
#[test]
fn another_reader_of_yaml_agrees() {
    let python = std::env::var_os("CAPROOT_PYTHON").filter(|path| !path.is_empty());
    let (Some(corpus), Some(python)) = (corpus(), python) else {
        eprintln!("SKIPPED: CAPROOT_CORPUS or CAPROOT_PYTHON is not set");
        return;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign/yaml_agrees.py");
    let mut command = Command::new(python);
    command.arg(script).current_dir(&corpus).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut reader = command.spawn().expect("CAPROOT_PYTHON runs");
    let said = json(&corpus, ".").to_string();
    reader.stdin.take().expect("piped").write_all(said.as_bytes()).expect("it reads");
    let output = reader.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
