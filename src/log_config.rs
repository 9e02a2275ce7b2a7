//! Configuration of the log and of the export of spans.

use std::error::Error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Default filter.
pub const DEFAULT_FILTER: &str = "info";
/// Names of the formats.
pub const FORMATS: [&str; 3] = ["text", "json", "journald"];

/// Filter and format of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// Level or filter; see [`parse_filter`].
    pub filter: String,
    /// Format of log lines.
    pub format: LogFormat,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object a line.
    Json,
    /// Fields for the journal of systemd.
    Journald,
}

/// Collector of spans and ratio of traced calls.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceConfig {
    /// URL of an OTLP collector for gRPC: `http://HOST:PORT`.
    pub otlp: String,
    /// Port in the URL.
    pub port: u16,
    /// Ratio of the calls without a trace context that are traced, from 0 to 1.
    pub ratio: f64,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            filter: DEFAULT_FILTER.to_owned(),
            format: LogFormat::Text,
        }
    }
}

/// Checks a log filter. A single word must be a level: `EnvFilter` takes a misspelt level for the
/// name of a module, and then disables all other logs.
pub fn parse_filter(text: &str) -> Result<String, Box<dyn Error + Send + Sync>> {
    if !text.contains(['=', ',', '[']) {
        text.parse::<LevelFilter>()?;
    }
    EnvFilter::try_new(text)?;
    Ok(text.to_owned())
}

/// Parses the name of a format.
pub fn parse_format(text: &str) -> Result<LogFormat, &'static str> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        "journald" => Ok(LogFormat::Journald),
        _ => Err("expected text, json or journald"),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_filter;

    #[test]
    fn a_misspelt_level_is_invalid() {
        for good in ["info", "OFF", "caproot=debug,h2=warn", "warn,caproot=trace"] {
            assert_eq!(parse_filter(good).expect("a filter"), good);
        }
        for bad in ["inof", "caproot=loud", "caproot=debug,h2=wran"] {
            assert!(parse_filter(bad).is_err(), "{bad}");
        }
    }
}
