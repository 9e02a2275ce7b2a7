//! Reads a config file, whatever it turns out to be, in bounded memory. Leaves what it says to
//! `document`.

use super::error::ConfigError;
use crate::yaml_document::TextPosition;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

/// The most bytes of a config file.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 20;

/// The file's text.
pub(super) fn read(path: &Path) -> Result<String, ConfigError> {
    let mut bytes = Vec::new();
    // Not by its size: a pipe has none.
    let outcome = File::open(path).and_then(|f| f.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
    outcome.map_err(|error| {
        let reason = match error.kind() {
            ErrorKind::NotFound => "there is no such file".to_owned(),
            ErrorKind::IsADirectory => "is a directory; name the file in it".to_owned(),
            ErrorKind::PermissionDenied => "the daemon's user may not read the file".to_owned(),
            _ => format!("cannot be read: {error}"),
        };
        ConfigError::file(path, None, reason)
    })?;
    text(path, bytes)
}

/// The text that these bytes of a file are.
pub(super) fn text(path: &Path, bytes: Vec<u8>) -> Result<String, ConfigError> {
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(ConfigError::file(path, None, "is over 1 MiB, too large for a config file"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(&error.as_bytes()[..good]).into_owned();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let at = TextPosition { line: number(line), column: number(column) };
        ConfigError::file(path, Some(at), "is not UTF-8 from here on; save the file as UTF-8")
    })
}
