//! Minimum cost of a cold start: a parallel walk that only opens and reads the same files.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread::{available_parallelism, scope, yield_now};
use std::time::{Duration, Instant};

/// Opens and reads every SKILL.md, with one thread per processor.
pub(crate) fn walk(roots: &[PathBuf]) -> Duration {
    let began = Instant::now();
    let walk = Mutex::new(WalkState {
        pending: roots.to_vec(),
        busy: 0,
    });
    scope(|scope| {
        for _ in 0..available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| run_worker(&walk));
        }
    });
    began.elapsed()
}

struct WalkState {
    pending: Vec<PathBuf>,
    /// Threads that may still find directories.
    busy: usize,
}

fn run_worker(walk: &Mutex<WalkState>) {
    let walk = || walk.lock().unwrap_or_else(PoisonError::into_inner);
    let mut buffer = Vec::new();
    loop {
        let next = {
            let mut walk = walk();
            match walk.pending.pop() {
                None if walk.busy == 0 => return,
                None => None,
                dir => {
                    walk.busy += 1;
                    dir
                }
            }
        };
        let Some(dir) = next else {
            yield_now();
            continue;
        };
        let mut below = Vec::new();
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                below.push(entry.path());
            } else if entry.file_name() == "SKILL.md" {
                buffer.clear();
                // Unreadable files count for neither side.
                let file = fs::File::open(entry.path());
                let _ = file.and_then(|mut file| file.read_to_end(&mut buffer));
            }
        }
        let mut walk = walk();
        walk.pending.append(&mut below);
        walk.busy -= 1;
    }
}
