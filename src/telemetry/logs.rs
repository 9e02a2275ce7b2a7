//! Where log lines and spans go. Leaves what is logged, and when, to everybody else.

use super::traces::{self, SpanProvider};
use crate::config::{LogConfig, LogFormat, TraceConfig};
use std::io::{self, IsTerminal as _};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

/// The process's logs.
#[derive(Debug)]
pub struct LogHandle {
    filter: reload::Handle<EnvFilter, Registry>,
    span_provider: Option<SpanProvider>,
}

/// Begins to log, and to send spans if asked to; needs a runtime for these. A process has one log: a
/// second, as in a test, leaves the first in place.
pub fn init_logging(log: &LogConfig, traces: Option<&TraceConfig>) -> Result<LogHandle, String> {
    let (filter, handle) = reload::Layer::new(EnvFilter::new(&log.filter));
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match log.format {
        LogFormat::Text => {
            Box::new(fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal()))
        }
        LogFormat::Json => Box::new(fmt::layer().with_writer(io::stderr).with_ansi(false).json()),
        LogFormat::Journald => {
            let journal = tracing_journald::layer();
            let journal = journal.map_err(|error| {
                format!("there is no journal to log to: {error}; take log.format text or json")
            })?;
            // As systemd spells its own fields, without a prefix of the library's.
            Box::new(journal.with_field_prefix(Some("CAPROOT".to_owned())))
        }
    };
    let provider = traces.map(traces::build_span_provider).transpose()?;
    let spans = provider.as_ref().map(|provider| {
        let layer = traces::span_layer(provider);
        // Whatever is logged: spans of calls, and what is said within them.
        let calls =
            tracing_subscriber::filter::Targets::new().with_target("caproot", LevelFilter::INFO);
        layer.with_filter(calls)
    });
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(filter)).with(spans);
    let _ = subscriber.try_init();
    Ok(LogHandle { filter: handle, span_provider: provider })
}

impl LogHandle {
    /// Changes what is logged from now on.
    pub fn set_filter(&self, filter: &str) {
        if let Err(error) = self.filter.reload(EnvFilter::new(filter)) {
            tracing::warn!(%error, "the log filter could not be changed");
        }
    }

    /// Sends the last spans; call it once, off the runtime's own threads.
    pub fn flush_spans(&self) {
        if let Some(provider) = &self.span_provider {
            traces::flush_spans(provider);
        }
    }
}
