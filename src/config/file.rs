//! Reads a config file and turns its text into settings.

use super::{FileSettings, address, record_reading, settings};
use caproot_core::document::{self, ConfigError, ConfigErrors};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::wire::RootId;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Most bytes of a config file.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// Reads the text of a file.
pub fn read(path: &Path) -> Result<String, ConfigError> {
    record_reading(&[path]);
    let bytes = read_regular_file(path).map_err(|error| {
        let reason = match error.kind() {
            ErrorKind::NotFound => "no such file".to_owned(),
            ErrorKind::IsADirectory => "is a directory; name the file in it".to_owned(),
            ErrorKind::InvalidInput => {
                "is not a regular file; write the configuration to a file".to_owned()
            }
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

/// Reads at most one byte more than the limit. The kind of the error is `InvalidInput` if the file is
/// a pipe or a device, which might never end.
fn read_regular_file(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a fifo must not block.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(ErrorKind::InvalidInput.into());
    }

    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
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
