//! Files of skills that a model read or was given, with the digests that the model has. A session
//! remembers a limited number of files, so that a host can give them back after a compaction.

use crate::skills::skill::{AuthorityRef, SharedSkill};
use crate::skills::skill_source::TextPage;
use crate::text::placeholders::MAX_ARGUMENT_BYTES;
use caproot_core::text::truncate_with_ellipsis;
use serde::{Deserialize, Serialize};

/// Number of files that a session remembers; the least recently used file is forgotten first.
pub const MAX_USED_FILES: usize = 128;
/// Limits of the texts of a remembered file, in bytes. A longer handle is not remembered.
const MAX_NAME_BYTES: usize = 256;
const MAX_HANDLE_BYTES: usize = 4_096;
const MAX_DIGEST_BYTES: usize = 128;

/// File that the model read or was given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsedFile {
    /// Name of the skill.
    pub name: String,
    /// Kind of the authority.
    pub kind: String,
    /// Id of the authority.
    pub root: String,
    pub package: String,
    /// Handle of the file.
    pub resource: String,
    /// Digest of the whole file; empty if the source has no digests.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Arguments with which a person named the skill, for its SKILL.md.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub arguments: String,
}

/// File of a skill that the model read or was given in a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsedSkill {
    /// Name of the skill.
    pub name: String,
    /// Kind of the authority: `executor`, `local`, `mcp` or `site`.
    pub kind: String,
    /// Id of the authority: the selected root of the skill.
    pub root: String,
    /// Handle of the skill.
    pub package: String,
    /// Handle of the file.
    pub resource: String,
    /// Digest of the file that the model has: `sha256:` and the hex digest. Empty if the source has no
    /// digests.
    pub digest: String,
    /// State of the file now.
    pub state: UsedState,
}

/// State of a file compared with the digest that the model has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum UsedState {
    /// The file is the one that the model has.
    Unchanged,
    /// The file has another digest now.
    Changed,
    /// The session has no such skill or file now.
    Gone,
    /// The source does not answer or has no digests, or the session is closed.
    Unknown,
}

/// Files that a model used, the most recently used first.
#[derive(Debug, Clone, Default)]
pub struct UsedFiles(Vec<UsedFile>);

impl UsedFile {
    /// Returns the file of a page that was read.
    pub fn of_page(skill: &SharedSkill, page: &TextPage) -> Self {
        let AuthorityRef { kind, id } = AuthorityRef::of_skill(skill);
        Self {
            name: truncate_with_ellipsis(&skill.name, MAX_NAME_BYTES),
            kind: kind.to_owned(),
            root: id.to_owned(),
            package: skill.package.clone(),
            resource: page.resource.clone(),
            digest: Some(page.digest.clone())
                .filter(|digest| digest.len() <= MAX_DIGEST_BYTES)
                .unwrap_or_default(),
            arguments: String::new(),
        }
    }

    /// Returns the file with its state.
    pub fn with_state(self, state: UsedState) -> UsedSkill {
        UsedSkill {
            name: self.name,
            kind: self.kind,
            root: self.root,
            package: self.package,
            resource: self.resource,
            digest: self.digest,
            state,
        }
    }

    /// Compares the digest with the one of now.
    pub fn compare_digest(&self, now: &str) -> UsedState {
        if self.digest.is_empty() || now.is_empty() {
            UsedState::Unknown
        } else if self.digest == now {
            UsedState::Unchanged
        } else {
            UsedState::Changed
        }
    }

    fn is_same_file(&self, other: &Self) -> bool {
        self.kind == other.kind && self.root == other.root && self.resource == other.resource
    }

    fn is_within_limits(&self) -> bool {
        let handles = [&self.kind, &self.root, &self.package, &self.resource];
        self.name.len() <= MAX_NAME_BYTES
            && self.digest.len() <= MAX_DIGEST_BYTES
            && self.arguments.len() <= MAX_ARGUMENT_BYTES
            && handles.iter().all(|text| text.len() <= MAX_HANDLE_BYTES)
    }
}

