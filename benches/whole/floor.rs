//! The least that a cold start can cost: a parallel walk that only opens and reads the same files.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread::{available_parallelism, scope, yield_now};
use std::time::{Duration, Instant};

/// Opens and reads every SKILL.md, on as many threads as there are processors.
pub(crate) fn walk(roots: &[PathBuf]) -> Duration {
    let began = Instant::now();
    let walk = Mutex::new(Walk { pending: roots.to_vec(), busy: 0 });
    scope(|scope| {
        for _ in 0..available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| work(&walk));
        }
    });
    began.elapsed()
}

struct Walk {
    pending: Vec<PathBuf>,
    /// Threads that may find more.
    busy: usize,
}

fn work(walk: &Mutex<Walk>) {
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
                // What cannot be read is nothing to either side.
                let file = fs::File::open(entry.path());
                let _ = file.and_then(|mut file| file.read_to_end(&mut buffer));
            }
        }
        let mut walk = walk();
        walk.pending.append(&mut below);
        walk.busy -= 1;
    }
}
