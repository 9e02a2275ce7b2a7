//! Text of a lock: indented, one value a line, so that two changes of different entries merge.

use super::{ApprovedFiles, ApprovedPlugin, ApprovedSkill, FORMAT_VERSION, Lock, TextList};
use crate::document::ConfigError;
use crate::text::escape_json;
use crate::wire::RelPath;
use crate::wire::handle::encode_path;
use serde::ser::{Serialize, Serializer};

/// Content of the file.
#[derive(serde::Serialize)]
struct LockContent<'a> {
    version: u64,
    skills: &'a [ApprovedSkill],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    plugins: &'a [ApprovedPlugin],
}

/// Returns the text of a lock. Misleading characters are escaped, so that a reviewer sees them.
pub fn lock_text(lock: &Lock) -> Result<String, ConfigError> {
    let content = LockContent {
        version: FORMAT_VERSION,
        skills: &lock.skills,
        plugins: &lock.plugins,
    };
    let json = serde_json::to_string_pretty(&content).map_err(|error| error.to_string())?;
    Ok(escape_json(&json) + "\n")
}

pub fn write_file_names<S: Serializer>(
    paths: &[RelPath],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(encode_path))
}

impl Serialize for ApprovedFiles {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(path, file)| (encode_path(path), file)))
    }
}

impl Serialize for TextList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}
