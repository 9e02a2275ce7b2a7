//! Reads `readiness` of a config file: directories of programs, and names of variables.

use super::{roots, top_keys};
use crate::daemon::model::ReadinessConfig;
use crate::daemon::model::requirements::is_variable_name;
use caproot_core::document::{DocumentField, DocumentReader, DocumentSection};
use std::path::Path;

/// Maximum number of directories. Each lookup costs a system call for each directory.
const MAX_DIRS: usize = 64;
const MAX_VARIABLES: usize = 256;

pub fn read(
    section: &DocumentSection<'_>,
    base: Option<&Path>,
    reader: &mut DocumentReader<'_>,
) -> ReadinessConfig {
    let path = top_keys::READINESS_PATH.field(section).map(|item| {
        let dirs = reader.unique_texts(&item, None, |text| roots::parse_directory(text, base));
        limit_items(dirs, MAX_DIRS, &item, reader)
    });
    let variables = top_keys::READINESS_VARIABLES.field(section).map(|item| {
        let names = reader.unique_texts(&item, None, parse_variable);
        limit_items(names, MAX_VARIABLES, &item, reader)
    });
    ReadinessConfig {
        path: path.unwrap_or_default(),
        variables: variables.unwrap_or_default(),
    }
}

fn parse_variable(text: &str) -> Result<String, &'static str> {
    let is_name = !text.is_empty() && is_variable_name(text);
    is_name
        .then(|| text.to_owned())
        .ok_or("is no name of a variable; use letters, digits and `_`")
}

fn limit_items<T>(
    items: Vec<T>,
    most: usize,
    field: &DocumentField<'_>,
    reader: &mut DocumentReader<'_>,
) -> Vec<T> {
    if items.len() > most {
        reader.report_error(field, format!("has more than {most} items"));
    }
    items
}
