//! Skills for a model whose conversation was compacted: the files that the model read or was given, and
//! fragments that give them back within a budget.

use super::inject::{
    FragmentReader, MAX_INJECTED_BYTES, OmittedMention, ReadFragment, SkillFragment,
    omitted_mention,
};
use crate::calls::fitting::read_fitting;
use crate::skills::result::{ToolError, ToolErrorCode};
use crate::skills::skill::SharedSkill;
use crate::skills::skill_source::{SourceKind, TextPage, TextPageRequest};
use crate::state::{AuthoritySource, Session};
use crate::uses::used::{UsedFile, UsedSkill, UsedState};
use caproot_core::text::single_line;
use serde::Serialize;
use std::collections::HashSet;
use std::fmt::Write as _;

/// Limit of the note in bytes, and the part of a small budget that the note may take.
const MAX_NOTE_BYTES: usize = 1_024;
const NOTE_SHARE: usize = 4;
/// Bytes of a page that is read for the digest of its file.
const PROBE_BYTES: usize = 4;
/// Bytes that are reserved for the count at the end of the note.
const COUNT_BYTES: usize = 16;

const CHANGED_HEADING: &str = "Skill files that changed since you read them:\n";
const GONE_HEADING: &str = "Skill files that you read and that are gone now:\n";

/// Skills that the model read or was given, for a model that has forgotten them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReinjectedSkills {
    /// Fragments for the model, the most recently used file first. External context, like every result.
    pub fragments: Vec<ReinjectedFragment>,
    /// Text for the model that names the files that changed since or are gone; empty if there are none.
    pub note: String,
    /// Files without a fragment, by handle.
    pub omitted: Vec<OmittedMention>,
}

/// Fragment of a file that the model read or was given before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReinjectedFragment {
    /// Handle of the file.
    pub resource: String,
    /// Whether the file changed since the model read it. The fragment has the file of now.
    pub changed: bool,
    /// Text of the file.
    #[serde(flatten)]
    pub fragment: SkillFragment,
}

impl Session {
    /// Returns the last 128 files of skills that the model read or was given by
    /// [`Session::inject`], the most recently used first, with their states now. The state of a file
    /// that is not the SKILL.md needs a short read. A fork begins without files, and a saved session has
    /// the files.
    pub async fn used_skills(&self) -> Vec<UsedSkill> {
        let files = self.inner.used.lock().files().to_vec();
        let mut prober = StateProber::new(self);
        let mut used = Vec::with_capacity(files.len());
        for file in files {
            let state = prober.find_state(&file).await;
            used.push(file.with_state(state));
        }
        used
    }

    /// Gives a model the files of [`Session::used_skills`] again, such as after a compaction: fragments
    /// of at most `budget` bytes together with the note, and never more than
    /// [`MAX_INJECTED_BYTES`](crate::MAX_INJECTED_BYTES). The session remembers the digests of the new
    /// fragments.
    ///
    /// ```
    /// use caproot_session::{MAX_INJECTED_BYTES, SessionOptions, UsedState};
    /// use serde_json::json;
    /// # mod demo { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/support/demo_session.rs")); }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let session = demo::start_demo_session(&SessionOptions::default()).await;
    /// session.call("skills.read", &json!({"package": "skill://demo/triage-logs"})).await;
    /// let used = session.used_skills().await;
    /// assert_eq!((used[0].name.as_str(), used[0].state), ("triage-logs", UsedState::Unchanged));
    ///
    /// let again = session.reinject(MAX_INJECTED_BYTES).await;
    /// assert!(again.fragments[0].fragment.text.contains("# Triage a log"));
    /// # }
    /// ```
    pub async fn reinject(&self, budget: usize) -> ReinjectedSkills {
        let budget = budget.min(MAX_INJECTED_BYTES);
        let note_room = MAX_NOTE_BYTES.min(budget / NOTE_SHARE);
        let mut reader = UsedFileReader {
            fragments: FragmentReader::new(self, budget - note_room),
            prober: StateProber::new(self),
            changed: Vec::new(),
            gone: Vec::new(),
            reinjected: ReinjectedSkills::default(),
        };

        let files = self.inner.used.lock().files().to_vec();
        for file in files {
            reader.read_file(file).await;
        }

        let mut note = String::new();
        write_files(&mut note, note_room, CHANGED_HEADING, &reader.changed);
        write_files(&mut note, note_room, GONE_HEADING, &reader.gone);
        ReinjectedSkills {
            note,
            ..reader.reinjected
        }
    }

    /// Returns a skill of the session that its source lists, or `None` if the skill is gone.
    fn find_used_skill(&self, owner: AuthoritySource<'_>, file: &UsedFile) -> Option<SharedSkill> {
        let skill = owner.find_skill(&file.package);
        self.check_choice(owner.source, skill.as_ref()).ok()?;
        skill
    }
}

/// Finder of the states of used files. Each wait for a lost source is long, so a source that does not
/// answer is asked only once.
struct StateProber<'a> {
    session: &'a Session,
    lost: HashSet<(SourceKind, &'a str)>,
}

impl<'a> StateProber<'a> {
    fn new(session: &'a Session) -> Self {
        Self {
            session,
            lost: HashSet::new(),
        }
    }

