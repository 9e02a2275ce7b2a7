//! The `traces` of a config file: where spans are sent, and of how many calls.

use super::section::{Checker, Section};
use http::Uri;

/// The keys of `traces`.
pub(super) const KEYS: [&str; 2] = ["otlp", "ratio"];

/// Where spans are sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Traces {
    /// An OTLP collector that takes gRPC: `http://HOST:PORT`.
    pub otlp: String,
    /// The part of the calls without a trace of their own that is traced, from 0 to 1.
    pub ratio: f64,
}

pub(super) fn read(section: &Section<'_>, checker: &mut Checker<'_>) -> Option<Traces> {
    let ratio = section.get("ratio").map(|item| checker.share(&item));
    let otlp = checker.required(section, "otlp")?;
    let otlp = checker.parsed(&otlp, collector)?;
    Some(Traces { otlp, ratio: ratio.unwrap_or(Some(1.0))? })
}

fn collector(text: &str) -> Result<String, &'static str> {
    let uri: Option<Uri> = text.parse().ok();
    let good = uri.is_some_and(|uri| {
        let bare = uri.path() == "/" && uri.query().is_none();
        uri.scheme_str() == Some("http") && uri.port_u16().is_some() && bare
    });
    if good { Ok(text.to_owned()) } else { Err("is not http://HOST:PORT of an OTLP collector") }
}
