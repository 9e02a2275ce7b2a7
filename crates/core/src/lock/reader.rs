//! Reader of the text of a lock. Stops at the first error, which has its position and its key.

use super::{
    ApprovedFiles, ApprovedPlugin, ApprovedSkill, FORMAT_VERSION, FilesError, Lock, LockEntry,
    MAX_LOCK_PLUGINS, MAX_LOCK_SKILLS, MAX_VERSIONS, SkillDescription, TextList,
};
use crate::document::{ConfigError, TextPosition, show_key, suggest_key};
use crate::text::{escape_text, is_misleading, position};
use crate::wire::{ContentDigest, FileChecksum, RelPath, parse_file_name};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::error::Category;
use serde_path_to_error::{Path, Segment};
use std::fmt;

/// Maximum number of characters of a qualified name, as in the protocol.
const MAX_NAME_CHARS: usize = 128;
/// Starts of the lines that git writes into a file with a conflict.
const CONFLICT_MARKERS: [&[u8]; 4] = [b"<<<<<<<", b"|||||||", b"=======", b">>>>>>>"];

/// Content of the file.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct LockText {
    #[serde(rename = "version", deserialize_with = "check_version")]
    _version: (),
    skills: Vec<SkillEntry>,
    #[serde(default)]
    plugins: Vec<ApprovedPlugin>,
}

/// Skill of the file.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
struct SkillEntry {
    #[serde(deserialize_with = "read_name")]
    name: Box<str>,
    description: Box<str>,
    #[serde(default)]
    short_description: Box<str>,
    #[serde(default = "is_invocable")]
    model_invocable: bool,
    #[serde(default = "is_invocable")]
    user_invocable: bool,
    #[serde(default)]
    products: TextList,
    content_digest: ContentDigest,
    #[serde(deserialize_with = "read_skill_files")]
    files: ApprovedFiles,
}

/// Name of a file in an entry.
#[derive(serde::Deserialize)]
#[serde(try_from = "String")]
struct EntryFileName(RelPath);

/// Parses the text of a lock.
pub fn read_lock(text: &[u8]) -> Result<Lock, ConfigError> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let content = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| locate_error(text, error.inner(), key_of(error.path())))
        .and_then(|content: LockText| {
            let end = json.end();
            end.map_err(|error| locate_error(text, &error, String::new()))?;
            Ok(content)
        });
    match content {
        Ok(content) => content.into_lock(),
        // A line of a conflict is never valid JSON, so that only an error needs the search.
        Err(error) => Err(find_conflict(text).unwrap_or(error)),
    }
}

/// Returns the error for the first line of a conflict of git.
fn find_conflict(text: &[u8]) -> Option<ConfigError> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let is_marker = |line: &[u8]| CONFLICT_MARKERS.iter().any(|mark| line.starts_with(mark));
    let line = lines.position(is_marker)? + 1;
    Some(ConfigError::key(
        "",
        format!("line {line}: a conflict of git; resolve it, then run caproot lock --check"),
    ))
}

impl LockText {
    /// Sorts the entries. Fails if there are too many, if two are equal, or if a name has too many.
    fn into_lock(mut self) -> Result<Lock, ConfigError> {
        if self.skills.len() > MAX_LOCK_SKILLS {
            let reason = "over 100,000 skills, the limit of a lock";
            return Err(ConfigError::key("skills", reason));
        }
        if self.plugins.len() > MAX_LOCK_PLUGINS {
            let reason = "over 10,000 plugins, the limit of a lock";
            return Err(ConfigError::key("plugins", reason));
        }

        let skills = self.skills.into_iter().enumerate();
        let skills: Vec<_> = skills
            .map(|(at, entry)| entry.into_skill(at))
            .collect::<Result<_, _>>()?;
        check_entries("skills", &skills)?;
        for (at, plugin) in self.plugins.iter_mut().enumerate() {
            check_plugin(at, plugin)?;
            // The sort follows the check, so that an error has the index in the text.
            let mut withheld = std::mem::take(&mut plugin.withheld).into_vec();
            withheld.sort();
            withheld.dedup();
            plugin.withheld = withheld.into();
        }
        check_entries("plugins", &self.plugins)?;

        // `Lock` drops equal entries in silence, so the checks come first.
        let mut lock = Lock::from_iter(skills);
        lock.extend(self.plugins);
        Ok(lock)
    }
}

/// Fails if two entries below a key are equal, or if a name has too many.
fn check_entries<T: LockEntry>(key: &str, entries: &[T]) -> Result<(), ConfigError> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by(|a, b| entries[*a].sort_key().cmp(&entries[*b].sort_key()));
    for (&first, &second) in order.iter().zip(order.iter().skip(1)) {
        if entries[first].sort_key() == entries[second].sort_key() {
            let reason =
                format!("has the name and contentDigest of {key}[{first}]; remove one of them");
            return Err(ConfigError::key(&format!("{key}[{second}]"), reason));
        }
    }
    for (&first, &last) in order.iter().zip(order.iter().skip(MAX_VERSIONS)) {
        if entries[first].sort_key().0 == entries[last].sort_key().0 {
            let reason = format!(
                "over {MAX_VERSIONS} entries have this name, the first is {key}[{first}]; remove \
                 entries"
            );
            return Err(ConfigError::key(&format!("{key}[{last}].name"), reason));
        }
    }
    Ok(())
}

/// Fails if the files of an entry have another digest than the entry.
fn check_digest(
    entry: &str,
    files: ContentDigest,
    stated: ContentDigest,
) -> Result<(), ConfigError> {
    if files == stated {
        return Ok(());
    }
    let reason = format!("files have the digest {files}");
    Err(ConfigError::key(entry, reason))
}

