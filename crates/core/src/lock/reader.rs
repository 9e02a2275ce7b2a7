//! Reader of the text of a lock. Stops at the first error, which has its position and its key.

use super::{
    ApprovedFiles, ApprovedPlugin, ApprovedSkill, FORMAT_VERSION, FilesError, Lock, LockEntry,
    LockError, MAX_LOCK_PLUGINS, MAX_LOCK_SKILLS, MAX_VERSIONS, SkillDescription, TextList,
};
use crate::document::TextPosition;
use crate::text::similar::most_similar;
use crate::text::{escape_text, is_misleading, position, quote_value, truncate_chars};
use crate::wire::{ContentDigest, FileChecksum, RelPath, parse_file_name};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::error::Category;
use serde_path_to_error::{Path, Segment};
use std::fmt::{self, Write as _};

/// Most characters of a key that are compared or shown without quotes.
const MAX_KEY_CHARS: usize = 64;
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
    plugins: Vec<PluginEntry>,
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

/// Plugin of the file.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
struct PluginEntry {
    #[serde(deserialize_with = "read_name")]
    name: Box<str>,
    #[serde(default)]
    version: Box<str>,
    content_digest: ContentDigest,
    declaration_digest: ContentDigest,
    #[serde(deserialize_with = "read_plugin_files")]
    files: ApprovedFiles,
    #[serde(default)]
    withheld: Vec<EntryFileName>,
}

/// Name of a file in an entry.
#[derive(serde::Deserialize)]
#[serde(try_from = "String")]
struct EntryFileName(RelPath);

/// Parses the text of a lock.
pub fn read_lock(text: &[u8]) -> Result<Lock, LockError> {
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
fn find_conflict(text: &[u8]) -> Option<LockError> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let found = lines.position(|line| CONFLICT_MARKERS.iter().any(|mark| line.starts_with(mark)));
    let line = found? + 1;
    Some(LockError::whole(format!(
        "line {line}: a conflict of git; resolve it, then run caproot lock --check"
    )))
}

impl LockText {
    /// Sorts the entries. Fails if there are too many, if two are equal, or if a name has too many.
    fn into_lock(self) -> Result<Lock, LockError> {
        if self.skills.len() > MAX_LOCK_SKILLS {
            let reason = "over 100,000 skills, the limit of a lock";
            return Err(LockError::about("skills".to_owned(), reason));
        }
        if self.plugins.len() > MAX_LOCK_PLUGINS {
            let reason = "over 10,000 plugins, the limit of a lock";
            return Err(LockError::about("plugins".to_owned(), reason));
        }

        let skills = self.skills.into_iter().enumerate();
        let skills: Vec<_> = skills
            .map(|(at, entry)| entry.into_skill(at))
            .collect::<Result<_, _>>()?;
        check_entries("skills", &skills)?;
        let plugins = self.plugins.into_iter().enumerate();
        let plugins: Vec<_> = plugins
            .map(|(at, entry)| entry.into_plugin(at))
            .collect::<Result<_, _>>()?;
        check_entries("plugins", &plugins)?;

        // `Lock` drops equal entries in silence, so the checks come first.
        let mut lock = Lock::from_iter(skills);
        lock.extend(plugins);
        Ok(lock)
    }
}

/// Fails if two entries below a key are equal, or if a name has too many.
fn check_entries<T: LockEntry>(key: &str, entries: &[T]) -> Result<(), LockError> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by(|a, b| entries[*a].sort_key().cmp(&entries[*b].sort_key()));
    for pair in order.windows(2) {
        let (first, second) = (pair[0], pair[1]);
        if entries[first].sort_key() == entries[second].sort_key() {
            let reason =
                format!("has the name and contentDigest of {key}[{first}]; remove one of them");
            return Err(LockError::about(format!("{key}[{second}]"), reason));
        }
    }
    for run in order.windows(MAX_VERSIONS + 1) {
        let (first, last) = (run[0], run[MAX_VERSIONS]);
        if entries[first].sort_key().0 == entries[last].sort_key().0 {
            let reason = format!(
                "over {MAX_VERSIONS} entries have this name, the first is {key}[{first}]; remove \
                 entries"
            );
            return Err(LockError::about(format!("{key}[{last}].name"), reason));
        }
    }
    Ok(())
}

