//! Logs, metrics and traces for the operator's monitoring.

mod call_metrics;
mod journal;
mod log_queue;
pub mod logs;
mod metrics;
mod rate_limited_log;
mod root_health;
mod scrape_endpoint;
#[cfg(feature = "otlp")]
mod traces;
#[cfg(not(feature = "otlp"))]
#[path = "no_traces.rs"]
mod traces;

pub use call_metrics::{CallMetrics, CallMetricsService, RPC_METHODS};
pub use logs::LogHandle;
#[cfg(feature = "link")]
pub(crate) use metrics::MetricWriter;
pub use metrics::{Metrics, ScrapeCollector};
pub use rate_limited_log::RateLimitedLog;
pub use root_health::log_root_health;
pub use scrape_endpoint::ScrapeEndpoint;
