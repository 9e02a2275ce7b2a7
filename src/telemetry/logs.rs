//! Setup of logging and of the export of spans.

use super::log_config::{LogConfig, LogFormat, TraceConfig};
use super::traces::{self, SpanProvider};
use std::io::{self, IsTerminal as _};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

/// Logging of the process: changes the filter, and sends spans.
#[derive(Debug)]
pub struct LogHandle {
    filter: reload::Handle<EnvFilter, Registry>,
    span_provider: Option<SpanProvider>,
}

/// Installs the global subscriber of log lines and, if configured, spans. The export of spans needs
/// a tokio runtime. A second call in a process, as in tests, keeps the first subscriber.
pub fn init_logging(log: &LogConfig, traces: Option<&TraceConfig>) -> Result<LogHandle, String> {
    let (filter, handle) = reload::Layer::new(EnvFilter::new(&log.filter));
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match log.format {
        LogFormat::Text => Box::new(
            fmt::layer()
                .with_writer(io::stderr)
                .with_ansi(io::stderr().is_terminal()),
        ),
        LogFormat::Json => Box::new(fmt::layer().with_writer(io::stderr).with_ansi(false).json()),
        LogFormat::Journald => {
            let journal = tracing_journald::layer();
            let journal = journal.map_err(|error| {
                format!("cannot log to the journal: {error}; set log.format to text or json")
            })?;
            // The default prefix of the library is `F`.
            Box::new(journal.with_field_prefix(Some("CAPROOT".to_owned())))
        }
    };
    let provider = traces.map(traces::build_span_provider).transpose()?;
    let spans = provider.as_ref().map(|provider| {
        let layer = traces::span_layer(provider);
        // The export of calls and their events does not depend on the log filter.
        let calls =
            tracing_subscriber::filter::Targets::new().with_target("caproot", LevelFilter::INFO);
        layer.with_filter(calls)
    });
    let subscriber = tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .with(spans);
    let _ = subscriber.try_init();
    Ok(LogHandle {
        filter: handle,
        span_provider: provider,
    })
}

impl LogHandle {
    /// Replaces the log filter.
    pub fn set_filter(&self, filter: &str) {
        if let Err(error) = self.filter.reload(EnvFilter::new(filter)) {
            tracing::warn!(%error, "cannot change the log filter");
        }
    }

    /// Sends the remaining spans. Blocks: call it once, on a thread outside the runtime.
    pub fn flush_spans(&self) {
        if let Some(provider) = &self.span_provider {
            traces::flush_spans(provider);
        }
    }
}
