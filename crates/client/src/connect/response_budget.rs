//! Memory of the responses of this process, from all daemons together. A response waits for its
//! part, so that many hostile daemons take no more memory than one.

use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Maximum size of one message. A page of caproot is under 1 MiB. A larger message fails its call
/// before it is received.
pub const MAX_MESSAGE_BYTES: usize = 4 << 20;
/// Maximum memory of one decoded message. The most costly skill that a daemon lists takes about
/// 17 MiB: 64 KiB of frontmatter with as many mappings as possible, and a sidecar of the same kind.
pub const MAX_MESSAGE_MEMORY: usize = 20 << 20;
/// Maximum memory of one list, and default of a mirror.
pub const MAX_LIST_MEMORY: usize = 256 << 20;
/// Maximum memory of the published roots of a daemon.
pub const MAX_ROOTS_MEMORY: usize = 4 << 20;
/// Maximum memory of the state of one root without its catalog.
pub const MAX_ROOT_STATE_MEMORY: usize = 16 << 10;
/// Size up to which a message is received without a part of the budget, such as an event of a stream
/// with several skills.
pub const SMALL_MESSAGE_BYTES: usize = 96 << 10;
/// How long receiving a large message may take, so that daemons that send slowly do not keep the
/// budget from others.
pub const RECEIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Window of a call and of a connection: the bytes that wait unread in the HTTP/2 connection.
pub const WINDOW_BYTES: u32 = 128 << 10;
/// Maximum size of the headers and of the trailers of a response, with the details of an error.
pub const MAX_HEADER_BYTES: u32 = 16 << 10;

/// Unit of the budget.
const UNIT_BYTES: usize = 1 << 10;
/// Bytes of all messages over `SMALL_MESSAGE_BYTES` that are being received.
const MAX_RECEIVED_BYTES: usize = 8 << 20;

static RECEIVED: Semaphore = Semaphore::const_new(MAX_RECEIVED_BYTES / UNIT_BYTES);
/// One message of the maximum size at a time, or many small ones.
static DECODED: Semaphore = Semaphore::const_new(MAX_MESSAGE_MEMORY / UNIT_BYTES);

/// Part of the budget. Dropping it returns the part.
pub type BudgetPermit = SemaphorePermit<'static>;

/// Decoded message, with the part of the budget that it takes.
#[derive(Debug)]
pub struct MeteredMessage<M> {
    pub message: M,
    /// Memory of the message.
    pub memory: usize,
    pub permit: BudgetPermit,
}

/// Waits for the part of a message that is received.
pub async fn acquire_received(bytes: usize) -> BudgetPermit {
    acquire(&RECEIVED, bytes).await
}

/// Waits for the part of a message that is decoded.
pub async fn acquire_decoded(bytes: usize) -> BudgetPermit {
    acquire(&DECODED, bytes).await
}

async fn acquire(budget: &'static Semaphore, bytes: usize) -> BudgetPermit {
    let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
    budget
        .acquire_many(units)
        .await
        .expect("the budget is never closed")
}
