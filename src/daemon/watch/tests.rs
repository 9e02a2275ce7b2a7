//! Tests of the watcher on real directories.

use super::{FaultInjector, InotifyWatcher, WatchListener};
use caproot_core::sync::Mutex;
use std::fs;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;

/// Records the token and name of each event.
#[derive(Debug, Default)]
struct RecordingListener(Mutex<Vec<(u64, Option<Vec<u8>>)>>);

impl WatchListener for RecordingListener {
    fn on_dir_changed(&self, token: u64, name: Option<&[u8]>, _: bool) {
        self.0.lock().push((token, name.map(<[u8]>::to_vec)));
    }

    fn on_mounts_changed(&self, _: &[Box<[u8]>]) {}

    fn on_events_lost(&self) {
        self.on_dir_changed(u64::MAX, None, false);
    }
}

impl RecordingListener {
    fn has_event(&self, token: u64, name: &str) -> bool {
        let events = self.0.lock();
        events
            .iter()
            .any(|(t, n)| *t == token && n.as_deref() == Some(name.as_bytes()))
    }
}

fn open_dir(path: &Path) -> File {
    File::open(path).expect("a directory")
}

#[tokio::test]
async fn barrier_waits_for_earlier_events() {
    let tmp = tempfile::tempdir().expect("temp dir");
    let watcher = InotifyWatcher::new(FaultInjector::default());
    watcher.start().expect("an instance");
    let recorder = Arc::new(RecordingListener::default());
    let listener: Arc<dyn WatchListener> = recorder.clone();
    let watch = watcher
        .watch_dir(open_dir(tmp.path()).as_fd(), &listener, 7, &[])
        .expect("a watch");
    for n in 0..200 {
        let name = format!("f{n}");
        fs::write(tmp.path().join(&name), "x").expect("write");
        assert!(watcher.barrier().await);
        assert!(recorder.has_event(7, &name), "{name}");
    }
    drop(watch);
    assert_eq!(watcher.watch_count(), 0);
}

#[tokio::test]
async fn reads_cause_no_events() {
    let tmp = tempfile::tempdir().expect("temp dir");
    fs::write(tmp.path().join("f"), "x").expect("write");
    let watcher = InotifyWatcher::new(FaultInjector::default());
    watcher.start().expect("an instance");
    let recorder = Arc::new(RecordingListener::default());
    let listener: Arc<dyn WatchListener> = recorder.clone();
    let _watch = watcher
        .watch_dir(open_dir(tmp.path()).as_fd(), &listener, 1, &[])
        .expect("a watch");
    assert_eq!(fs::read(tmp.path().join("f")).expect("read"), b"x");
    assert_eq!(fs::read_dir(tmp.path()).expect("list").count(), 1);
    assert!(watcher.barrier().await);
    assert!(recorder.0.lock().is_empty());
}

#[tokio::test]
async fn two_interests_in_one_directory_are_one_watch() {
    let tmp = tempfile::tempdir().expect("temp dir");
    let watcher = InotifyWatcher::new(FaultInjector::default());
    watcher.start().expect("an instance");
    let recorder = Arc::new(RecordingListener::default());
    let listener: Arc<dyn WatchListener> = recorder.clone();
    let first = watcher
        .watch_dir(open_dir(tmp.path()).as_fd(), &listener, 1, &[])
        .expect("a watch");
    let _second = watcher
        .watch_dir(open_dir(tmp.path()).as_fd(), &listener, 2, &[])
        .expect("a watch");
    assert_eq!(watcher.watch_count(), 1);
    drop(first);
    fs::write(tmp.path().join("g"), "x").expect("write");
    assert!(watcher.barrier().await);
    assert!(recorder.has_event(2, "g") && !recorder.has_event(1, "g"));
    let only = watcher
        .watch_dir(open_dir(tmp.path()).as_fd(), &listener, 3, &[b"h", b"k"])
        .expect("a watch");
    for name in ["h", "i", "k"] {
        fs::write(tmp.path().join(name), "x").expect("write");
    }
    assert!(watcher.barrier().await);
    assert!(recorder.has_event(2, "h") && recorder.has_event(2, "i"));
    assert!(recorder.has_event(3, "h") && recorder.has_event(3, "k"));
    assert!(!recorder.has_event(3, "i"));
    assert_eq!(watcher.watch_count(), 1);
    drop(only);
    fs::write(tmp.path().join("j"), "x").expect("write");
    assert!(watcher.barrier().await);
    assert!(recorder.has_event(2, "j") && !recorder.has_event(3, "j"));
}
