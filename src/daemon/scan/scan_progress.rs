//! Progress of a scan, to tell a long scan from a stuck scan, and a slow filesystem from a slow parser
//! and from a lack of processor time.

use super::file_problem::parse_problem;
use crate::daemon::model::{FileProblem, ResolvedPath};
use crate::daemon::parse::budget::parse_within_budget;
use caproot_core::sync::Mutex;
use rustix::thread::{Pid, gettid};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Processor time of the parser of one file after which a scan without progress stops the parser. All
/// files that are no attack take far less.
const MAX_PARSER_TIME: Duration = Duration::from_secs(1);

/// Longest time between two measurements that counts whole. They are half a second apart if the process
/// runs.
const MAX_MEASURED_GAP_MS: u64 = 1_000;

/// Time and number of the steps of a scan.
#[derive(Debug)]
pub struct ScanProgress {
    started_at: Instant,
    last_tick_ms: AtomicU64,
    last_measured_ms: AtomicU64,
    ticks: AtomicU64,
    is_cancelled: Arc<AtomicBool>,
    /// Threads that work for the scan.
    threads: Mutex<Vec<Pid>>,
    /// Files that the threads of the scan are parsing.
    parsed_files: Mutex<Vec<ParsedFile>>,
}

/// File that a thread is parsing.
#[derive(Debug)]
struct ParsedFile {
    path: ResolvedPath,
    thread: Pid,
    started_at: Instant,
    /// Processor time of the thread at the start of the file.
    time_at_start: Duration,
    /// Ends the parsing of the file if it took [`MAX_PARSER_TIME`].
    stop_if_slow: Arc<AtomicBool>,
}

/// Registration of a thread that works for a scan.
pub struct ScanThread<'a> {
    progress: &'a ScanProgress,
    thread: Pid,
}

impl Drop for ScanThread<'_> {
    fn drop(&mut self) {
        let mut threads = self.progress.threads.lock();
        if let Some(index) = threads.iter().position(|thread| *thread == self.thread) {
            threads.swap_remove(index);
        }
    }
}

/// State of a thread of this process.
struct ThreadState {
    /// Whether the thread computes, or waits for a processor.
    is_running: bool,
    /// In steps of 10 ms on nearly all machines.
    processor_time: Duration,
}

impl ThreadState {
    /// Reads the state; `None` if the thread ended or procfs cannot be read. Source: `proc_pid_stat(5)`.
    fn read(thread: Pid) -> Option<Self> {
        let path = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
        let text = std::fs::read(path).ok()?;
        // The name of the thread, which stands before the state, may contain any byte.
        let end = text.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(&text[end + 1..]).ok()?;
        let fields: Vec<_> = rest.split_ascii_whitespace().collect();
        let ticks: u64 = fields.get(11)?.parse().ok()?;
        let kernel_ticks: u64 = fields.get(12)?.parse().ok()?;
        let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);

