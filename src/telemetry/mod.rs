//! What an operator's own systems see of a running daemon: logs, metrics, traces. Watches, and decides
//! nothing.

mod call_metrics;
pub mod logs;
mod metrics;
mod root_health;
mod scrape;
#[cfg(feature = "otlp")]
mod traces;
#[cfg(not(feature = "otlp"))]
#[path = "no_traces.rs"]
mod traces;

pub use call_metrics::{CallMetricsLayer, CallMetricsService, RPC_METHODS};
pub use logs::LogHandle;
pub use metrics::Metrics;
pub use root_health::log_root_health;
