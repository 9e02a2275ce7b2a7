//! Progress of a scan, to tell a long scan from a stuck scan, and a slow filesystem from a slow parser.

use super::file_problem::parse_problem;
use crate::model::{FileProblem, ResolvedPath};
use crate::parse::budget::parse_within_budget;
use caproot_core::sync::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Processor time of the parser of one file after which a scan without progress stops the parser. All
/// files that are no attack take far less.
const MAX_PARSER_TIME: Duration = Duration::from_secs(1);

/// Time and number of the steps of a scan.
#[derive(Debug)]
pub struct ScanProgress {
    started_at: Instant,
    last_tick_ms: AtomicU64,
    ticks: AtomicU64,
    is_cancelled: Arc<AtomicBool>,
    /// Files that the threads of the scan are parsing.
    parsed_files: Mutex<Vec<ParsedFile>>,
}

/// File that a thread is parsing.
#[derive(Debug)]
struct ParsedFile {
    path: ResolvedPath,
    started_at: Instant,
    /// Ends the parsing of the file if it took [`MAX_PARSER_TIME`].
    stop_if_slow: Arc<AtomicBool>,
}

/// Reasons to stop the parser of this thread.
struct ParserStop {
    is_cancelled: Arc<AtomicBool>,
    stop_if_slow: Arc<AtomicBool>,
    /// Processor time of the thread at the start of the file.
    time_at_start: Duration,
}

impl ParserStop {
    fn is_requested(&self) -> bool {
        if self.is_cancelled.load(Ordering::Relaxed) {
            return true;
        }
        self.stop_if_slow.load(Ordering::Relaxed)
            && thread_time().saturating_sub(self.time_at_start) >= MAX_PARSER_TIME
    }
}

impl ScanProgress {
    /// Starts with the current time.
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at(Instant::now())
    }

    /// Starts at a time of the caller's clock.
    #[must_use]
    pub fn starting_at(started_at: Instant) -> Self {
        Self {
            started_at,
            last_tick_ms: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
            is_cancelled: Arc::default(),
            parsed_files: Mutex::default(),
        }
    }

    pub(super) fn started_at(&self) -> Instant {
        self.started_at
    }

    pub(super) fn tick(&self) {
        let ms = u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_tick_ms.fetch_max(ms, Ordering::Relaxed);
        self.ticks.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of directories that were listed.
    #[must_use]
    pub fn dirs_visited(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// Time since the start of the scan.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Time since the last step.
    #[must_use]
    pub fn idle_time(&self) -> Duration {
        let last = Duration::from_millis(self.last_tick_ms.load(Ordering::Relaxed));
        self.started_at.elapsed().saturating_sub(last)
    }

    /// Parses a file within the budget of a file. Returns a problem if the parsing was given up.
    pub(super) fn parse_file<T>(
        &self,
        path: &ResolvedPath,
        parse: impl FnOnce() -> T,
    ) -> Result<T, FileProblem> {
        let stop_if_slow = Arc::<AtomicBool>::default();
        self.parsed_files.lock().push(ParsedFile {
            path: path.clone(),
            started_at: Instant::now(),
            stop_if_slow: stop_if_slow.clone(),
        });

        let stop = ParserStop {
            is_cancelled: self.is_cancelled.clone(),
            stop_if_slow: stop_if_slow.clone(),
            time_at_start: thread_time(),
        };
        let parsed = parse_within_budget(move || stop.is_requested(), parse);

        self.parsed_files
            .lock()
            .retain(|file| !Arc::ptr_eq(&file.stop_if_slow, &stop_if_slow));
        parsed.map_err(parse_problem)
    }

    /// Returns a file whose parsing takes longer than `duration`, if there is one.
    #[must_use]
    pub fn slow_file(&self, duration: Duration) -> Option<ResolvedPath> {
        let files = self.parsed_files.lock();
        let slow = files
            .iter()
            .find(|file| file.started_at.elapsed() > duration);
        slow.map(|file| file.path.clone())
    }

    /// Stops each parser in flight that took, or is going to take, `MAX_PARSER_TIME`. The scan
    /// continues without the file. A parser that only waits for a processor is not stopped.
    pub fn stop_slow_parsers(&self) {
        for file in &*self.parsed_files.lock() {
            file.stop_if_slow.store(true, Ordering::Relaxed);
        }
    }

    /// Ends the scan soon. Its result is incomplete, and must not be published.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }
}

/// Returns the processor time that this thread took.
fn thread_time() -> Duration {
    // A clock that Linux has does not fail, and does not go below zero.
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

impl Default for ScanProgress {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_PARSER_TIME, ScanProgress, thread_time};
    use crate::model::{DiagnosticCode, ResolvedPath};
    use crate::parse::json;
    use caproot_core::wire::RelPath;
    use std::time::Duration;

    fn path() -> ResolvedPath {
        ResolvedPath {
            dir_index: 0,
            rel_path: RelPath::root(),
        }
    }

    #[test]
    fn a_slow_file_is_named_and_stopped() {
        let progress = ScanProgress::new();
        let parsed = progress.parse_file(&path(), || {
            assert_eq!(progress.slow_file(Duration::MAX), None);
            assert_eq!(progress.slow_file(Duration::ZERO), Some(path()));
            progress.stop_slow_parsers();
            assert!(json::parse(b"[1]").is_ok(), "the parser took no time yet");
            let started_at = thread_time();
            while thread_time().saturating_sub(started_at) < MAX_PARSER_TIME {
                let _ = json::parse(b"[1]");
            }
            json::parse(b"[1]").is_ok()
        });
        let problem = parsed.expect_err("stopped");
        assert_eq!(problem.code, DiagnosticCode::LimitReached);
        assert_eq!(progress.slow_file(Duration::ZERO), None);
        let parsed = progress.parse_file(&path(), || json::parse(b"[1]").is_ok());
        assert_eq!(parsed, Ok(true), "other files are parsed");
    }

    #[test]
    fn a_cancelled_scan_parses_no_file() {
        let progress = ScanProgress::new();
        let during = progress.parse_file(&path(), || {
            progress.cancel();
            json::parse(b"[1]").is_ok()
        });
        let after = progress.parse_file(&path(), || json::parse(b"[1]").is_ok());
        assert!(during.is_err() && after.is_err());
    }
}
