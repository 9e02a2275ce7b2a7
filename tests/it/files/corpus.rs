//! Real trees below the directory in `CAPROOT_CORPUS`: each SKILL.md is listed or has a diagnostic.
//! The walk here shares no code with the daemon.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use caproot::daemon::scan::search::{DEFAULT_RESOURCE_DIRS, DEFAULT_SKIPPED_DIRS};
use caproot_core::proto::caproot::v1::{ListSkillsRequest, RootState};

use crate::harness::{Daemon, Setup, list_request, read_request, selected};

/// Collects the handle of every SKILL.md below `dir`, except below skipped directories. Directories
/// behind links are not entered: their files are found under their own path.
fn main_resources(dir: &Path, handle: &str, found: &mut BTreeSet<String>) {
    let entries: Vec<_> = fs::read_dir(dir)
        .expect("a directory")
        .map(|e| e.expect("an entry"))
        .collect();
    let is_skill = entries
        .iter()
        .any(|e| e.file_name() == "SKILL.md" && e.path().is_file());
    for entry in entries {
        let name = entry.file_name();
        let name = name.to_str().expect("the corpus has names in UTF-8");
        let handle = format!("{handle}/{}", encoded(name));
        if name == "SKILL.md" {
            found.insert(handle);
        } else if entry.file_type().expect("a type").is_dir() {
            let own = is_skill && DEFAULT_RESOURCE_DIRS.contains(&name);
            if !own && !DEFAULT_SKIPPED_DIRS.contains(&name) {
                main_resources(&entry.path(), &handle, found);
            }
        }
    }
}

fn encoded(name: &str) -> String {
    let bare = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    name.bytes()
        .map(|b| {
            if bare(b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

#[tokio::test]
async fn each_skill_is_listed_or_reported() {
    let Some(corpus) = std::env::var_os("CAPROOT_CORPUS") else {
        println!("corpus skipped: CAPROOT_CORPUS is not set");
        return;
    };
    let corpus = Path::new(&corpus)
        .canonicalize()
        .expect("the directory of the corpus");
    let daemon = Daemon::start(Setup::allowing([&corpus])).await;
    let entries = fs::read_dir(&corpus)
        .expect("a directory")
        .map(|e| e.expect("an entry").path());
    let dirs: Vec<_> = entries.filter(|p| p.is_dir()).collect();
    assert!(!dirs.is_empty(), "no directory in {}", corpus.display());
    for (index, dir) in dirs.iter().enumerate() {
        let id = format!("c{index}");
        let root = selected(&id, dir);
        let mut reported = BTreeSet::new();
        let mut listed = Vec::new();
        let mut request: ListSkillsRequest = list_request(std::slice::from_ref(&root));
        loop {
            let page = daemon.try_list(request.clone()).await.expect("ListSkills");
            assert_eq!(page.roots[0].state(), RootState::Ready, "{}", dir.display());
            assert!(!page.truncated, "{} is within the limits", dir.display());
            reported.extend(page.diagnostics.into_iter().map(|d| d.resource));
            listed.extend(page.skills);
            request.page_token = page.next_page_token;
            if request.page_token.is_empty() {
                break;
            }
        }
        let names: BTreeSet<_> = listed.iter().map(|s| s.main_resource.clone()).collect();
        let mut found = BTreeSet::new();
        main_resources(dir, &format!("skill://{id}"), &mut found);
        let lost: Vec<_> = found
            .iter()
            .filter(|h| !names.contains(*h) && !reported.contains(*h))
            .collect();
        assert!(lost.is_empty(), "{}: {lost:#?}", dir.display());
        for skill in &listed {
            let path = dir.join(relative_path(&skill.main_resource, &id));
            let bytes = daemon
                .read_all(read_request(&root, &skill.package, ""))
                .await;
            assert!(
                bytes.expect("a read") == fs::read(path).expect("on disk"),
                "{}",
                skill.package
            );
        }
        println!(
            "{}: {} listed of {} found",
            dir.display(),
            listed.len(),
            found.len()
        );
    }
    daemon.stop().await;
}

/// Path below the root that a handle stands for.
fn relative_path(handle: &str, id: &str) -> String {
    let path = handle
        .strip_prefix(&format!("skill://{id}/"))
        .expect("this root's");
    percent_encoding::percent_decode_str(path)
        .decode_utf8()
        .expect("UTF-8")
        .into_owned()
}
