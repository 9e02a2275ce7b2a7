//! What is logged, and in which form. Leaves logging to `cli`.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// What is logged unless somebody says otherwise.
pub const DEFAULT_FILTER: &str = "info";

/// How the daemon logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// A level or a filter that [`filter`] takes.
    pub filter: String,
    /// In which form.
    pub format: LogFormat,
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs: one JSON object a line.
    Json,
    /// The system's journal.
    Journald,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { filter: DEFAULT_FILTER.to_owned(), format: LogFormat::Text }
    }
}

/// Checks a log filter. A single word must be a level: the filter's own parser would take a
/// misspelt one for the name of a module, and silence everything else.
pub fn parse_filter(text: &str) -> Result<String, String> {
    if !text.contains(['=', ',', '[']) {
        text.parse::<LevelFilter>().map_err(|error| error.to_string())?;
    }
    EnvFilter::try_new(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

/// Reads the name of a form.
pub(super) fn parse_format(text: &str) -> Result<LogFormat, &'static str> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        "journald" => Ok(LogFormat::Journald),
        _ => Err("is none of text, json, journald"),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_filter;

    #[test]
    fn a_misspelt_level_is_refused() {
        for good in ["info", "OFF", "caproot=debug,h2=warn", "warn,caproot=trace"] {
            assert_eq!(parse_filter(good).as_deref(), Ok(good));
        }
        for bad in ["inof", "caproot=loud", "caproot=debug,h2=wran"] {
            assert!(parse_filter(bad).is_err(), "{bad}");
        }
    }
}
