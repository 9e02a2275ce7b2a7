//! Mailbox of an event loop: results of operations, and calls of Python functions. A byte in a socket
//! pair wakes the loop, and the loop's own thread takes everything that waits.

use crate::callback::{CallbackAnswer, CallbackError};
use crate::failure::Failure;
use crate::process_bound::ProcessBound;
use crate::reply::Reply;
use crate::runtime;
use caproot_core::sync::Mutex;
use futures_util::FutureExt as _;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::mem;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// Kinds of the tuples that [`Mailbox::take`] returns.
const DONE: u8 = 0;
const FAILED: u8 = 1;
const CALLBACK: u8 = 2;
const CANCELLED: u8 = 3;
const LOG: u8 = 4;

/// Outcome of an operation.
pub type Outcome = Result<Reply, Failure>;

/// Message to the event loop.
#[derive(Debug)]
pub enum Delivery {
    /// An operation has ended.
    Ended { operation: u64, outcome: Outcome },
    /// A Python function is called.
    Callback {
        call: u64,
        handler: u64,
        context: u64,
        payload: String,
    },
    /// The caller of a Python function stopped waiting.
    Cancelled { call: u64 },
}

/// State of a mailbox that the threads share.
#[derive(Debug)]
pub struct MailboxShared {
    state: Mutex<MailboxState>,
    next_callback: AtomicU64,
    wake_sender: UnixStream,
    wake_receiver: UnixStream,
}

#[derive(Debug, Default)]
struct MailboxState {
    waiting: Vec<Delivery>,
    /// Operations in flight, by the number that Python gave.
    operations: HashMap<u64, AbortHandle>,
    callbacks: HashMap<u64, oneshot::Sender<CallbackAnswer>>,
    is_closed: bool,
}

/// Mailbox of an event loop.
#[pyclass(frozen)]
pub struct Mailbox {
    shared: ProcessBound<Arc<MailboxShared>>,
}

impl MailboxShared {
    fn new() -> std::io::Result<Self> {
        let (wake_sender, wake_receiver) = UnixStream::pair()?;
        wake_sender.set_nonblocking(true)?;
        wake_receiver.set_nonblocking(true)?;
        Ok(Self {
            state: Mutex::default(),
            next_callback: AtomicU64::new(1),
            wake_sender,
            wake_receiver,
        })
    }

    /// Queues a message, and wakes the event loop unless others wait.
    pub fn push(&self, delivery: Delivery) {
        let is_first = {
            let mut state = self.state.lock();
            if state.is_closed {
                return;
            }
            if let Delivery::Ended { operation, .. } = &delivery {
                state.operations.remove(operation);
            }
            state.waiting.push(delivery);
            state.waiting.len() == 1
        };
        if is_first {
            self.wake();
        }
    }

    /// Makes the socket of the event loop readable.
    pub fn wake(&self) {
        // A full socket is readable already.
        let _ = (&self.wake_sender).write(&[0]);
    }

    /// Keeps the sender of an answer, and returns the number of the call. A closed mailbox drops the
    /// sender.
    pub fn add_callback(&self, answer: oneshot::Sender<CallbackAnswer>) -> u64 {
        let call = self.next_callback.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        if !state.is_closed {
            state.callbacks.insert(call, answer);
        }
        call
    }

    /// Forgets a call, and tells the event loop.
    pub fn cancel_callback(&self, call: u64) {
        let was_waiting = self.state.lock().callbacks.remove(&call).is_some();
        if was_waiting {
            self.push(Delivery::Cancelled { call });
        }
    }

    fn take_waiting(&self) -> Vec<Delivery> {
        let mut bytes = [0; 64];
        while (&self.wake_receiver)
            .read(&mut bytes)
            .is_ok_and(|count| count == bytes.len())
        {}
        mem::take(&mut self.state.lock().waiting)
    }

    fn close(&self) {
        let state = {
            let mut state = self.state.lock();
            let closed = MailboxState {
                is_closed: true,
                ..MailboxState::default()
            };
            mem::replace(&mut *state, closed)
        };
        for operation in state.operations.values() {
            operation.abort();
        }
    }

