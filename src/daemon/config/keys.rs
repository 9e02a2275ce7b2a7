//! Keys of a config file: name, type, default, meaning and the effect of a reload. The loader, the
//! example file and the reference all read these tables.

use super::limits;
use caproot_core::document::{DocumentField, DocumentReader, DocumentSection};
use humantime::format_duration;
use std::fmt::Display;
use std::hash::Hash;
use std::time::Duration;

/// Defines keys and their table, in the order of the example file. The name of a key is written once,
/// here: readers name the constant.
macro_rules! key_table {
    ($table:ident, $($key:ident = $value:expr),+ $(,)?) => {
        $(pub const $key: $crate::daemon::config::keys::ConfigKey = $value;)+

        pub const $table: [$crate::daemon::config::keys::ConfigKey; [$(stringify!($key)),+].len()] =
            [$($key),+];
    };
}
pub(super) use key_table;

/// Key of a config file.
#[derive(Debug, Clone, Copy)]
pub struct ConfigKey {
    /// Name with its section, such as `limits.max_depth`. Keys of list items have `[]`, as in
    /// `roots[].id`.
    pub path: &'static str,
    pub value: KeyValue,
    pub default: KeyDefault,
    /// Effect of a reload that changes the key. `None` is the effect of its section, which is a restart
    /// by default.
    pub reload: Option<&'static str>,
    /// Flag of `caproot serve` that replaces the value.
    pub flag: Option<&'static str>,
    /// Sentences in Markdown. Empty for a limit, which the comment of its field in the protocol
    /// describes.
    meaning: &'static str,
}

/// Type and range of a value.
#[derive(Debug, Clone, Copy)]
pub enum KeyValue {
    Boolean,
    /// Text, with a description of the accepted texts.
    Text(&'static str),
    /// List, with a description of the accepted items.
    List(&'static str),
    Choice(&'static [&'static str]),
    /// Whole number within bounds.
    Count {
        min: u64,
        max: u64,
    },
    /// Size in bytes within bounds.
    Size {
        min: u64,
        max: u64,
    },
    /// Number from 0 to 1.
    Ratio,
    /// Duration from 0.
    Duration {
        max: Duration,
    },
    Section(&'static [ConfigKey]),
    /// List of sections. An item has either the key `alternative` or the others.
    SectionList {
        keys: &'static [ConfigKey],
        alternative: Option<&'static ConfigKey>,
    },
}

/// Value of a key that is absent.
#[derive(Debug, Clone, Copy)]
pub enum KeyDefault {
    /// Fixed value in YAML.
    Value(fn() -> String),
    /// No fixed value: the effect in words, and another value for the example.
    Effect {
        effect: &'static str,
        example: &'static str,
    },
    /// The key is required in its section.
    Required { example: &'static str },
    /// The key is a section whose keys have fixed values.
    Section,
}

/// Effect of most keys.
const RESTART: &str = "needs a restart";
/// Effect of keys of scans.
pub const RESCAN: &str = "applied; every root is scanned again";
/// Effect of keys that control access.
pub const NEXT_CALL: &str = "applied from the next call on";

impl ConfigKey {
    /// Returns a key without a flag.
    pub const fn new(
        path: &'static str,
        value: KeyValue,
        default: KeyDefault,
        meaning: &'static str,
    ) -> Self {
        Self {
            path,
            value,
            default,
            reload: None,
            flag: None,
            meaning,
        }
    }

    pub const fn with_flag(self, flag: &'static str) -> Self {
        Self {
            flag: Some(flag),
            ..self
        }
    }

    /// Returns a key that a reload applies.
    pub const fn with_reload(self, effect: &'static str) -> Self {
        Self {
            reload: Some(effect),
            ..self
        }
    }

    /// Returns the name in the section.
    pub fn name(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or(self.path)
    }

    /// Returns the field of the key in its section.
    pub fn field<'a>(&self, section: &DocumentSection<'a>) -> Option<DocumentField<'a>> {
        section.get(self.name())
    }

    /// Returns the field of the key in its section. Reports a missing key.
    pub fn required_field<'a>(
        &self,
        section: &DocumentSection<'a>,
        reader: &mut DocumentReader<'_>,
    ) -> Option<DocumentField<'a>> {
        reader.required(section, self.name())
    }

    /// Reads the value of the key as a text and parses it. Reports a missing key.
    pub fn required<T, E: Display>(
        &self,
        section: &DocumentSection<'_>,
        reader: &mut DocumentReader<'_>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let field = self.required_field(section, reader)?;
        reader.parsed(&field, parse)
    }

    /// Reads the value of the key as a text and parses it.
    pub fn parsed<T, E: Display>(
        &self,
        section: &DocumentSection<'_>,
        reader: &mut DocumentReader<'_>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        reader.parsed(&self.field(section)?, parse)
    }

    /// Reads the value of the key as a list of unique texts and parses each. Reports `if_empty`, if
    /// there is one, for an empty list.
    pub fn list<T: Clone + Eq + Hash, E: Display>(
        &self,
        section: &DocumentSection<'_>,
        reader: &mut DocumentReader<'_>,
        if_empty: Option<&str>,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<Vec<T>> {
        Some(reader.unique_texts(&self.field(section)?, if_empty, parse))
    }

    /// Reads the value of the key as a section with the keys of its table.
    pub fn section<'a>(
        &self,
        parent: &DocumentSection<'a>,
        reader: &mut DocumentReader<'_>,
    ) -> Option<DocumentSection<'a>> {
        reader.section(&self.field(parent)?, names(self.keys()))
    }

    /// Reads the value of the key as a duration, at most the longest that the key allows.
    pub fn duration(
        &self,
        section: &DocumentSection<'_>,
        reader: &mut DocumentReader<'_>,
    ) -> Option<Duration> {
        let KeyValue::Duration { max } = self.value else {
            return None;
        };
        reader.parsed(&self.field(section)?, |text| {
            let duration = humantime::parse_duration(text).ok();
            duration.filter(|given| *given <= max).ok_or_else(|| {
                let max = format_duration(max);
                format!("expected a duration from 0ms to {max}, such as 50ms")
            })
        })
    }

    /// Returns the meaning as sentences in Markdown.
    pub fn meaning(&self) -> &'static str {
        if self.meaning.is_empty() {
            limits::meaning(self.name())
        } else {
            self.meaning
        }
    }

    /// Returns the keys of the section or of each item.
    pub fn keys(&self) -> &'static [ConfigKey] {
        match self.value {
            KeyValue::Section(keys) | KeyValue::SectionList { keys, .. } => keys,
            _ => &[],
        }
    }
}

