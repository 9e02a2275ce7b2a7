//! Reader of the text of a lock. Stops at the first error, which has its position. No tree of the text is
//! built: each value goes to its place at once.

use super::approved_files::{MAX_SKILL_BYTES, MAX_SKILL_FILES};
use super::json_tokens::{JsonToken, JsonTokens, type_name};
use super::{
    ApprovedFiles, ApprovedSkill, FORMAT_VERSION, FilesError, Lock, LockError, MAX_LOCK_FILES,
    MAX_LOCK_SKILLS, MAX_SKILL_VERSIONS, SkillDescription, TextList,
};
use crate::text::similar::most_similar;
use crate::text::{is_misleading, quote_value, truncate_chars};
use crate::wire::handle::encode_path;
use crate::wire::{ContentDigest, FileChecksum, RelPath, parse_file_name};
use json_event_parser::JsonEvent;
use std::borrow::Cow;
use std::fmt;

const TOP_KEYS: &[&str] = &["version", "skills"];
const SKILL_KEYS: &[&str] = &[
    "name",
    "description",
    "shortDescription",
    "modelInvocable",
    "userInvocable",
    "products",
    "contentDigest",
    "files",
];
const REQUIRED_SKILL_KEYS: &[&str] = &["name", "description", "contentDigest", "files"];
const FILE_KEYS: &[&str] = &["digest", "bytes", "executable"];
/// Most keys of an object.
const MAX_KEYS: usize = 8;
/// Most characters of a key that are compared or shown without quotes.
const MAX_KEY_CHARS: usize = 64;
/// Maximum number of characters of a qualified name, as in the protocol.
const MAX_NAME_CHARS: usize = 128;
/// Starts of the lines that git writes into a file with a conflict.
const CONFLICT_MARKERS: [&[u8]; 4] = [b"<<<<<<<", b"|||||||", b"=======", b">>>>>>>"];

/// Parses the text of a lock.
pub fn read_lock(text: &[u8]) -> Result<Lock, LockError> {
    let mut reader = LockReader {
        tokens: JsonTokens::new(text),
        entries: Vec::new(),
        file_count: 0,
    };
    let read = reader.read_top().and_then(|()| reader.finish());
    read.map_err(|error| find_conflict(text).unwrap_or(error))
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

/// Entry, and the offset of its first byte.
struct ReadEntry {
    start: usize,
    skill: ApprovedSkill,
}

struct LockReader<'a> {
    tokens: JsonTokens<'a>,
    /// In the order of the text.
    entries: Vec<ReadEntry>,
    /// Number of files of all entries.
    file_count: usize,
}

/// Object of the text, for messages. Displays as the key that leads to the object.
#[derive(Clone, Copy)]
enum KeyPlace<'p> {
    Top,
    Skill(usize),
    Files(usize),
    File(usize, &'p str),
}

/// Keys that were read of one object.
struct ObjectKeys {
    known: &'static [&'static str],
    /// Offset of the object.
    start: usize,
    /// Offset of each known key, if the object has the key.
    seen: [Option<usize>; MAX_KEYS],
}

/// Values of an entry so far.
#[derive(Default)]
struct SkillDraft {
    name: Box<str>,
    description: SkillDescription,
    content_digest: Option<ContentDigest>,
    files: Option<ApprovedFiles>,
}

/// Files of an entry in the order of the text, each with the offset of its name.
#[derive(Default)]
struct FilesDraft {
    files: Vec<(RelPath, FileChecksum)>,
    names: Vec<(RelPath, usize)>,
    bytes: u64,
}

impl<'a> LockReader<'a> {
    fn read_top(&mut self) -> Result<(), LockError> {
        let top = self.tokens.next()?;
        if top.event != JsonEvent::StartObject {
            let found = type_name(&top.event);
            let reason = format!("expected an object, found {found}");
            return Err(LockError::at(self.tokens.position_of(top.start), reason));
        }

        let mut keys = ObjectKeys::new(TOP_KEYS, top.start);
        while let Some(key) = self.next_key(&mut keys, KeyPlace::Top)? {
            match key {
                "version" => self.read_version()?,
                _ => self.read_skills()?,
            }
        }
        self.require_keys(&keys, KeyPlace::Top, TOP_KEYS)?;
        // Reports text after the object.
        self.tokens.next().map(drop)
    }

    fn read_version(&mut self) -> Result<(), LockError> {
        let token = self.tokens.next()?;
        let JsonEvent::Number(number) = &token.event else {
            return Err(self.wrong_type(&token, KeyPlace::Top, "version", "a number"));
        };
        if number.parse() == Ok(FORMAT_VERSION) {
            return Ok(());
        }
        let reason = format!("this version of caproot reads version {FORMAT_VERSION}");
        Err(self.error(token.start, KeyPlace::Top, "version", reason))
    }

