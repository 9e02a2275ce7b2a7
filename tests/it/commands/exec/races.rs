//! `caproot exec` while an author changes the script: by renames, by writes in place, and by writes
//! through a mapping. Only the version whose digest the caller names ever runs.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use crate::harness::HANG_TIMEOUT;
use crate::harness::shared_mapping::SharedMapping;

use super::{exec, publish, skill_digest};

/// Two versions of the script with the same size. Both check themselves for a mixture of versions.
const GOOD: &str = "echo good # good\n";
const EVIL: &str = "echo evil # evil\n";
/// Runs with each outcome that a race needs.
const MIN_OUTCOMES: usize = 2;

/// Author that changes the script until the value is dropped.
struct RacingAuthor {
    is_stopped: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl RacingAuthor {
    fn start(path: PathBuf, mut change: impl FnMut(&PathBuf, &str) + Send + 'static) -> Self {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stop = is_stopped.clone();
        let thread = thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for text in [EVIL, GOOD] {
                    change(&path, text);
                    // Each version stays for a while, so that a run can meet one version only.
                    thread::park_timeout(std::time::Duration::from_millis(15));
                }
            }
        });
        Self {
            is_stopped,
            thread: Some(thread),
        }
    }
}

impl Drop for RacingAuthor {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(thread::JoinHandle::join);
        assert!(ended.is_some_and(|ended| ended.is_ok()) || thread::panicking());
    }
}

/// Runs the script with the digest of the good version until both outcomes came.
async fn race(kind: &str, change: impl FnMut(&PathBuf, &str) + Send + 'static) {
    let (fixture, daemon) = publish("skill r/kit\ndir work\ndir home").await;
    fixture.write("r/kit/go.sh", GOOD);
    let digest = skill_digest(&daemon).await;
    let author = RacingAuthor::start(fixture.path("r/kit/go.sh"), change);

    let (mut good, mut changed) = (0, 0);
    let deadline = Instant::now() + HANG_TIMEOUT;
    while (good < MIN_OUTCOMES || changed < MIN_OUTCOMES) && Instant::now() < deadline {
        let output = exec(&fixture, &daemon, "go.sh", &["--digest", &digest]).await;
        match output.code {
            Some(0) => {
                assert_eq!(output.text(), "good\n", "{kind}");
                good += 1;
            }
            Some(126) => {
                assert_eq!(output.text(), "", "{kind}");
                changed += 1;
            }
            other => panic!("{kind}: {other:?}: {}", output.stderr),
        }
    }
    println!("exec race by {kind}: {good} good, {changed} changed");
    assert!(
        good >= MIN_OUTCOMES && changed >= MIN_OUTCOMES,
        "{kind}: no race"
    );
    drop(author);
    daemon.stop().await;
}

#[tokio::test]
async fn a_renamed_script_never_runs_in_place_of_the_expected_one() {
    race("renames", |path, text| {
        let new = path.with_extension("new");
        fs::write(&new, text).expect("a new file");
        fs::rename(&new, path).expect("a rename");
    })
    .await;
}

#[tokio::test]
async fn a_script_that_is_written_in_place_never_runs_in_part() {
    race("writes in place", |path, text| {
        fs::write(path, text).expect("a write");
    })
    .await;
}

#[tokio::test]
async fn a_script_that_is_written_through_a_mapping_never_runs() {
    let (fixture, daemon) = publish("skill r/kit\ndir work\ndir home").await;
    fixture.write("r/kit/go.sh", GOOD);
    let digest = skill_digest(&daemon).await;
    let mut mapping = SharedMapping::new(&fixture.path("r/kit/go.sh"));
    exec(&fixture, &daemon, "go.sh", &["--digest", &digest])
        .await
        .succeeded();

    // The file's times stay, so the daemon lists the old digest until it reads the file.
    let expected = ["--digest", &digest];
    let cases: [(&str, &[&str], i32, &str); 4] = [
        (EVIL, &expected, 126, ""),
        (GOOD, &[], 0, "good\n"),
        (GOOD, &expected, 0, "good\n"),
        (EVIL, &expected, 126, ""),
    ];
    for (content, words, code, text) in cases {
        mapping.write(content.as_bytes());
        fs::remove_dir_all(fixture.path("home/.cache")).expect("no copy");
        let output = exec(&fixture, &daemon, "go.sh", words).await;
        assert_eq!(
            (output.code, output.text()),
            (Some(code), text),
            "{}",
            output.stderr
        );
    }
    drop(mapping);
    daemon.stop().await;
}
