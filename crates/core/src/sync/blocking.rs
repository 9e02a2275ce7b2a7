//! Blocking work on other threads. The system may refuse a thread, for example in a container with a
//! small `pids.max`: clone(2). The work then waits for a thread of earlier work, and fails with an
//! error if there is none.
//!
//! The threads are those of the runtime. Its `spawn_blocking` panics if the system refuses the first
//! thread, and work that waits for a busy thread waits without a limit.

use super::Mutex;
use std::any::Any;
use std::future::pending;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use tokio::time::timeout;

/// Time after which work that waits for a thread of the runtime is offered to a new thread.
const OFFER_INTERVAL: Duration = Duration::from_millis(100);
/// Longest wait of work for a thread while no other work ends.
const MAX_START_WAIT: Duration = Duration::from_secs(2);
/// Time for which an idle thread of the runtime certainly still exists. tokio ends idle threads after
/// 10 s.
const POOL_IDLE_TIME: Duration = Duration::from_secs(9);
/// Shortest interval of log lines about refused threads.
const REPORT_INTERVAL: Duration = Duration::from_mins(1);

/// Limit of work in the queue of the runtime. Work that found no thread stays there without effect.
static QUEUE_SLOTS: Semaphore = Semaphore::const_new(1_024);
/// Limit of threads in addition to those of the runtime.
static EXTRA_THREADS: Semaphore = Semaphore::const_new(64);
static POOL_USE: Mutex<PoolUse> = Mutex::new(PoolUse {
    running: 0,
    last_end: None,
});
static LAST_REPORT: Mutex<Option<Instant>> = Mutex::new(None);

/// Reason why blocking work has no result.
#[derive(Debug, thiserror::Error)]
pub enum BlockingError {
    /// The work panicked.
    #[error("panicked: {0}")]
    Panicked(String),
    /// The work did not start, because the system refused a thread.
    #[error("no thread: {0}")]
    NoThread(io::Error),
}

/// Work that waits for a thread. The first thread takes it.
type WaitingWork = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// Use of the runtime's threads by work of this module.
struct PoolUse {
    running: usize,
    last_end: Option<Instant>,
}

/// Running work on a thread of the runtime.
struct RunningWork;

/// Runs work on a blocking thread. If the system refuses a thread, waits for a thread of other work,
/// and fails if none ends within 2 s. If the runtime shuts down before the work starts,
/// the returned future never ends.
pub async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, BlockingError> {
    let (sender, mut ended) = oneshot::channel();
    let waiting: WaitingWork = Arc::new(Mutex::new(Some(Box::new(move || {
        // Fails if no caller waits for the result.
        drop(sender.send(catch_unwind(AssertUnwindSafe(work))));
    }))));
    let created_at = tokio::time::Instant::now();
    let mut is_queued = enqueue(&waiting);

    loop {
        if let Ok(result) = timeout(OFFER_INTERVAL, &mut ended).await {
            return unwrap_result(result).await;
        }
        if waiting.lock().is_none() {
            // The work has started. It may take any time.
            return unwrap_result(ended.await).await;
        }
        // The runtime may have got a thread since.
        is_queued = is_queued || enqueue(&waiting);
        let Err(error) = start_thread(&waiting) else {
            continue;
        };
        report_refused_thread(&error);
        // Work in the queue gets its turn while other work ends.
        let is_starved = created_at.elapsed() >= MAX_START_WAIT && POOL_USE.lock().is_stalled();
        if is_starved && waiting.lock().take().is_some() {
            return Err(BlockingError::NoThread(error));
        }
    }
}

/// Returns the result of work. Never ends if the runtime dropped the work.
async fn unwrap_result<T>(
    result: Result<std::thread::Result<T>, RecvError>,
) -> Result<T, BlockingError> {
    match result {
        Ok(result) => result.map_err(|panic| BlockingError::Panicked(panic_text(&*panic))),
        Err(_) => pending().await,
    }
}

/// Logs that the system refused a thread: one line a minute for the whole process.
pub fn report_refused_thread(error: &io::Error) {
    let now = Instant::now();
    let mut last = LAST_REPORT.lock();
    if last.is_some_and(|last| now.duration_since(last) < REPORT_INTERVAL) {
        return;
    }
    *last = Some(now);
    drop(last);

    tracing::warn!(
        %error,
        "the system refuses a thread; work goes on with fewer threads, or is tried again; raise the \
         limit of threads (TasksMax= of a systemd unit, pids.max of a container, RLIMIT_NPROC of a \
         user)"
    );
}

/// Puts work into the queue of the runtime. Returns `false` if the queue is full, or if the system
/// refuses a thread and the runtime may have none.
fn enqueue(waiting: &WaitingWork) -> bool {
    let Ok(slot) = QUEUE_SLOTS.try_acquire() else {
        return false;
    };
    if !POOL_USE.lock().has_threads()
        && let Err(error) = try_thread()
    {
        report_refused_thread(&error);
        return false;
    }

    let waiting = waiting.clone();
    // The thread that was free may be gone.
    let queued = catch_unwind(AssertUnwindSafe(|| {
        drop(tokio::task::spawn_blocking(move || {
            drop(slot);
            POOL_USE.lock().running += 1;
            let _running = RunningWork;
            run_waiting(&waiting);
        }));
    }));
    if queued.is_err() {
        report_refused_thread(&io::Error::other("the runtime got no thread"));
    }
    // After a panic the queue has the work, too.
    true
}

/// Starts a thread that ends at once, to learn whether the system permits threads.
pub fn try_thread() -> io::Result<()> {
    let thread = Builder::new().spawn(|| {})?;
    // A thread that ended counts no longer.
    drop(thread.join());
    Ok(())
}

/// Offers work to a new thread.
fn start_thread(waiting: &WaitingWork) -> io::Result<()> {
    let slot = EXTRA_THREADS
        .try_acquire()
        .map_err(|_| io::Error::other("all threads are busy"))?;
    let waiting = waiting.clone();
    Builder::new()
        .spawn(move || {
            let _slot: SemaphorePermit<'static> = slot;
            run_waiting(&waiting);
        })
        .map(drop)
}

fn run_waiting(waiting: &WaitingWork) {
    // Released before the work runs.
    let work = waiting.lock().take();
    if let Some(work) = work {
        work();
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or(panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("unknown cause")
        .to_owned()
}

impl PoolUse {
    /// Whether the runtime certainly has a thread for blocking work.
    fn has_threads(&self) -> bool {
        self.running > 0
            || self
                .last_end
                .is_some_and(|end| end.elapsed() < POOL_IDLE_TIME)
    }

    /// Whether no work ended on a thread of the runtime for long.
    fn is_stalled(&self) -> bool {
        self.last_end
            .is_none_or(|end| end.elapsed() >= MAX_START_WAIT)
    }
}

impl Drop for RunningWork {
    fn drop(&mut self) {
        let mut pool = POOL_USE.lock();
        pool.running -= 1;
        pool.last_end = Some(Instant::now());
    }
}
