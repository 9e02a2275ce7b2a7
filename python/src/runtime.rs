//! Runtimes of this process and its ancestors. Each process has its own runtime with one thread,
//! which starts when the process first needs it.

use crate::failure::Failure;
use crate::logs::LogQueue;
use std::process;
use std::sync::OnceLock;
use tokio::runtime::{Builder, Runtime};

/// Runtime of one process.
struct ProcessRuntime {
    pid: u32,
    runtime: Runtime,
    logs: LogQueue,
    /// Runtime of a child, in the memory of the child.
    next: OnceLock<&'static Self>,
}

static FIRST: OnceLock<&'static ProcessRuntime> = OnceLock::new();

/// Returns the runtime of this process.
pub fn current() -> Result<&'static Runtime, Failure> {
    Ok(&find_or_start()?.runtime)
}

/// Returns the log queue of this process.
pub fn logs() -> Result<&'static LogQueue, Failure> {
    Ok(&find_or_start()?.logs)
}

/// Returns the log queue of this process, if its runtime has started.
pub fn started_logs() -> Option<&'static LogQueue> {
    let mut slot = &FIRST;
    loop {
        let process = slot.get()?;
        if process.pid == process::id() {
            return Some(&process.logs);
        }
        slot = &process.next;
    }
}

/// Takes no lock that a fork could leave locked: a thread that forks holds the interpreter's lock,
/// as every caller of this function does.
fn find_or_start() -> Result<&'static ProcessRuntime, Failure> {
    let mut slot = &FIRST;
    loop {
        let process = if let Some(process) = slot.get() {
            process
        } else {
            let started = ProcessRuntime::start()?;
            slot.get_or_init(|| Box::leak(Box::new(started)))
        };
        if process.pid == process::id() {
            return Ok(process);
        }
        slot = &process.next;
    }
}

impl ProcessRuntime {
    fn start() -> Result<Self, Failure> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("caproot")
            .enable_all()
            .build();
        let runtime = runtime
            .map_err(|error| Failure::error(format!("the runtime cannot start: {error}")))?;
        Ok(Self {
            pid: process::id(),
            runtime,
            logs: LogQueue::default(),
            next: OnceLock::new(),
        })
    }
}
