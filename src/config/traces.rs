//! The `traces` of a config file: where spans are sent, and of how many calls.

use super::section::{ConfigReader, ConfigSection};
use http::Uri;

/// The keys of `traces`.
pub(super) const KEYS: [&str; 2] = ["otlp", "ratio"];

/// Where spans are sent.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceConfig {
    /// An OTLP collector that takes gRPC: `http://HOST:PORT`.
    pub otlp: String,
    /// The port in it.
    pub port: u16,
    /// The part of the calls without a trace of their own that is traced, from 0 to 1.
    pub ratio: f64,
}

pub(super) fn read(
    section: &ConfigSection<'_>,
    checker: &mut ConfigReader<'_>,
) -> Option<TraceConfig> {
    let ratio = section.get("ratio").map(|item| checker.ratio(&item));
    let otlp = checker.required(section, "otlp")?;
    let (otlp, port) = checker.parsed(&otlp, collector)?;
    Some(TraceConfig { otlp, port, ratio: ratio.unwrap_or(Some(1.0))? })
}

fn collector(text: &str) -> Result<(String, u16), &'static str> {
    let uri: Option<Uri> = text.parse().ok();
    let bare =
        |uri: &Uri| uri.scheme_str() == Some("http") && uri.path() == "/" && uri.query().is_none();
    let port = uri.filter(bare).and_then(|uri| uri.port_u16());
    let port = port.ok_or("is not http://HOST:PORT of an OTLP collector")?;
    Ok((text.to_owned(), port))
}
