//! The law of a bound, on random trees full of links: whatever root is selected, what a bound caller
//! is served lies really within its bound, and is all that an unbound one is served of that.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use caproot::proto::caproot::v1::{RootReason, RootState};

use super::calls::{files, list, read};
use super::{daemon, write_token};
use crate::fixture::Fixture;
use crate::harness::{Daemon, bytes_of, short_or_long, read_request, selected};

/// Numbers that a seed decides.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        // Knuth's MMIX; the low bits are the worst.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % sides
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.roll(of.len())]
    }
}

/// Directories, some of them skills, in each a file that holds its own path; and links among all of
/// them. Gives every path that leads to a directory.
fn grow(fixture: &Fixture, dice: &mut Dice) -> Vec<PathBuf> {
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
        let place = dir.strip_prefix(fixture.top()).expect("below").display();
        if dice.roll(3) > 0 {
            let skill = format!("---\ndescription: {place}/SKILL.md\n---\n");
            fs::write(dir.join("SKILL.md"), skill).expect("a file");
            targets.push(dir.join("SKILL.md"));
        }
        fs::write(dir.join("f.md"), format!("{place}/f.md")).expect("a file");
        targets.push(dir.join("f.md"));
    }
    for n in 0..12 {
        let (holder, target) = (dice.pick(&dirs).clone(), dice.pick(&targets).clone());
        let name = ["SKILL.md", "f.md"][dice.roll(2)];
        let free = dice.roll(4) == 0 && !holder.join(name).exists();
        let link = if free { holder.join(name) } else { holder.join(format!("l{n}")) };
        let up = holder.strip_prefix(fixture.top()).expect("below").components().map(|_| "..");
        let up: PathBuf = up.collect();
        let relative = up.join(target.strip_prefix(fixture.top()).expect("below"));
        symlink(if dice.roll(2) == 0 { &target } else { &relative }, &link).expect("a link");
        // Links to links too, as far as they are no circle.
        targets.push(link);
    }
    targets.retain(|path| path.is_dir());
    targets
}

/// A file that was read: its package, its handle, and where it says that it is.
#[derive(PartialEq)]
struct Seen {
    package: String,
    resource: String,
    place: String,
}

/// All that can be read at a root.
async fn all_of(daemon: &Daemon, token: &str, path: &Path) -> (RootState, RootReason, Vec<Seen>) {
    let root = selected("r", path);
    let listed = list(daemon, token, std::slice::from_ref(&root)).await;
    let (state, reason) = (listed.roots[0].state(), listed.roots[0].reason());
    let mut seen = Vec::new();
    for skill in listed.skills {
        let package = skill.package;
        for file in files(daemon, token, &root, &package).await.expect("a listed package") {
            let resource = format!("{package}/{file}");
            let page = read(daemon, token, read_request(&root, &package, &resource)).await;
            let text = String::from_utf8(bytes_of(&page.expect("a listed file"))).expect("text");
            let place = text.trim_start_matches("---\ndescription: ").trim_end_matches("\n---\n");
            seen.push(Seen { package: package.clone(), resource, place: place.to_owned() });
        }
        // What is listed of a skill is its file's too.
        let (resource, place) = (package.clone(), skill.description);
        seen.push(Seen { package, resource, place });
    }
    (state, reason, seen)
}

async fn holds(seed: u64) -> usize {
    let mut dice = Dice(seed);
    let fixture = Fixture::new("dir srv");
    let dirs = grow(&fixture, &mut dice);
    let bound: Vec<_> = (0..=dice.roll(2)).map(|_| dice.pick(&dirs).clone()).collect();
    write_token(&fixture, "me", "me");
    write_token(&fixture, "all", "all");
    let listed: Vec<_> = bound.iter().map(|dir| format!("'{}'", dir.display())).collect();
    let rules = format!(
        "allow: [srv]\ncallers:\n- {{name: me, token_file: me, roots: [{}]}}\n\
         - {{name: all, token_file: all}}\n",
        listed.join(", ")
    );
    let daemon = daemon(&fixture, &rules).await;
    let real = |path: &Path| path.canonicalize().expect("it is there");
    let bound: Vec<_> = bound.iter().map(|dir| real(dir)).collect();
    let is_in = |path: &Path| bound.iter().any(|dir| real(path).starts_with(dir));
    let mut held_back = 0;
    for dir in &dirs {
        let what = format!("seed {seed}, bound {bound:?}, root {}", dir.display());
        let (state, reason, mine) = all_of(&daemon, "me", dir).await;
        let (_, _, all) = all_of(&daemon, "all", dir).await;
        if !is_in(dir) {
            let refused = (RootState::Unavailable, RootReason::NotAllowed);
            assert_eq!(((state, reason), mine.len()), (refused, 0), "{what}");
            continue;
        }
        assert_eq!(state, RootState::Ready, "{what}");
        for Seen { resource, place, .. } in &mine {
            assert!(is_in(&fixture.path(place)), "{what}: {resource} is {place}");
        }
        // Whatever lies below the root itself, and not behind a link, is not held back.
        let is_plain = |handle: &str| {
            let below = handle.strip_prefix("skill://r").expect("a handle of the root");
            let path = real(dir).join(below.trim_start_matches('/'));
            real(&path) == path
        };
        for seen in &all {
            let Seen { package, resource, place } = seen;
            let is_plain = is_plain(&format!("{package}/SKILL.md")) && is_plain(resource);
            assert!(!is_plain || mine.contains(seen), "{what}: {resource} is missing");
            held_back += usize::from(!is_in(&fixture.path(place)));
        }
    }
    daemon.stop().await;
    held_back
}

#[tokio::test]
async fn nothing_outside_a_bound_is_served() {
    let mut held_back = 0;
    for seed in 0..short_or_long(4, 8) {
        held_back += holds(seed).await;
    }
    assert!(held_back > 5, "links out of a bound were tried: {held_back}");
}