impl SkillEntry {
    /// Returns the skill of the entry at an index. Fails if the package has another digest.
    fn into_skill(self, at: usize) -> Result<ApprovedSkill, ConfigError> {
        let description = SkillDescription {
            description: self.description,
            short_description: self.short_description,
            model_invocable: self.model_invocable,
            user_invocable: self.user_invocable,
            products: self.products,
        };
        let skill = ApprovedSkill::new(&self.name, description, self.files);
        let entry = format!("skills[{at}]");
        check_digest(&entry, skill.content_digest, self.content_digest)?;
        Ok(skill)
    }
}

/// Checks the plugin of the entry at an index. Fails if the package has another digest, or if a withheld
/// file is no file of the plugin.
fn check_plugin(at: usize, plugin: &ApprovedPlugin) -> Result<(), ConfigError> {
    let entry = format!("plugins[{at}]");
    let files = &plugin.files;
    check_digest(&entry, files.content_digest(), plugin.content_digest)?;

    let mut withheld = plugin.withheld.iter();
    match withheld.position(|path| files.get(path).is_none()) {
        Some(index) => {
            let key = format!("{entry}.withheld[{index}]");
            Err(ConfigError::key(&key, "is no file of the plugin"))
        }
        None => Ok(()),
    }
}

fn read_skill_files<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ApprovedFiles, D::Error> {
    deserializer.deserialize_map(FilesVisitor(ApprovedFiles::new))
}

pub fn read_plugin_files<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<ApprovedFiles, D::Error> {
    deserializer.deserialize_map(FilesVisitor(ApprovedFiles::of_package))
}

pub fn read_file_names<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Box<[RelPath]>, D::Error> {
    let names = Vec::<EntryFileName>::deserialize(deserializer)?;
    Ok(names.into_iter().map(|name| name.0).collect())
}

impl<'de> Deserialize<'de> for TextList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(Vec::<String>::deserialize(deserializer)?).ok_or_else(|| {
            D::Error::custom("a product must not be empty or have a control character")
        })
    }
}

/// Check of the files of an entry, which sorts them.
type FilesCheck = fn(Vec<(RelPath, FileChecksum)>) -> Result<ApprovedFiles, FilesError>;

/// Reads the files of an entry. A map of the standard library would hide a name that is there twice.
struct FilesVisitor(FilesCheck);

impl<'de> Visitor<'de> for FilesVisitor {
    type Value = ApprovedFiles;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of files")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ApprovedFiles, A::Error> {
        let mut files = Vec::new();
        while let Some((EntryFileName(path), file)) = map.next_entry::<_, FileChecksum>()? {
            files.push((path, file));
        }
        self.0(files).map_err(A::Error::custom)
    }
}

impl TryFrom<String> for EntryFileName {
    type Error = &'static str;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        parse_file_name(&name).map(Self)
    }
}

/// Checks the version while the number is read, so that the error has the position of the number.
struct VersionVisitor;

impl Visitor<'_> for VersionVisitor {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_u64<E: serde::de::Error>(self, version: u64) -> Result<(), E> {
        if version == FORMAT_VERSION {
            return Ok(());
        }
        Err(E::custom(format_args!(
            "this version of caproot reads version {FORMAT_VERSION}"
        )))
    }
}

fn check_version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    deserializer.deserialize_u64(VersionVisitor)
}

pub fn read_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<str>, D::Error> {
    let name = Box::<str>::deserialize(deserializer)?;
    if (1..=MAX_NAME_CHARS).contains(&name.chars().count()) && !name.contains(is_misleading) {
        return Ok(name);
    }
    let reason = "must have 1 to 128 characters, none of them a control character";
    Err(D::Error::custom(reason))
}

fn is_invocable() -> bool {
    true
}

/// Returns an error of serde with its position in the text and its key.
fn locate_error(text: &[u8], error: &serde_json::Error, key: String) -> ConfigError {
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = message.strip_suffix(&place).unwrap_or(&message);

    // serde_json counts the bytes of the line up to the end of the value, or of the key.
    let mut lines = text.split_inclusive(|byte| *byte == b'\n');
    let before = lines.by_ref().take(error.line().saturating_sub(1));
    let line_start: usize = before.map(<[u8]>::len).sum();
    let read = &text[..text.len().min(line_start + error.column())];
    let mut offset = read.trim_ascii_end().len().saturating_sub(1);

    if matches!(error.classify(), Category::Syntax | Category::Eof) {
        let reason = format!("JSON: {}", escape_text(message));
        return ConfigError::at(position_at(text, offset), reason);
    }

    let unknown = message
        .strip_prefix("unknown field `")
        .and_then(|rest| rest.rsplit_once("`, expected "));
    let reason = if let Some((name, expected)) = unknown {
        let start = text[..offset].iter().rposition(|byte| *byte == b'"');
        offset = start.unwrap_or(offset);
        let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        format!("unknown key; {}", suggest_key(name, &known, '"'))
    } else {
        escape_text(&message.replacen(" field `", " key `", 1))
    };
    ConfigError {
        key,
        ..ConfigError::at(position_at(text, offset), reason)
    }
}

fn position_at(text: &[u8], offset: usize) -> TextPosition {
    let (line, column) = position::position_of_byte(text, offset);
    TextPosition { line, column }
}

/// Returns the keys of a path. Quotes a key that is long or has unusual characters.
fn key_of(path: &Path) -> String {
    let mut keys = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => keys = format!("{keys}[{index}]"),
            Segment::Map { key } => {
                let dot = if keys.is_empty() { "" } else { "." };
                let key = show_key(key, |c| c.is_ascii_alphanumeric());
                keys = format!("{keys}{dot}{key}");
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    keys
}