    fn read_skills(&mut self) -> Result<(), LockError> {
        let list = self.tokens.next()?;
        if list.event != JsonEvent::StartArray {
            return Err(self.wrong_type(&list, KeyPlace::Top, "skills", "a list"));
        }

        loop {
            let token = self.tokens.next()?;
            match token.event {
                JsonEvent::EndArray => return Ok(()),
                JsonEvent::StartObject if self.entries.len() < MAX_LOCK_SKILLS => {
                    self.read_skill(token.start)?;
                }
                JsonEvent::StartObject => {
                    let reason = "over 100,000 skills, the limit of a lock";
                    return Err(self.error(token.start, KeyPlace::Top, "skills", reason));
                }
                _ => {
                    let key = format!("skills[{}]", self.entries.len());
                    return Err(self.wrong_type(&token, KeyPlace::Top, &key, "an object"));
                }
            }
        }
    }

    fn read_skill(&mut self, start: usize) -> Result<(), LockError> {
        let place = KeyPlace::Skill(self.entries.len());
        let mut keys = ObjectKeys::new(SKILL_KEYS, start);
        let mut draft = SkillDraft::default();
        while let Some(key) = self.next_key(&mut keys, place)? {
            self.read_skill_value(key, &mut draft)?;
        }
        self.require_keys(&keys, place, REQUIRED_SKILL_KEYS)?;

        let SkillDraft {
            name,
            description,
            content_digest: Some(content_digest),
            files: Some(files),
        } = draft
        else {
            return Err(self.error(start, place, "", "a required key is missing"));
        };
        let skill = ApprovedSkill::new(&name, description, files);
        if skill.content_digest != content_digest {
            let reason = format!("files have the digest {}", skill.content_digest);
            return Err(self.error(start, place, "", reason));
        }
        self.entries.push(ReadEntry { start, skill });
        Ok(())
    }

    fn read_skill_value(&mut self, key: &str, draft: &mut SkillDraft) -> Result<(), LockError> {
        let place = KeyPlace::Skill(self.entries.len());
        let description = &mut draft.description;
        match key {
            "name" => draft.name = self.read_name(place)?,
            "description" => description.description = self.read_text(place, key)?.value.into(),
            "shortDescription" => {
                description.short_description = self.read_text(place, key)?.value.into();
            }
            "modelInvocable" => description.model_invocable = self.read_boolean(place, key)?,
            "userInvocable" => description.user_invocable = self.read_boolean(place, key)?,
            "products" => description.products = self.read_products(place)?,
            "contentDigest" => draft.content_digest = Some(self.read_digest(place, key)?),
            _ => draft.files = Some(self.read_files()?),
        }
        Ok(())
    }

    fn read_name(&mut self, place: KeyPlace<'_>) -> Result<Box<str>, LockError> {
        let ReadText { start, value } = self.read_text(place, "name")?;
        let is_valid =
            (1..=MAX_NAME_CHARS).contains(&value.chars().count()) && !value.contains(is_misleading);
        if is_valid {
            return Ok(value.into());
        }
        let reason = "must have 1 to 128 characters, none of them a control character";
        Err(self.error(start, place, "name", reason))
    }

    fn read_products(&mut self, place: KeyPlace<'_>) -> Result<TextList, LockError> {
        let list = self.tokens.next()?;
        if list.event != JsonEvent::StartArray {
            return Err(self.wrong_type(&list, place, "products", "a list"));
        }

        let mut products = Vec::new();
        loop {
            let token = self.tokens.next()?;
            match token.event {
                JsonEvent::EndArray => break,
                JsonEvent::String(text) => products.push(text),
                _ => return Err(self.wrong_type(&token, place, "products", "texts")),
            }
        }
        TextList::new(products).ok_or_else(|| {
            let reason = "a product must not be empty or have a control character";
            self.error(list.start, place, "products", reason)
        })
    }

    fn read_files(&mut self) -> Result<ApprovedFiles, LockError> {
        let skill = self.entries.len();
        let object = self.tokens.next()?;
        if object.event != JsonEvent::StartObject {
            return Err(self.wrong_type(&object, KeyPlace::Skill(skill), "files", "an object"));
        }

        let mut draft = FilesDraft::default();
        loop {
            let token = self.tokens.next()?;
            match token.event {
                JsonEvent::ObjectKey(name) => self.read_file(&name, token.start, &mut draft)?,
                _ => break,
            }
        }
        let FilesDraft { files, names, .. } = draft;
        ApprovedFiles::new(files).map_err(|error| self.files_error(object.start, &names, &error))
    }

