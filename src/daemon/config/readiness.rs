//! Reads `readiness` of a config file: directories of programs, and names of variables.

use super::keys::ConfigKey;
use super::{roots, top_keys};
use crate::daemon::model::ReadinessConfig;
use crate::daemon::model::requirements::is_variable_name;
use caproot_core::document::{DocumentReader, DocumentSection};
use std::fmt::Display;
use std::hash::Hash;
use std::path::Path;

/// Maximum number of directories. Each lookup costs a system call for each directory.
const MAX_DIRS: usize = 64;
const MAX_VARIABLES: usize = 256;

pub fn read(
    section: &DocumentSection<'_>,
    base: Option<&Path>,
    reader: &mut DocumentReader<'_>,
) -> ReadinessConfig {
    let parse_directory = |text: &str| roots::parse_directory(text, base);
    ReadinessConfig {
        path: read_items(
            top_keys::READINESS_PATH,
            MAX_DIRS,
            section,
            reader,
            parse_directory,
        ),
        variables: read_items(
            top_keys::READINESS_VARIABLES,
            MAX_VARIABLES,
            section,
            reader,
            parse_variable,
        ),
    }
}

fn parse_variable(text: &str) -> Result<String, &'static str> {
    let is_name = !text.is_empty() && is_variable_name(text);
    is_name
        .then(|| text.to_owned())
        .ok_or("is no name of a variable; use letters, digits and `_`")
}

/// Reads a list of at most `most` items.
fn read_items<T: Clone + Eq + Hash, E: Display>(
    key: ConfigKey,
    most: usize,
    section: &DocumentSection<'_>,
    reader: &mut DocumentReader<'_>,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Vec<T> {
    let Some(field) = key.field(section) else {
        return Vec::new();
    };
    let items = reader.unique_texts(&field, None, parse);
    if items.len() > most {
        reader.report_error(&field, format!("has more than {most} items"));
    }
    items
}