/// Fails if the files of an entry have another digest than the entry.
fn check_digest(
    entry: String,
    files: ContentDigest,
    stated: ContentDigest,
) -> Result<(), LockError> {
    if files == stated {
        return Ok(());
    }
    let reason = format!("files have the digest {files}");
    Err(LockError::about(entry, reason))
}

impl SkillEntry {
    /// Returns the skill of the entry at an index. Fails if the package has another digest.
    fn into_skill(self, at: usize) -> Result<ApprovedSkill, LockError> {
        let description = SkillDescription {
            description: self.description,
            short_description: self.short_description,
            model_invocable: self.model_invocable,
            user_invocable: self.user_invocable,
            products: self.products,
        };
        let skill = ApprovedSkill::new(&self.name, description, self.files);
        let entry = format!("skills[{at}]");
        check_digest(entry, skill.content_digest, self.content_digest)?;
        Ok(skill)
    }
}

impl PluginEntry {
    /// Returns the plugin of the entry at an index. Fails if the package has another digest, or if a
    /// withheld file is no file of the plugin.
    fn into_plugin(self, at: usize) -> Result<ApprovedPlugin, LockError> {
        let content_digest = self.files.content_digest();
        check_digest(
            format!("plugins[{at}]"),
            content_digest,
            self.content_digest,
        )?;

        let mut withheld: Vec<_> = self.withheld.into_iter().map(|name| name.0).collect();
        let unknown = withheld
            .iter()
            .position(|path| self.files.get(path).is_none());
        if let Some(index) = unknown {
            let key = format!("plugins[{at}].withheld[{index}]");
            return Err(LockError::about(key, "is no file of the plugin"));
        }

        // The sort follows the check, so that an error has the index in the text.
        withheld.sort();
        withheld.dedup();
        Ok(ApprovedPlugin {
            name: self.name,
            version: self.version,
            content_digest,
            declaration_digest: self.declaration_digest,
            files: self.files,
            withheld: withheld.into(),
        })
    }
}

fn read_skill_files<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ApprovedFiles, D::Error> {
    deserializer.deserialize_map(FilesVisitor(ApprovedFiles::new))
}

fn read_plugin_files<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<ApprovedFiles, D::Error> {
    deserializer.deserialize_map(FilesVisitor(ApprovedFiles::of_package))
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
        let reason = format!("this version of caproot reads version {FORMAT_VERSION}");
        Err(E::custom(reason))
    }
}

fn check_version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    deserializer.deserialize_u64(VersionVisitor)
}

fn read_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<str>, D::Error> {
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
fn locate_error(text: &[u8], error: &serde_json::Error, key: String) -> LockError {
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
        return LockError::at(position_at(text, offset), reason);
    }

    let unknown = message
        .strip_prefix("unknown field `")
        .and_then(|rest| rest.rsplit_once("`, expected "));
    let reason = if let Some((name, expected)) = unknown {
        let start = text[..offset].iter().rposition(|byte| *byte == b'"');
        offset = start.unwrap_or(offset);
        let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        format!("unknown key; {}", suggestion(name, &known))
    } else {
        escape_text(&message.replacen(" field `", " key `", 1))
    };
    LockError {
        key,
        ..LockError::at(position_at(text, offset), reason)
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
        // Writing to a string does not fail.
        let _ = match segment {
            Segment::Seq { index } => write!(keys, "[{index}]"),
            Segment::Map { key } if keys.is_empty() => write!(keys, "{}", shown_key(key)),
            Segment::Map { key } => write!(keys, ".{}", shown_key(key)),
            Segment::Enum { .. } | Segment::Unknown => Ok(()),
        };
    }
    keys
}

fn shown_key(key: &str) -> String {
    let is_plain = key
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    if is_plain && (1..=MAX_KEY_CHARS).contains(&key.len()) {
        key.to_owned()
    } else {
        quote_value(key)
    }
}

/// Suggests the most similar key, or lists all keys.
fn suggestion(key: &str, known: &[&str]) -> String {
    let key = truncate_chars(key, MAX_KEY_CHARS);
    match most_similar(key, known.iter().copied()) {
        Some(nearest) => format!("did you mean \"{nearest}\"?"),
        None => format!("the keys are {}", known.join(", ")),
    }
}