    fn read_file(
        &mut self,
        name: &str,
        start: usize,
        draft: &mut FilesDraft,
    ) -> Result<(), LockError> {
        let files = KeyPlace::Files(self.entries.len());
        let path =
            parse_file_name(name).map_err(|reason| self.error(start, files, name, reason))?;

        self.file_count += 1;
        let over = if self.file_count > MAX_LOCK_FILES {
            Some("over 1,000,000 files, the limit of a lock")
        } else if draft.files.len() >= MAX_SKILL_FILES {
            Some("over 10,000 files, the limit of a skill")
        } else {
            None
        };
        if let Some(reason) = over {
            return Err(self.error(start, files, "", reason));
        }

        let checksum = self.read_checksum(KeyPlace::File(self.entries.len(), name))?;
        draft.bytes = draft.bytes.saturating_add(checksum.bytes);
        if draft.bytes > MAX_SKILL_BYTES {
            let reason = "over 1 GiB of files, the limit of a skill";
            return Err(self.error(start, files, "", reason));
        }
        draft.names.push((path.clone(), start));
        draft.files.push((path, checksum));
        Ok(())
    }

    fn read_checksum(&mut self, place: KeyPlace<'_>) -> Result<FileChecksum, LockError> {
        let object = self.tokens.next()?;
        if object.event != JsonEvent::StartObject {
            return Err(self.wrong_type(&object, place, "", "an object"));
        }

        let mut keys = ObjectKeys::new(FILE_KEYS, object.start);
        let mut checksum = FileChecksum {
            digest: ContentDigest([0; 32]),
            bytes: 0,
            executable: false,
        };
        while let Some(key) = self.next_key(&mut keys, place)? {
            match key {
                "digest" => checksum.digest = self.read_digest(place, key)?,
                "bytes" => checksum.bytes = self.read_count(place, key)?,
                _ => checksum.executable = self.read_boolean(place, key)?,
            }
        }
        self.require_keys(&keys, place, FILE_KEYS)?;
        Ok(checksum)
    }

    /// Converts an error about the files of an entry. The error has the position of each file that it
    /// names.
    fn files_error(
        &self,
        object: usize,
        names: &[(RelPath, usize)],
        error: &FilesError,
    ) -> LockError {
        let place = KeyPlace::Files(self.entries.len());
        let wanted = match error {
            FilesError::ControlCharacter(path)
            | FilesError::Duplicate(path)
            | FilesError::FileAndDirectory(path) => Some(path),
            _ => None,
        };
        let mut starts = names
            .iter()
            .filter(|(path, _)| Some(path) == wanted)
            .map(|(_, start)| *start);
        let first = starts.next().unwrap_or(object);

        match (error, starts.next()) {
            (FilesError::Duplicate(path), Some(second)) => {
                let name = encode_path(path);
                let reason = self.duplicate_key_reason(first);
                self.error(second, place, &name, reason)
            }
            _ => self.error(first, place, "", error.to_string()),
        }
    }

    /// Reads the next key of an object. Returns `None` at the end of the object.
    fn next_key(
        &mut self,
        keys: &mut ObjectKeys,
        place: KeyPlace<'_>,
    ) -> Result<Option<&'static str>, LockError> {
        let token = self.tokens.next()?;
        let JsonEvent::ObjectKey(key) = token.event else {
            return Ok(None);
        };

