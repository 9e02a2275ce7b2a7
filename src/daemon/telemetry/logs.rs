//! Setup of logging and of the export of spans.

use super::journal::{self, JournalSocket};
use super::log_queue::{LogQueue, LogSink};
use super::traces::{self, SpanProvider};
use crate::log_config::{LogConfig, LogFormat, TraceConfig};
use caproot_core::text::{SentenceResult as _, escape_text};
use rustix::fs::fstat;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal as _};
use std::sync::OnceLock;
use std::time::Duration;
use tracing::Event;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

/// Logging of the process: changes the filter, and sends spans.
#[derive(Debug)]
pub struct LogHandle {
    filter: reload::Handle<EnvFilter, Registry>,
    span_provider: Option<SpanProvider>,
}

/// Queue of the global subscriber.
static LOG_QUEUE: OnceLock<LogQueue> = OnceLock::new();

/// Longest wait for the reader of the log at the end of the process.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Installs the global subscriber of log lines and, if configured, spans. From then on, panics are
/// lines of the log, too. The export of spans needs a tokio runtime. A second call in a process, as
/// in tests, keeps the first subscriber.
pub fn init_logging(log: &LogConfig, traces: Option<&TraceConfig>) -> Result<LogHandle, String> {
    let (filter, handle) = reload::Layer::new(log_filter(&log.filter));
    let queue = LogQueue::default();
    let sink = open_log_sink(log.format)?;
    let lines = log_line_layer(log.format, &queue);

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
    if subscriber.try_init().is_ok() {
        queue
            .start_writer(sink)
            .context("cannot start the thread of the log")?;
        LOG_QUEUE.get_or_init(|| queue);
        std::panic::set_hook(Box::new(log_panic));
    }
    Ok(LogHandle {
        filter: handle,
        span_provider: provider,
    })
}

/// Returns the filter of a configuration. The crate `notify` warns whenever a watched directory was removed, as at
/// each update of a mounted `ConfigMap`, so its lines need a directive of their own.
fn log_filter(configured: &str) -> EnvFilter {
    EnvFilter::new(format!("notify=off,{configured}"))
}

fn open_log_sink(format: LogFormat) -> Result<LogSink, String> {
    match format {
        LogFormat::Text => Ok(LogSink::TextStderr),
        LogFormat::Json => Ok(LogSink::JsonStderr),
        LogFormat::Journald => JournalSocket::open()
            .map(LogSink::Journal)
            .map_err(|error| {
                format!("cannot log to the journal: {error}; set log.format to text or json")
            }),
    }
}

/// Returns the layer that formats lines for a queue.
fn log_line_layer(format: LogFormat, queue: &LogQueue) -> Box<dyn Layer<Registry> + Send + Sync> {
    let layer = fmt::layer().with_writer(queue.clone());
    match format {
        // The journal reads the priority at the start of a line, and has the time.
        LogFormat::Text if is_stderr_journal() => {
            let format = JournalLineFormat(fmt::format().without_time());
            Box::new(layer.with_ansi(false).event_format(format))
        }
        LogFormat::Text => Box::new(layer.with_ansi(io::stderr().is_terminal())),
        LogFormat::Json => Box::new(layer.with_ansi(false).json()),
        LogFormat::Journald => {
            let layer = layer
                .with_ansi(false)
                .with_file(true)
                .with_line_number(true);
            Box::new(layer.json().with_current_span(false))
        }
    }
}

/// Whether stderr is a stream of the journal. A child may inherit the variable with another stderr:
/// systemd.exec(5).
fn is_stderr_journal() -> bool {
    let Some(stream) = std::env::var_os("JOURNAL_STREAM") else {
        return false;
    };
    fstat(io::stderr()).is_ok_and(|stat| *stream == *format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Format of a line of the journal's stream: the priority between angle brackets, as in
/// sd-daemon(3), and the text.
struct JournalLineFormat<F>(F);

impl<S, N, F> FormatEvent<S, N> for JournalLineFormat<F>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let level = event.metadata().level().as_str();
        write!(writer, "<{}>", journal::priority(level))?;
        self.0.format_event(context, writer, event)
    }
}

/// Logs a panic. The default hook writes to stderr itself, and would block if stderr is not read.
fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let message = escape_text(&panic.to_string());
    let backtrace = Backtrace::capture();
    let is_captured = backtrace.status() == BacktraceStatus::Captured;
    let backtrace = is_captured.then(|| tracing::field::display(backtrace));
    tracing::error!(backtrace, "{message}");
}

/// Waits until the log is written, at most for a short time. Returns whether the log is written, or
/// the process has no log.
#[must_use]
pub fn flush_log() -> bool {
    LOG_QUEUE
        .get()
        .is_none_or(|queue| queue.flush(FLUSH_TIMEOUT))
}

/// Returns how many lines of the log were dropped.
pub fn dropped_log_lines() -> u64 {
    LOG_QUEUE.get().map_or(0, LogQueue::dropped_lines)
}

impl LogHandle {
    /// Replaces the log filter.
    pub fn set_filter(&self, filter: &str) {
        if let Err(error) = self.filter.reload(log_filter(filter)) {
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
