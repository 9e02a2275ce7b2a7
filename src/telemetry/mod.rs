//! What an operator's own systems see of a running daemon: logs, metrics, traces. Watches, and decides
//! nothing.

mod calls;
mod collect;
pub mod logs;
mod roots;
mod scrape;
#[cfg(feature = "otlp")]
mod traces;
#[cfg(not(feature = "otlp"))]
#[path = "no_traces.rs"]
mod traces;

pub use calls::{CallsLayer, Counted, METHODS};
pub use collect::Metrics;
pub use logs::Logs;
pub use roots::tell_of_roots;
