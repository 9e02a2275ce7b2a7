//! Keys of the section `limits` of a config file, from the table of the limits.

use super::keys::{self, ConfigKey, KeyDefault, KeyValue};
use crate::daemon::model::Limits;
use crate::daemon::model::limits::{MAX_DIAGNOSTICS, limit_table};
use bytesize::ByteSize;
use caproot_core::document::{DocumentField, DocumentReader, DocumentSection, DocumentValue};
use caproot_core::proto;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

/// Comments of the limits in the protocol.
static COMMENTS: LazyLock<BTreeMap<String, String>> =
    LazyLock::new(|| proto::field_comments("Limits"));

/// Returns the meaning of a limit.
pub fn meaning(name: &str) -> &'static str {
    COMMENTS.get(name).map(String::as_str).unwrap_or_default()
}

/// Formats a limit as in a config file.
macro_rules! config_value {
    (Count, $value:expr) => {
        $value.to_string()
    };
    (Size, $value:expr) => {
        keys::format_size($value)
    };
}

/// Reads a limit within its bounds.
macro_rules! read_value {
    (Count, $reader:expr, $item:expr, $bounds:expr) => {
        $reader
            .count($item, $bounds)
            .map(|n| usize::try_from(n).unwrap_or(usize::MAX))
    };
    (Size, $reader:expr, $item:expr, $bounds:expr) => {
        size($reader, $item, $bounds)
    };
}

macro_rules! define_keys {
    (
        configurable {
            $($name:ident: $unit:ident = $default:expr, [$min:expr, $max:expr];)*
        }
        fixed $fixed:tt
    ) => {
        /// Keys of the section. The protocol uses the same names.
        pub const KEYS: [ConfigKey; [$(stringify!($name)),*].len()] = [$(
            ConfigKey::new(
                concat!("limits.", stringify!($name)),
                KeyValue::$unit { min: $min, max: $max },
                KeyDefault::Value(|| config_value!($unit, Limits::default().$name)),
                "",
            )
        ),*];

        fn read_values(section: &DocumentSection<'_>, reader: &mut DocumentReader<'_>) -> Limits {
            let mut limits = Limits::default();
            $(
                let item = section.get(stringify!($name));
                let value = item.and_then(|i| read_value!($unit, reader, &i, &($min..=$max)));
                limits.$name = value.unwrap_or(limits.$name);
            )*
            limits
        }
    };
}

limit_table!(define_keys);

/// Reads a size within bounds, as a number of bytes or with a unit, such as `256MiB`.
fn size(
    reader: &mut DocumentReader<'_>,
    item: &DocumentField<'_>,
    bounds: &RangeInclusive<u64>,
) -> Option<u64> {
    let [min, max] = [*bounds.start(), *bounds.end()].map(keys::format_size);
    let expected = format!("a size from {min} to {max}, such as 256MiB");
    reader.value(item, expected, |value| {
        let size = match value {
            DocumentValue::Number(text) => text.parse().ok(),
            DocumentValue::Text(text) => text.parse().map(|size: ByteSize| size.as_u64()).ok(),
            _ => None,
        };
        size.filter(|n| bounds.contains(n))
    })
}

/// Reads the limits. Absent keys have their defaults.
pub fn read(section: &DocumentSection<'_>, reader: &mut DocumentReader<'_>) -> Limits {
    let limits = read_values(section, reader);

    if limits.max_cached_roots < limits.max_roots {
        // One key is given, because the defaults fit.
        let mut keys = ["max_cached_roots", "max_roots"].into_iter();
        if let Some(item) = keys.find_map(|key| section.get(key)) {
            let roots = limits.max_roots;
            let reason = format!(
                "max_cached_roots, {}, must not be less than max_roots, {roots}: a request for {roots} roots \
                 could never complete",
                limits.max_cached_roots
            );
            reader.report_error(&item, reason);
        }
    }
    limits
}