impl KeyValue {
    /// Describes the type and the range in Markdown.
    pub fn describe(&self) -> String {
        match self {
            Self::Boolean => "`true` or `false`".to_owned(),
            Self::Text(text) => (*text).to_owned(),
            Self::List(items) => format!("list of {items}"),
            Self::Choice(names) => {
                let (last, others) = names.split_last().unwrap_or((&"", &[]));
                format!("`{}` or `{last}`", others.join("`, `"))
            }
            Self::Count { min, max } => format!("whole number from {min} to {max}"),
            Self::Size { min, max } => format!(
                "size from {} to {}, as a number of bytes or with a unit",
                format_size(*min),
                format_size(*max)
            ),
            Self::Ratio => "number from 0 to 1".to_owned(),
            Self::Duration { max } => {
                format!(
                    "duration from 0ms to {}, such as `50ms`",
                    format_duration(*max)
                )
            }
            Self::Section(_) => "section".to_owned(),
            Self::SectionList { .. } => "list of sections".to_owned(),
        }
    }
}

/// Returns the names of keys.
pub fn names(keys: &[ConfigKey]) -> impl Iterator<Item = &'static str> {
    keys.iter().map(ConfigKey::name)
}

/// Formats a size with the largest unit that divides it.
pub fn format_size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units
        .into_iter()
        .find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit))
    {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

/// Key of a config file, described for a reference. The texts are in Markdown.
#[derive(Debug, Clone)]
pub struct KeyDescription {
    /// Name with its section, such as `limits.max_depth`. Keys of list items have `[]`, as in
    /// `roots[].id`.
    pub path: &'static str,
    /// Whether the key is a section or a list of sections. Its keys follow.
    pub is_section: bool,
    /// Type and range.
    pub value_type: String,
    /// Default value, or the effect of a missing key. `None` for a section whose keys have
    /// defaults.
    pub default: Option<String>,
    /// Value in YAML, for a key without a fixed default.
    pub example: Option<&'static str>,
    /// Flag of `caproot serve` that replaces the value.
    pub flag: Option<&'static str>,
    /// Meaning, in sentences.
    pub meaning: &'static str,
    /// Effect of a reload, such as `applied from the next call on`.
    pub reload: &'static str,
}

/// Describes every key, in the order of the example file. The keys of a section follow the section.
#[must_use]
pub fn config_keys() -> Vec<KeyDescription> {
    let mut all = Vec::new();
    add_descriptions(&super::top_keys::KEYS, RESTART, &mut all);
    all
}

fn add_descriptions(
    keys: &'static [ConfigKey],
    section_reload: &'static str,
    all: &mut Vec<KeyDescription>,
) {
    for key in keys {
        let (default, example) = match key.default {
            KeyDefault::Value(value) => (Some(format!("`{}`", value())), None),
            KeyDefault::Effect { effect, example } => (Some(effect.to_owned()), Some(example)),
            KeyDefault::Required { example } => (Some("none; required".to_owned()), Some(example)),
            KeyDefault::Section => (None, None),
        };

        let reload = key.reload.unwrap_or(section_reload);
        all.push(KeyDescription {
            path: key.path,
            is_section: !key.keys().is_empty(),
            value_type: key.value.describe(),
            default,
            example: example.filter(|example| !example.is_empty()),
            flag: key.flag,
            meaning: key.meaning(),
            reload,
        });

        add_descriptions(key.keys(), reload, all);
    }
}