        let Some(at) = keys.known.iter().position(|known| *known == key) else {
            let reason = format!("unknown key; {}", suggestion(&key, keys.known));
            return Err(self.error(token.start, place, &key, reason));
        };
        if let Some(first) = keys.seen[at].replace(token.start) {
            let reason = self.duplicate_key_reason(first);
            return Err(self.error(token.start, place, &key, reason));
        }
        Ok(Some(keys.known[at]))
    }

    fn duplicate_key_reason(&self, first: usize) -> String {
        let position = self.tokens.position_of(first);
        format!(
            "duplicate key, first set in {}:{}",
            position.line, position.column
        )
    }

    fn require_keys(
        &self,
        keys: &ObjectKeys,
        place: KeyPlace<'_>,
        required: &[&str],
    ) -> Result<(), LockError> {
        for (key, seen) in keys.known.iter().zip(keys.seen) {
            if seen.is_none() && required.contains(key) {
                return Err(self.error(keys.start, place, key, "required key is missing"));
            }
        }
        Ok(())
    }

    fn read_text(&mut self, place: KeyPlace<'_>, key: &str) -> Result<ReadText<'a>, LockError> {
        let token = self.tokens.next()?;
        match token.event {
            JsonEvent::String(value) => Ok(ReadText {
                start: token.start,
                value,
            }),
            _ => Err(self.wrong_type(&token, place, key, "text")),
        }
    }

    fn read_digest(&mut self, place: KeyPlace<'_>, key: &str) -> Result<ContentDigest, LockError> {
        let ReadText { start, value } = self.read_text(place, key)?;
        ContentDigest::parse(&value).ok_or_else(|| {
            let reason = "is not `sha256:` and 64 lower-case hex digits";
            self.error(start, place, key, reason)
        })
    }

    fn read_boolean(&mut self, place: KeyPlace<'_>, key: &str) -> Result<bool, LockError> {
        let token = self.tokens.next()?;
        match token.event {
            JsonEvent::Boolean(value) => Ok(value),
            _ => Err(self.wrong_type(&token, place, key, "true or false")),
        }
    }

    fn read_count(&mut self, place: KeyPlace<'_>, key: &str) -> Result<u64, LockError> {
        let token = self.tokens.next()?;
        let JsonEvent::Number(number) = &token.event else {
            return Err(self.wrong_type(&token, place, key, "a whole number"));
        };
        number.parse().map_err(|_| {
            let reason = "expected a whole number";
            self.error(token.start, place, key, reason)
        })
    }

    fn wrong_type(
        &self,
        token: &JsonToken<'_>,
        place: KeyPlace<'_>,
        key: &str,
        expected: &str,
    ) -> LockError {
        let found = type_name(&token.event);
        let reason = format!("expected {expected}, found {found}");
        self.error(token.start, place, key, reason)
    }

    /// Creates an error about a key, or about the whole place if the key is empty.
    fn error(
        &self,
        start: usize,
        place: KeyPlace<'_>,
        key: &str,
        reason: impl Into<String>,
    ) -> LockError {
        LockError {
            key: place.full_key(key),
            ..LockError::at(self.tokens.position_of(start), reason)
        }
    }

    /// Sorts the entries. Fails if two are equal, or if a name has too many.
    fn finish(&mut self) -> Result<Lock, LockError> {
        let mut order: Vec<usize> = (0..self.entries.len()).collect();
        order.sort_by(|a, b| {
            let keys = [a, b].map(|at| self.entries[*at].skill.sort_key());
            keys[0].cmp(&keys[1]).then(a.cmp(b))
        });
        self.check_unique(&order)?;
        self.check_versions(&order)?;

        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_by(|a, b| a.skill.sort_key().cmp(&b.skill.sort_key()));
        let skills = entries.into_iter().map(|entry| entry.skill).collect();
        Ok(Lock { skills })
    }

    /// Returns an error if two entries have the same name and digest. `order` has the sorted entries.
    fn check_unique(&self, order: &[usize]) -> Result<(), LockError> {
        for pair in order.windows(2) {
            let &[first, second] = pair else { continue };
            let entries = [first, second].map(|at| &self.entries[at]);
            if entries[0].skill.sort_key() != entries[1].skill.sort_key() {
                continue;
            }

            let at = self.tokens.position_of(entries[0].start);
            let reason = format!(
                "has the name and contentDigest of skills[{first}] in {}:{}; remove one of them",
                at.line, at.column
            );
            let start = entries[1].start;
            return Err(self.error(start, KeyPlace::Skill(second), "", reason));
        }
        Ok(())
    }

    /// Returns an error if a name has too many versions. `order` has the sorted entries.
    fn check_versions(&self, order: &[usize]) -> Result<(), LockError> {
        for run in order.windows(MAX_SKILL_VERSIONS + 1) {
            let last = run[MAX_SKILL_VERSIONS];
            let entries = [run[0], last].map(|at| &self.entries[at]);
            if entries[0].skill.name != entries[1].skill.name {
                continue;
            }

            let at = self.tokens.position_of(entries[0].start);
            let reason = format!(
                "over {MAX_SKILL_VERSIONS} entries have this name, the first in {}:{}; remove entries",
                at.line, at.column
            );
            let start = entries[1].start;
            return Err(self.error(start, KeyPlace::Skill(last), "name", reason));
        }
        Ok(())
    }
}

/// Text, and the offset of its first byte.
struct ReadText<'a> {
    start: usize,
    value: Cow<'a, str>,
}

impl ObjectKeys {
    fn new(known: &'static [&'static str], start: usize) -> Self {
        Self {
            known,
            start,
            seen: [None; MAX_KEYS],
        }
    }
}

impl KeyPlace<'_> {
    /// Returns a key with the keys that lead to it. Quotes a key that is long or has unusual characters.
    fn full_key(self, key: &str) -> String {
        let place = self.to_string();
        match (place.as_str(), key) {
            (_, "") => place,
            ("", key) => shown_key(key),
            (place, key) => format!("{place}.{}", shown_key(key)),
        }
    }
}

impl fmt::Display for KeyPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Top => Ok(()),
            Self::Skill(at) => write!(f, "skills[{at}]"),
            Self::Files(at) => write!(f, "skills[{at}].files"),
            Self::File(at, name) => write!(f, "skills[{at}].files.{}", shown_key(name)),
        }
    }
}

fn shown_key(key: &str) -> String {
    let is_plain = key
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '[' | ']'));
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
