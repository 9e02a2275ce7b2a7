//! Property of access scopes, on random trees full of links: at every selected root, a scoped
//! caller gets files in its scope only, and every file in its scope that no link leads to. The caller
//! cannot select a root by a link outside the scope.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use caproot_core::proto::caproot::v1::{RootReason, RootState};

use super::calls::{list, list_files};
use super::{start_configured_daemon, with_token, write_token};
use crate::harness::fixture::Fixture;
use crate::harness::{Daemon, bytes_of, read_request, selected, short_or_long};

/// Pseudo-random numbers from a seed.
struct SeededRng(u64);

impl SeededRng {
    fn next_below(&mut self, limit: usize) -> usize {
        // Knuth's MMIX generator. The low bits are the least random.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % limit
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.next_below(items.len())]
    }
}

/// Creates directories, skills and links among them. Each file holds its own path. Returns every
/// path that leads to a directory.
fn create_tree(fixture: &Fixture, rng: &mut SeededRng) -> Vec<PathBuf> {
    let top = fixture.path("srv");
    let mut dirs = Vec::new();
    for a in ["a", "b", "c"] {
        dirs.push(top.join(a));
        dirs.extend(["x", "y"].map(|b| top.join(a).join(b)));
        dirs.push(top.join(a).join("x/z"));
    }
    let mut targets = dirs.clone();
    for dir in &dirs {
        fs::create_dir_all(dir).expect("a directory");
        let relative_dir = dir.strip_prefix(fixture.top()).expect("below").display();
        if rng.next_below(3) > 0 {
            let skill = format!("---\ndescription: {relative_dir}/SKILL.md\n---\n");
            fs::write(dir.join("SKILL.md"), skill).expect("a file");
            targets.push(dir.join("SKILL.md"));
        }
        fs::write(dir.join("f.md"), format!("{relative_dir}/f.md")).expect("a file");
        targets.push(dir.join("f.md"));
    }
    for n in 0..12 {
        let (holder, target) = (rng.pick(&dirs).clone(), rng.pick(&targets).clone());
        let name = ["SKILL.md", "f.md"][rng.next_below(2)];
        let free = rng.next_below(4) == 0 && !holder.join(name).exists();
        let link = if free {
            holder.join(name)
        } else {
            holder.join(format!("l{n}"))
        };
        let up = holder
            .strip_prefix(fixture.top())
            .expect("below")
            .components()
            .map(|_| "..");
        let up: PathBuf = up.collect();
        let relative = up.join(target.strip_prefix(fixture.top()).expect("below"));
        symlink(
            if rng.next_below(2) == 0 {
                &target
            } else {
                &relative
            },
            &link,
        )
        .expect("a link");
        // Later links may lead to this link. Cycles are dropped below.
        targets.push(link);
    }
    targets.retain(|path| path.is_dir());
    targets
}

/// Whether a caller may follow each link of a path: the link lies in the scope of the caller, or on
/// the path of a directory that the caller's rule names.
fn may_follow(path: &Path, is_in_scope: &dyn Fn(&Path) -> bool, named: &[PathBuf]) -> bool {
    links_of(path).iter().all(|link| {
        let holder = link.parent().expect("a directory");
        is_in_scope(holder) || named.contains(link)
    })
}

/// Returns the links through which a path leads, if its directories are no links.
fn links_of(path: &Path) -> Vec<PathBuf> {
    let mut links = Vec::new();
    let mut at = path.to_owned();
    while let Ok(target) = fs::read_link(&at) {
        let target = at.parent().expect("a directory").join(target);
        let holder = target.parent().expect("a directory").canonicalize();
        let name = target.file_name().expect("a name");
        links.push(at);
        at = holder.expect("a directory").join(name);
    }
    links
}

/// File that was read: its package, its handle, and the path that it holds.
#[derive(PartialEq)]
struct ReadFile {
    package: String,
    resource: String,
    path_in_file: String,
}

