//! Reads a config file and turns its text into settings.

use super::{FileSettings, address, settings};
use crate::model::RootId;
use crate::net::endpoint::ProcessEnv;
use crate::parse::document::{self, ConfigError, ConfigErrors};
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

/// Most bytes of a config file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Reads the text of a file.
pub fn read(path: &Path) -> Result<String, ConfigError> {
    let mut bytes = Vec::new();
    // Not by the size in the metadata: a pipe has none.
    let outcome = File::open(path).and_then(|f| f.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
    outcome.map_err(|error| {
        let reason = match error.kind() {
            ErrorKind::NotFound => "no such file".to_owned(),
            ErrorKind::IsADirectory => "is a directory; name the file in it".to_owned(),
            ErrorKind::PermissionDenied => {
                "permission denied; let the user of the daemon read the \
                                            file"
                    .to_owned()
            }
            _ => format!("cannot be read: {error}"),
        };
        ConfigError::file(path, reason)
    })?;
    decode(path, bytes)
}

/// Decodes the bytes of a file as UTF-8.
pub fn decode(path: &Path, bytes: Vec<u8>) -> Result<String, ConfigError> {
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(ConfigError::file(
            path,
            "is larger than 1 MiB, the limit of config files",
        ));
    }
    document::decode(bytes).map_err(|error| ConfigError::syntax(path, error))
}

/// Parses the text of a file. Adds every error to `errors` and returns the valid settings. For the
/// parameters, see [`settings::read`].
pub fn parse(
    path: &Path,
    text: Result<String, ConfigError>,
    by_flag: impl Fn(&RootId) -> bool,
    allow_remote: bool,
    env: &ProcessEnv,
    errors: &mut ConfigErrors,
) -> FileSettings {
    let parse =
        |text: String| document::parse(&text).map_err(|error| ConfigError::syntax(path, error));
    let document = text.and_then(parse);
    // Relative paths start at the directory of the file, not at the one of the daemon.
    let absolute = address::absolute_path(path, env.current_dir.as_deref()).ok();
    let base = absolute.as_deref().and_then(Path::parent);
    match document {
        Ok(node) => settings::read(&node, path, base, by_flag, allow_remote, errors),
        Err(error) => {
            errors.add(error);
            FileSettings::default()
        }
    }
}