        Some(Self {
            is_running: *fields.first()? == "R",
            processor_time: Duration::from_millis(
                (ticks + kernel_ticks).saturating_mul(1_000) / ticks_per_second,
            ),
        })
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
            last_measured_ms: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
            is_cancelled: Arc::default(),
            threads: Mutex::default(),
            parsed_files: Mutex::default(),
        }
    }

    pub(super) fn started_at(&self) -> Instant {
        self.started_at
    }

    /// Registers this thread as a thread of the scan until the value is dropped.
    pub fn register_thread(&self) -> ScanThread<'_> {
        let thread = gettid();
        self.threads.lock().push(thread);
        ScanThread {
            progress: self,
            thread,
        }
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.age().as_millis()).unwrap_or(u64::MAX)
    }

    fn record_progress(&self, at_ms: u64) {
        self.last_tick_ms.fetch_max(at_ms, Ordering::Relaxed);
    }

    pub(super) fn tick(&self) {
        self.record_progress(self.age_ms());
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

    /// Returns how long the scan did nothing but wait for the disk, or parse a slow file. A thread that
    /// computes, waits for a processor or has not started makes progress. A longer time between two
    /// measurements counts as `MAX_MEASURED_GAP_MS`, because the process did not run.
    #[must_use]
    pub fn measure_idle_time(&self) -> Duration {
        let now_ms = self.age_ms();
        let measured_ms = self.last_measured_ms.swap(now_ms, Ordering::Relaxed);
        let lost_ms = now_ms.saturating_sub(measured_ms + MAX_MEASURED_GAP_MS);
        let last_tick_ms = self.last_tick_ms.load(Ordering::Relaxed);
        self.record_progress(now_ms.min(last_tick_ms + lost_ms));

        let threads = self.threads.lock().clone();
        let mut states = threads
            .iter()
            .filter_map(|thread| ThreadState::read(*thread));
        let is_working = threads.is_empty() || states.any(|state| state.is_running);
        if is_working && self.slow_file().is_none() {
            self.record_progress(self.age_ms());
        }

        let idle_ms = now_ms.saturating_sub(self.last_tick_ms.load(Ordering::Relaxed));
        Duration::from_millis(idle_ms)
    }

    /// Parses a file within the budget of a file. Returns only a problem if the parsing was given up.
    pub(super) fn parse_file<T>(
        &self,
        path: &ResolvedPath,
        parse: impl FnOnce() -> (Option<T>, Vec<FileProblem>),
    ) -> (Option<T>, Vec<FileProblem>) {
        let stop_if_slow = Arc::<AtomicBool>::default();
        let time_at_start = thread_time();
        self.parsed_files.lock().push(ParsedFile {
            path: path.clone(),
            thread: gettid(),
            started_at: Instant::now(),
            time_at_start,
            stop_if_slow: stop_if_slow.clone(),
        });

        let is_cancelled = self.is_cancelled.clone();
        let is_asked = stop_if_slow.clone();
        let is_stopped = move || {
            let is_slow = || thread_time().saturating_sub(time_at_start) >= MAX_PARSER_TIME;
            is_cancelled.load(Ordering::Relaxed) || is_asked.load(Ordering::Relaxed) && is_slow()
        };
        let parsed = parse_within_budget(is_stopped, parse);

        self.parsed_files
            .lock()
            .retain(|file| !Arc::ptr_eq(&file.stop_if_slow, &stop_if_slow));
        parsed.unwrap_or_else(|aborted| (None, vec![parse_problem(aborted)]))
    }

    /// Returns a file whose parser took `MAX_PARSER_TIME`, if there is one.
    #[must_use]
    pub fn slow_file(&self) -> Option<ResolvedPath> {
        let files = self.parsed_files.lock();
        let slow = files.iter().find(|file| {
            // A parser that waits for a processor takes no time.
            let taken = match ThreadState::read(file.thread) {
                Some(state) => state.processor_time.saturating_sub(file.time_at_start),
                None => file.started_at.elapsed(),
            };
            taken >= MAX_PARSER_TIME
        });
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
    use crate::daemon::model::{DiagnosticCode, DynamicValue, FileProblem, ResolvedPath};
    use crate::daemon::parse::json;
    use caproot_core::wire::RelPath;
    use rustix::thread::Pid;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    fn path() -> ResolvedPath {
        ResolvedPath {
            dir_index: 0,
            rel_path: RelPath::root(),
        }
    }

    fn parse_json() -> (Option<DynamicValue>, Vec<FileProblem>) {
        (json::parse(b"[1]").ok(), Vec::new())
    }

    #[test]
    fn a_slow_file_is_named_and_stopped() {
        let progress = ScanProgress::new();
        let parsed = progress.parse_file(&path(), || {
            assert_eq!(progress.slow_file(), None);
            progress.stop_slow_parsers();
            assert!(json::parse(b"[1]").is_ok(), "the parser took no time yet");
            let started_at = thread_time();
            // The time of another thread is known in steps.
            let until = MAX_PARSER_TIME + Duration::from_millis(50);
            while thread_time().saturating_sub(started_at) < until {
                let _ = json::parse(b"[1]");
            }
            assert_eq!(progress.slow_file(), Some(path()));
            parse_json()
        });
        assert_eq!(parsed.0, None, "stopped");
        assert_eq!(parsed.1[0].code, DiagnosticCode::LimitReached);
        assert_eq!(progress.slow_file(), None);
        let parsed = progress.parse_file(&path(), parse_json);
        assert_eq!(parsed.1, [], "other files are parsed");
    }

    #[test]
    fn only_a_wait_for_the_disk_is_idle() {
        let progress = &ScanProgress::new();
        let is_waiting = &AtomicBool::new(false);
        let (to_thread, in_thread) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let _registered = progress.register_thread();
                is_waiting.store(true, Ordering::Relaxed);
                let _ = in_thread.recv();
                is_waiting.store(false, Ordering::Relaxed);
                while !progress.is_cancelled() {
                    std::hint::spin_loop();
                }
            });

            // A thread that waits makes no progress.
            while !is_waiting.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            while progress.measure_idle_time() < Duration::from_millis(50) {
                std::thread::yield_now();
            }

            // A thread that computes makes progress without a step.
            drop(to_thread);
            while is_waiting.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(20));
            let begun_ms = progress.started_at.elapsed().as_millis();
            let _ = progress.measure_idle_time();
            let last_ms = progress.last_tick_ms.load(Ordering::Relaxed);
            assert!(u128::from(last_ms) >= begun_ms, "{last_ms} {begun_ms}");
            progress.cancel();
        });
        assert!(progress.threads.lock().is_empty());
    }

    #[test]
    fn a_time_in_which_the_process_does_not_run_is_not_idle() {
        let before = Instant::now().checked_sub(Duration::from_secs(20));
        let progress = ScanProgress::starting_at(before.expect("the machine runs for longer"));
        progress.threads.lock().push(Pid::INIT);
        let idle_time = progress.measure_idle_time();
        assert!(idle_time <= Duration::from_secs(2), "{idle_time:?}");
        let again = progress.measure_idle_time();
        assert!(again >= idle_time, "{again:?}");
    }

    #[test]
    fn a_cancelled_scan_parses_no_file() {
        let progress = ScanProgress::new();
        let during = progress.parse_file(&path(), || {
            progress.cancel();
            parse_json()
        });
        let after = progress.parse_file(&path(), parse_json);
        assert!(during.0.is_none() && after.0.is_none());
    }
}