/// Reads every listed file of a root.
async fn read_all(
    daemon: &Daemon,
    token: &str,
    path: &Path,
) -> (RootState, RootReason, Vec<ReadFile>) {
    let root = selected("r", path);
    let listed = list(daemon, token, std::slice::from_ref(&root)).await;
    let (state, reason) = (listed.roots[0].state(), listed.roots[0].reason());
    let mut files_read = Vec::new();
    for skill in listed.skills {
        let package = skill.package;
        for file in list_files(daemon, token, &root, &package)
            .await
            .expect("a listed package")
        {
            let resource = format!("{package}/{file}");
            let page = daemon
                .read(with_token(token, read_request(&root, &package, &resource)))
                .await;
            let text = String::from_utf8(bytes_of(&page.expect("a listed file"))).expect("text");
            let path_in_file = text
                .trim_start_matches("---\ndescription: ")
                .trim_end_matches("\n---\n");
            files_read.push(ReadFile {
                package: package.clone(),
                resource,
                path_in_file: path_in_file.to_owned(),
            });
        }
        // The listed description comes from the skill's file, too.
        let (resource, path_in_file) = (package.clone(), skill.description);
        files_read.push(ReadFile {
            package,
            resource,
            path_in_file,
        });
    }
    (state, reason, files_read)
}

/// Checks the property for one tree. Returns how many files the scope held back.
async fn check_seed(seed: u64) -> usize {
    let mut rng = SeededRng(seed);
    let fixture = Fixture::new("dir srv");
    let dirs = create_tree(&fixture, &mut rng);
    let scope: Vec<_> = (0..=rng.next_below(2))
        .map(|_| rng.pick(&dirs).clone())
        .collect();
    write_token(&fixture, "me", "me");
    write_token(&fixture, "all", "all");
    let listed: Vec<_> = scope
        .iter()
        .map(|dir| format!("'{}'", dir.display()))
        .collect();
    let rules = format!(
        "allow: [srv]\ncallers:\n- {{name: me, token_file: me, roots: [{}]}}\n\
         - {{name: all, token_file: all}}\n",
        listed.join(", ")
    );
    let daemon = start_configured_daemon(&fixture, &rules).await;
    let real = |path: &Path| path.canonicalize().expect("an existing path");
    let named: Vec<_> = scope.iter().flat_map(|dir| links_of(dir)).collect();
    let scope: Vec<_> = scope.iter().map(|dir| real(dir)).collect();
    let is_in_scope = |path: &Path| scope.iter().any(|dir| real(path).starts_with(dir));
    let mut held_back = 0;
    for dir in &dirs {
        let context = format!("seed {seed}, scope {scope:?}, root {}", dir.display());
        let (state, reason, mine) = read_all(&daemon, "me", dir).await;
        let (_, _, all) = read_all(&daemon, "all", dir).await;
        if !is_in_scope(dir) || !may_follow(dir, &is_in_scope, &named) {
            let denied = (RootState::Unavailable, RootReason::NotAllowed);
            assert_eq!(((state, reason), mine.len()), (denied, 0), "{context}");
            continue;
        }
        assert_eq!(state, RootState::Ready, "{context}");
        for ReadFile {
            resource,
            path_in_file,
            ..
        } in &mine
        {
            assert!(
                is_in_scope(&fixture.path(path_in_file)),
                "{context}: {resource} is {path_in_file}"
            );
        }
        // A file below the root that no link leads to is always served.
        let is_plain = |handle: &str| {
            let below = handle
                .strip_prefix("skill://r")
                .expect("a handle of the root");
            let path = real(dir).join(below.trim_start_matches('/'));
            real(&path) == path
        };
        for file in &all {
            let ReadFile {
                package,
                resource,
                path_in_file,
            } = file;
            let is_plain = is_plain(&format!("{package}/SKILL.md")) && is_plain(resource);
            assert!(
                !is_plain || mine.contains(file),
                "{context}: {resource} is missing"
            );
            held_back += usize::from(!is_in_scope(&fixture.path(path_in_file)));
        }
    }
    daemon.stop().await;
    held_back
}

#[tokio::test]
async fn nothing_outside_an_access_scope_is_served() {
    let mut held_back = 0;
    for seed in 0..short_or_long(4, 8) {
        held_back += check_seed(seed).await;
    }
    assert!(
        held_back > 5,
        "the trees have links out of the scope: {held_back}"
    );
}
