//! The watcher on real directories.

use super::{Listener, Watcher};
use std::fs;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Notes the tokens that it is told.
#[derive(Debug, Default)]
struct Notes(Mutex<Vec<(u64, Option<Vec<u8>>)>>);

impl Listener for Notes {
    fn dirty(&self, token: u64, name: Option<&[u8]>, _: bool) {
        self.0.lock().expect("no panic").push((token, name.map(<[u8]>::to_vec)));
    }

    fn mounted(&self, _: &[Box<[u8]>]) {}

    fn lost(&self) {
        self.dirty(u64::MAX, None, false);
    }
}

impl Notes {
    fn has(&self, token: u64, name: &str) -> bool {
        let all = self.0.lock().expect("no panic");
        all.iter().any(|(t, n)| *t == token && n.as_deref() == Some(name.as_bytes()))
    }
}

fn open(path: &Path) -> File {
    File::open(path).expect("a directory")
}

#[tokio::test]
async fn what_happened_before_a_barrier_is_told_before_it() {
    let tmp = tempfile::tempdir().expect("temp dir");
    let watcher = Watcher::new();
    watcher.start().expect("an instance");
    let notes = Arc::new(Notes::default());
    let listener: Arc<dyn Listener> = notes.clone();
    let watch = watcher.watch(open(tmp.path()).as_fd(), &listener, 7, None).expect("a watch");
    for n in 0..200 {
        let name = format!("f{n}");
        fs::write(tmp.path().join(&name), "x").expect("write");
        assert!(watcher.barrier().await);
        assert!(notes.has(7, &name), "{name}");
    }
    drop(watch);
    assert_eq!(watcher.used(), 0);
}

#[tokio::test]
async fn reading_is_not_told() {
    let tmp = tempfile::tempdir().expect("temp dir");
    fs::write(tmp.path().join("f"), "x").expect("write");
    let watcher = Watcher::new();
    watcher.start().expect("an instance");
    let notes = Arc::new(Notes::default());
    let listener: Arc<dyn Listener> = notes.clone();
    let _watch = watcher.watch(open(tmp.path()).as_fd(), &listener, 1, None).expect("a watch");
    assert_eq!(fs::read(tmp.path().join("f")).expect("read"), b"x");
    assert_eq!(fs::read_dir(tmp.path()).expect("list").count(), 1);
    assert!(watcher.barrier().await);
    assert!(notes.0.lock().expect("no panic").is_empty());
}

#[tokio::test]
async fn two_interests_in_one_directory_are_one_watch() {
    let tmp = tempfile::tempdir().expect("temp dir");
    let watcher = Watcher::new();
    watcher.start().expect("an instance");
    let notes = Arc::new(Notes::default());
    let listener: Arc<dyn Listener> = notes.clone();
    let first = watcher.watch(open(tmp.path()).as_fd(), &listener, 1, None).expect("a watch");
    let _second = watcher.watch(open(tmp.path()).as_fd(), &listener, 2, None).expect("a watch");
    assert_eq!(watcher.used(), 1);
    drop(first);
    fs::write(tmp.path().join("g"), "x").expect("write");
    assert!(watcher.barrier().await);
    assert!(notes.has(2, "g") && !notes.has(1, "g"));
    let only = watcher.watch(open(tmp.path()).as_fd(), &listener, 3, Some(b"h")).expect("a watch");
    for name in ["h", "i"] {
        fs::write(tmp.path().join(name), "x").expect("write");
    }
    assert!(watcher.barrier().await);
    assert!(notes.has(2, "h") && notes.has(2, "i"));
    assert!(notes.has(3, "h") && !notes.has(3, "i"));
    assert_eq!(watcher.used(), 1);
    drop(only);
    fs::write(tmp.path().join("j"), "x").expect("write");
    assert!(watcher.barrier().await);
    assert!(notes.has(2, "j") && !notes.has(3, "j"));
}
