//! Reads `traces` of a config file: the collector of spans and the ratio of traced calls.

use super::keys::{ConfigKey, KeyDefault, KeyReload, KeyValue};
use crate::telemetry::TraceConfig;
use caproot_core::document::{DocumentField, DocumentReader, DocumentSection, DocumentValue};
use http::Uri;

/// Keys of the section.
pub const KEYS: [ConfigKey; 2] = [
    ConfigKey::new(
        "traces.otlp",
        KeyValue::Text("`http://HOST:PORT`"),
        KeyDefault::Required {
            example: "http://127.0.0.1:4317",
        },
        "Collector of the spans, by OTLP over gRPC.",
    )
    .with_reload(KeyReload::Section),
    ConfigKey::new(
        "traces.ratio",
        KeyValue::Ratio,
        KeyDefault::Value(|| "1".to_owned()),
        "Ratio of the calls that are traced. A caller that sends `traceparent` decides for its own \
         calls.",
    )
    .with_reload(KeyReload::Section),
];

pub fn read(section: &DocumentSection<'_>, reader: &mut DocumentReader<'_>) -> Option<TraceConfig> {
    let ratio = section.get("ratio").map(|item| ratio(&item, reader));
    let otlp = reader.required(section, "otlp")?;
    let (otlp, port) = reader.parsed(&otlp, collector)?;
    Some(TraceConfig {
        otlp,
        port,
        ratio: ratio.unwrap_or(Some(1.0))?,
    })
}

fn ratio(item: &DocumentField<'_>, reader: &mut DocumentReader<'_>) -> Option<f64> {
    reader.value(
        item,
        "a number from 0 to 1, such as 0.1",
        |value| match value {
            DocumentValue::Number(text) => text.parse().ok().filter(|n| (0.0..=1.0).contains(n)),
            _ => None,
        },
    )
}

fn collector(text: &str) -> Result<(String, u16), &'static str> {
    let uri: Option<Uri> = text.parse().ok();
    let bare =
        |uri: &Uri| uri.scheme_str() == Some("http") && uri.path() == "/" && uri.query().is_none();
    let port = uri.filter(bare).and_then(|uri| uri.port_u16());
    let port = port.ok_or("expected http://HOST:PORT of an OTLP collector")?;
    Ok((text.to_owned(), port))
}
