//! Reads a config file and turns its text into settings.

use super::{GivenSettings, address, record_reading, settings};
use caproot_core::bounded_file::{self, BoundedReadError};
use caproot_core::document::{self, ConfigError, ConfigErrors, DocumentReader, FileResult as _};
use caproot_core::net::endpoint::ProcessEnv;
use std::path::Path;

/// Most bytes of a config file.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// Reads the text of a file.
pub fn read(path: &Path) -> Result<String, ConfigError> {
    record_reading(&[path]);
    let bytes = bounded_file::read(path, MAX_FILE_BYTES).in_file(path)?;
    decode(path, bytes)
}

/// Decodes the bytes of a file as UTF-8.
pub fn decode(path: &Path, bytes: Vec<u8>) -> Result<String, ConfigError> {
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let error = BoundedReadError::TooLarge {
            max_bytes: MAX_FILE_BYTES,
        };
        return Err(ConfigError::file(path, error.to_string()));
    }
    document::decode_file(path, bytes)
}

/// Parses the text of a file. Adds every error to `errors` and returns the valid settings.
pub fn parse(
    path: &Path,
    text: Result<String, ConfigError>,
    flags: &GivenSettings,
    env: &ProcessEnv,
    errors: &mut ConfigErrors,
) -> GivenSettings {
    let document = text.and_then(|text| document::parse_file(path, &text));

    // Relative paths start at the directory of the file, not at the one of the daemon.
    let absolute = address::absolute_path(path, env.current_dir.as_deref()).ok();
    let base = absolute.as_deref().and_then(Path::parent);

    match document {
        Ok(node) => {
            let mut reader = DocumentReader { file: path, errors };
            settings::read(&node, base, flags, env, &mut reader)
        }
        Err(error) => {
            errors.add(error);
            GivenSettings::default()
        }
    }
}
