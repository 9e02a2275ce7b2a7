//! Reads `traces` of a config file: the collector of spans and the ratio of traced calls.

use super::keys::KeyDefault::{Required, Value};
use super::keys::KeyValue::{Ratio, Text};
use super::keys::{ConfigKey, key_table};
use crate::log_config::TraceConfig;
use caproot_core::document::{DocumentReader, DocumentSection, DocumentValue};
use http::Uri;

// Keys of the section.
key_table!(
    KEYS,
    OTLP = ConfigKey::new(
        "traces.otlp",
        Text("`http://HOST:PORT`"),
        Required {
            example: "http://127.0.0.1:4317",
        },
        "Collector of the spans, by OTLP over gRPC.",
    ),
    RATIO = ConfigKey::new(
        "traces.ratio",
        Ratio,
        Value(|| "1".to_owned()),
        "Ratio of the calls that are traced. A caller that sends `traceparent` decides for its own \
         calls.",
    ),
);

pub fn read(section: &DocumentSection<'_>, reader: &mut DocumentReader<'_>) -> Option<TraceConfig> {
    // Both keys are read before an error of one returns, so that both errors are reported.
    let expected = "a number from 0 to 1, such as 0.1";
    let ratio = RATIO.field(section).map_or(Some(1.0), |item| {
        reader.value(&item, expected, |value| match value {
            DocumentValue::Number(text) => text.parse().ok().filter(|n| (0.0..=1.0).contains(n)),
            _ => None,
        })
    });
    let collector = OTLP.required(section, reader, parse_collector)?;
    Some(TraceConfig {
        ratio: ratio?,
        ..collector
    })
}

fn parse_collector(text: &str) -> Result<TraceConfig, &'static str> {
    const EXPECTED: &str = "expected http://HOST:PORT of an OTLP collector";
    let uri: Uri = text.parse().map_err(|_| EXPECTED)?;
    let is_bare = uri.scheme_str() == Some("http") && uri.path() == "/" && uri.query().is_none();
    let port = uri.port_u16().filter(|_| is_bare).ok_or(EXPECTED)?;
    Ok(TraceConfig {
        otlp: text.to_owned(),
        port,
        ratio: 1.0,
    })
}