impl UsedFiles {
    /// Restores the files of a saved state.
    ///
    /// # Errors
    ///
    /// More files than a session remembers, or a text over its limit; as a phrase.
    pub fn restore(files: Vec<UsedFile>) -> Result<Self, String> {
        if files.len() > MAX_USED_FILES {
            let count = files.len();
            return Err(format!(
                "`used` has {count} files; the limit is {MAX_USED_FILES}"
            ));
        }
        match files.iter().position(|file| !file.is_within_limits()) {
            Some(index) => Err(format!("a text of file {index} in `used` is too long")),
            None => Ok(Self(files)),
        }
    }

    /// Records a file as the most recently used one. A read without arguments keeps those of the person.
    pub fn record(&mut self, mut file: UsedFile) {
        let known = self.0.iter().position(|known| known.is_same_file(&file));
        if let Some(known) = known.map(|index| self.0.remove(index))
            && file.arguments.is_empty()
        {
            file.arguments = known.arguments;
        }
        if file.is_within_limits() {
            self.0.insert(0, file);
            self.0.truncate(MAX_USED_FILES);
        }
    }

    /// Replaces a remembered file in its place.
    pub fn renew(&mut self, file: UsedFile) {
        if let Some(known) = self.0.iter_mut().find(|known| known.is_same_file(&file)) {
            *known = file;
        }
    }

    /// Returns the files, the most recently used first.
    pub fn files(&self) -> &[UsedFile] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_USED_FILES, UsedFile, UsedFiles, UsedState};

    fn file(resource: &str, digest: &str) -> UsedFile {
        UsedFile {
            resource: resource.to_owned(),
            digest: digest.to_owned(),
            ..UsedFile::default()
        }
    }

    #[test]
    fn the_most_recently_used_files_are_remembered() {
        let mut used = UsedFiles::default();
        for index in 0..MAX_USED_FILES + 9 {
            used.record(file(&index.to_string(), "a"));
        }
        used.record(file("50", "b"));
        used.renew(file("60", "c"));
        used.record(file(&"x".repeat(5_000), "a"));

        let files = used.files();
        assert_eq!(files.len(), MAX_USED_FILES);
        assert_eq!(
            (&files[0], &files[1].resource),
            (&file("50", "b"), &"136".to_owned())
        );
        assert!(files.contains(&file("60", "c")) && !files.contains(&file("8", "a")));
        assert!(UsedFiles::restore(files.to_vec()).is_ok());
    }

    #[test]
    fn a_read_keeps_the_arguments_of_a_person() {
        let mut used = UsedFiles::default();
        let given = |arguments: &str| UsedFile {
            arguments: arguments.to_owned(),
            ..file("a", "d")
        };
        used.record(given("x"));
        used.record(file("a", "e"));
        assert_eq!(used.files()[0].arguments, "x");
        used.record(given("y"));
        assert_eq!(used.files(), [given("y")]);
    }

    #[test]
    fn saved_files_over_a_limit_are_rejected() {
        let many = vec![file("a", "b"); MAX_USED_FILES + 1];
        let error = UsedFiles::restore(many).expect_err("too many");
        assert_eq!(error, "`used` has 129 files; the limit is 128");
        let long = vec![file("a", ""), file("b", &"x".repeat(200))];
        let error = UsedFiles::restore(long).expect_err("too long");
        assert_eq!(error, "a text of file 1 in `used` is too long");
    }

    #[test]
    fn without_a_digest_the_state_is_unknown() {
        assert_eq!(file("a", "").compare_digest("d"), UsedState::Unknown);
        assert_eq!(file("a", "d").compare_digest(""), UsedState::Unknown);
        assert_eq!(file("a", "d").compare_digest("d"), UsedState::Unchanged);
        assert_eq!(file("a", "d").compare_digest("e"), UsedState::Changed);
    }
}