    async fn find_state(&mut self, file: &UsedFile) -> UsedState {
        if self.session.is_closed() {
            return UsedState::Unknown;
        }
        let Ok(owner) = self.session.find_authority(&file.kind, &file.root) else {
            return UsedState::Gone;
        };
        let source = owner.source;
        let key = (source.kind(), source.id());
        if source.snapshot().unavailable_reason.is_some() || self.lost.contains(&key) {
            return UsedState::Unknown;
        }
        let Some(skill) = self.session.find_used_skill(owner, file) else {
            return UsedState::Gone;
        };
        if skill.main_resource == file.resource {
            return file.compare_digest(&skill.digest);
        }

        let request = TextPageRequest {
            authority: file.root.clone(),
            package: file.package.clone(),
            resource: file.resource.clone(),
            ..TextPageRequest::default()
        };
        let read = read_fitting(source, request, PROBE_BYTES, &|page: &TextPage| {
            page.contents.len()
        });
        match self.session.inner.run_until_closed(read).await.flatten() {
            Ok(page) => file.compare_digest(&page.digest),
            Err(error) => {
                if error.code().is_source_unavailable() {
                    self.lost.insert(key);
                }
                state_of_error(&error)
            }
        }
    }
}

/// Returns the state of a file that could not be read.
fn state_of_error(error: &ToolError) -> UsedState {
    match error.code() {
        ToolErrorCode::PackageNotFound | ToolErrorCode::ResourceNotFound => UsedState::Gone,
        // The model had a text within the limits.
        ToolErrorCode::NotText | ToolErrorCode::TooLarge => UsedState::Changed,
        _ => UsedState::Unknown,
    }
}

/// Reader of the fragments of used files.
struct UsedFileReader<'a> {
    fragments: FragmentReader<'a>,
    prober: StateProber<'a>,
    changed: Vec<UsedFile>,
    gone: Vec<UsedFile>,
    reinjected: ReinjectedSkills,
}

impl UsedFileReader<'_> {
    /// Reads the fragment of a file, or records why there is none.
    async fn read_file(&mut self, file: UsedFile) {
        if !self.fragments.has_room() {
            let state = self.prober.find_state(&file).await;
            return self.omit(
                file,
                state,
                "no room for this file within the budget".to_owned(),
            );
        }

        let session = self.prober.session;
        let owner = session.find_authority(&file.kind, &file.root).ok();
        let skill = owner.and_then(|owner| session.find_used_skill(owner, &file));
        let Some(skill) = skill.filter(|_| !session.is_closed()) else {
            let state = self.prober.find_state(&file).await;
            return self.omit(
                file,
                state,
                "the session does not have the skill now".to_owned(),
            );
        };

        // The SKILL.md is read as the main resource, which also names the other files.
        let resource = if skill.main_resource == file.resource {
            ""
        } else {
            &file.resource
        };
        let read = self.fragments.read_file(&skill, resource, &file.arguments);
        match read.await {
            Ok(read) => self.add_fragment(&skill, file, read),
            Err(error) => {
                let state = if error.code() == ToolErrorCode::TooLarge {
                    self.prober.find_state(&file).await
                } else {
                    state_of_error(&error)
                };
                self.omit(file, state, error.sentence());
            }
        }
    }

    /// Adds a fragment. The session then has the digest of the fragment.
    fn add_fragment(&mut self, skill: &SharedSkill, file: UsedFile, read: ReadFragment) {
        let changed = file.compare_digest(&read.page.digest) == UsedState::Changed;
        self.prober.session.inner.used.lock().renew(UsedFile {
            arguments: file.arguments.clone(),
            ..UsedFile::of_page(skill, &read.page)
        });

        self.reinjected.fragments.push(ReinjectedFragment {
            resource: read.page.resource,
            changed,
            fragment: read.fragment,
        });
        if changed {
            self.changed.push(file);
        }
    }

    fn omit(&mut self, file: UsedFile, state: UsedState, reason: String) {
        let omitted = omitted_mention(&file.resource, reason);
        self.reinjected.omitted.push(omitted);
        match state {
            UsedState::Changed => self.changed.push(file),
            UsedState::Gone => self.gone.push(file),
            UsedState::Unchanged | UsedState::Unknown => {}
        }
    }
}

/// Writes a line for each file that fits into the room of the note for the model, and counts the others.
fn write_files(note: &mut String, room: usize, heading: &str, files: &[UsedFile]) {
    if files.is_empty() || note.len() + heading.len() + COUNT_BYTES > room {
        return;
    }
    note.push_str(heading);

    let mut unnamed = 0;
    for file in files {
        let name = single_line(&file.name);
        let line = format!("- {name} ({})\n", single_line(&file.resource));
        if note.len() + line.len() + COUNT_BYTES > room {
            unnamed += 1;
        } else {
            note.push_str(&line);
        }
    }
    if unnamed > 0 {
        let _ = writeln!(note, "- {unnamed} more");
    }
}

#[cfg(test)]
mod tests {
    use super::{CHANGED_HEADING, UsedFile, write_files};
    use proptest::prelude::*;

    fn file(name: &str) -> UsedFile {
        UsedFile {
            name: name.to_owned(),
            resource: format!("skill://r/{name}/SKILL.md"),
            ..UsedFile::default()
        }
    }

    #[test]
    fn a_note_counts_the_files_without_room() {
        let mut note = String::new();
        let files = [file("a\u{202e}\nb"), file("b"), file("c")];
        write_files(&mut note, 110, CHANGED_HEADING, &files);
        assert_eq!(
            note,
            format!(
                "{CHANGED_HEADING}- a\\u{{202e}} b (skill://r/a\\u{{202e}} b/SKILL.md)\n- 2 more\n"
            )
        );
    }

    proptest! {
        #[test]
        fn a_note_fits_into_its_room(names in prop::collection::vec("(?s).{0,40}", 0..128), room in 0_usize..1_024) {
            let files: Vec<_> = names.iter().map(|name| file(name)).collect();
            let mut note = String::new();
            write_files(&mut note, room, CHANGED_HEADING, &files);
            write_files(&mut note, room, CHANGED_HEADING, &files);
            prop_assert!(note.len() <= room, "{} bytes: {}", note.len(), note);
        }
    }
}
