//! `caproot exec` while an author changes the script, or the program of an MCP server: by renames, by writes in
//! place, and by writes through a mapping. Only the version whose digest the caller names ever runs.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use crate::harness::HANG_TIMEOUT;
use crate::harness::process::run_command;
use crate::harness::shared_mapping::SharedMapping;

use super::{package_digest, publish, target_command};

/// Skill that is a plugin, too. Its server runs the script.
const TREE: &str = r#"
skill r/kit
file r/kit/.claude-plugin/plugin.json
| {"name": "kit", "mcpServers": {"go": {"command": "bash", "args": ["go.sh"]}}}
dir work
dir home
"#;
const TARGETS: [&[&str]; 2] = [&["skill://r/kit/go.sh"], &["--server", "skill://r/kit#go"]];

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
    fn start(path: PathBuf, change: fn(&PathBuf, &str)) -> Self {
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
async fn race(kind: &str, change: fn(&PathBuf, &str)) {
    for target in TARGETS {
        race_for(target, kind, change).await;
    }
}

async fn race_for(target: &[&str], kind: &str, change: fn(&PathBuf, &str)) {
    let (fixture, daemon) = publish(TREE).await;
    fixture.write("r/kit/go.sh", GOOD);
    let digest = package_digest(&daemon, "skill://r/kit").await;
    let author = RacingAuthor::start(fixture.path("r/kit/go.sh"), change);

    let (mut good, mut changed) = (0, 0);
    let deadline = Instant::now() + HANG_TIMEOUT;
    while (good < MIN_OUTCOMES || changed < MIN_OUTCOMES) && Instant::now() < deadline {
        let words = ["--digest", &digest];
        let output = run_command(target_command(&fixture, &daemon, target, &words)).await;
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
    println!("exec race of {target:?} by {kind}: {good} good, {changed} changed");
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
    let (fixture, daemon) = publish(TREE).await;
    fixture.write("r/kit/go.sh", GOOD);
    let digest = package_digest(&daemon, "skill://r/kit").await;
    let mut mapping = SharedMapping::new(&fixture.path("r/kit/go.sh"));
    let warm = target_command(&fixture, &daemon, TARGETS[0], &["--digest", &digest]);
    run_command(warm).await.succeeded();

    // The file's times stay, so the daemon lists the old digest until it reads the file.
    let expected = ["--digest", &digest];
    let cases: [(&str, &[&str], i32, &str); 4] = [
        (EVIL, &expected, 126, ""),
        (GOOD, &[], 0, "good\n"),
        (GOOD, &expected, 0, "good\n"),
        (EVIL, &expected, 126, ""),
    ];
    for (number, (content, words, code, text)) in cases.into_iter().enumerate() {
        mapping.write(content.as_bytes());
        for (target, kind) in TARGETS.into_iter().zip(["script", "server"]) {
            // No copy of an earlier run.
            let copies = fixture.path(&format!("home/{kind}{number}"));
            let mut command = target_command(&fixture, &daemon, target, words);
            command.arg("--copies").arg(copies);
            let output = run_command(command).await;
            assert_eq!(
                (output.code, output.text()),
                (Some(code), text),
                "{kind}: {}",
                output.stderr
            );
        }
    }
    drop(mapping);
    daemon.stop().await;
}