    /// Polls an operation once, and continues it on the runtime if it is not ready. A list of a
    /// mirror is ready at once, so it wakes no thread. Returns `None` if the operation goes on.
    pub fn operate<F>(self: &Arc<Self>, operation: u64, work: F) -> Result<Option<Reply>, Failure>
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let runtime = runtime::current()?;
        let _context = runtime.enter();
        let mut work: Pin<Box<dyn Future<Output = _> + Send>> =
            Box::pin(AssertUnwindSafe(work).catch_unwind());
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(outcome) = work.as_mut().poll(&mut context) {
            return outcome
                .unwrap_or_else(|_| Err(Failure::panicked()))
                .map(Some);
        }

        let mailbox = self.clone();
        // Locked until the handle is kept: the operation may end at once.
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(Failure::error("the event loop of the session has ended"));
        }
        let task = runtime.spawn(async move {
            let outcome = work.await.unwrap_or_else(|_| Err(Failure::panicked()));
            mailbox.push(Delivery::Ended { operation, outcome });
        });
        state.operations.insert(operation, task.abort_handle());
        Ok(None)
    }
}

impl Mailbox {
    /// Returns the state that the threads share.
    pub fn shared(&self) -> Result<Arc<MailboxShared>, Failure> {
        self.shared.get().cloned()
    }
}

#[pymethods]
impl Mailbox {
    #[new]
    fn new() -> PyResult<Self> {
        let shared = Arc::new(MailboxShared::new()?);
        runtime::logs()?.add_mailbox(&shared);
        Ok(Self {
            shared: ProcessBound::new(shared),
        })
    }

    /// Returns the descriptor that becomes readable when a message waits.
    fn fileno(&self) -> PyResult<i32> {
        Ok(self.shared.get()?.wake_receiver.as_raw_fd())
    }

    /// Takes the waiting messages as tuples: a kind, and the fields of the kind.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let shared = self.shared.get()?;
        let messages = PyList::empty(py);
        for delivery in shared.take_waiting() {
            messages.append(delivery.into_tuple(py)?)?;
        }
        for record in runtime::logs()?.take() {
            messages.append((LOG, record.level, record.message))?;
        }
        Ok(messages)
    }

    /// Answers a call of a Python function with a text. `kind` is 0 for a result, 1 for words that
    /// the caller may read, and 2 for a defect.
    fn answer(&self, call: u64, kind: u8, text: String) -> PyResult<()> {
        let sender = self.shared.get()?.state.lock().callbacks.remove(&call);
        let answer = match kind {
            0 => Ok(text),
            1 => Err(CallbackError::Failed(text)),
            _ => Err(CallbackError::Defect(text)),
        };
        if let Some(sender) = sender {
            // The caller may be gone.
            drop(sender.send(answer));
        }
        Ok(())
    }

    /// Aborts an operation.
    fn abort(&self, operation: u64) -> PyResult<()> {
        let handle = self
            .shared
            .get()?
            .state
            .lock()
            .operations
            .remove(&operation);
        if let Some(handle) = handle {
            handle.abort();
        }
        Ok(())
    }

    /// Aborts all operations, and ends the waits for Python functions.
    fn close(&self) -> PyResult<()> {
        self.shared.get()?.close();
        Ok(())
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        if let Ok(shared) = self.shared.get() {
            shared.close();
        }
    }
}

impl Delivery {
    fn into_tuple(self, py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        match self {
            Self::Ended {
                operation,
                outcome: Ok(reply),
            } => (DONE, operation, reply.into_object(py)?).into_pyobject(py),
            Self::Ended {
                operation,
                outcome: Err(failure),
            } => (FAILED, operation, failure.to_exception(py)?).into_pyobject(py),
            Self::Callback {
                call,
                handler,
                context,
                payload,
            } => (CALLBACK, call, handler, context, payload).into_pyobject(py),
            Self::Cancelled { call } => (CANCELLED, call).into_pyobject(py),
        }
    }
}
