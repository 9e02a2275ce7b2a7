//! Skills that a user mentioned, as fragments for a model. Skills are found by handle or name. Each
//! fragment and all fragments together have a size limit, and every omitted skill is reported.

use super::mentions::{ParsedMention, UserPrompt};
use crate::calls::files::{ListedDirectory, describe_files};
use crate::calls::fitting::read_fitting;
use crate::calls::package_lookup::similar_names;
use crate::skills::result::{ToolError, ToolErrorCode};
use crate::skills::skill::{AuthorityRef, SharedSkill};
use crate::skills::skill_source::{SkillSource, SourceKind, TextPage, TextPageRequest};
use crate::skills::tool_names::ToolNames;
use crate::state::Session;
use crate::text::fragment::{FragmentFrame, fitting_bytes};
use crate::text::placeholders::{
    MAX_ARGUMENT_BYTES, PlaceholderValues, PluginDirectory, SkillDirectories, long_arguments_reason,
};
use crate::uses::invocation::{InvocationGuard, InvocationKind, InvocationTarget};
use crate::uses::used::UsedFile;
use crate::view::session_view::SessionView;
use caproot_core::text::{escape_hidden_chars, truncate_with_ellipsis};
use serde::Serialize;
use std::borrow::Cow;
use std::cell::LazyCell;
use std::collections::{HashMap, HashSet};
use std::iter;
use tracing::Instrument as _;

/// Limit of one fragment in bytes.
pub const MAX_FRAGMENT_BYTES: usize = 8_000;
/// Limit of all fragments of one prompt in bytes.
pub const MAX_INJECTED_BYTES: usize = 32_000;
/// Bytes of a skill's text below which a fragment is not worth its overhead.
const MIN_BODY_BYTES: usize = 256;
/// Stand-in for an unknown cursor.
const CURSOR_PLACEHOLDER: &str = "____________________________________________________________________\
                              ____________________________________________________________________";
/// Limits of the candidates of one name: their number, and the bytes of each description.
const MAX_CANDIDATES: usize = 16;
const MAX_DESCRIPTION_BYTES: usize = 256;
/// Reason of a mention of a skill that is not `user_invocable`.
const CLOSED_REASON: &str = "the author of this skill does not let a person choose it";
/// Reason of a mention of a skill that the choice of the session leaves out.
const EXCLUDED_REASON: &str = "the skill is not in this session";
/// Limit of a repeated mention in bytes.
const MAX_MENTION_BYTES: usize = 256;

/// Skills that a prompt mentions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InjectedSkills {
    /// Fragments for the model, in the order of the mentions. External context, like every result:
    /// they belong into a user message, never into the system prompt.
    pub fragments: Vec<SkillFragment>,
    /// Names that match several skills. `fragments` has none of these skills for such a name.
    pub ambiguous: Vec<AmbiguousName>,
    /// Names of the caller's skills that a skill of the session replaces. The caller omits its own
    /// skill.
    pub replaced: Vec<String>,
    /// Mentions that are not in `fragments`.
    pub omitted: Vec<OmittedMention>,
}

/// Text of one skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillFragment {
    /// Name of the skill.
    pub name: String,
    /// Handle of the skill.
    pub package: String,
    /// Text from `<skill>` to `</skill>`, at most 8,000 bytes.
    pub text: String,
    /// Whether the text is truncated. A truncated text ends with the call that continues it.
    pub truncated: bool,
}

/// Name that matches several skills.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AmbiguousName {
    /// Name in the mention.
    pub name: String,
    /// Matching skills, at most 16.
    pub candidates: Vec<MentionCandidate>,
}

/// Skill that a name matches. `[$name](package)` mentions only this skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MentionCandidate {
    /// Name of the skill, which may begin with the name of a plugin: `deploy-plugin:deploy`.
    pub name: String,
    /// Kind of the authority: `executor`, `local`, `mcp` or `site`.
    pub kind: String,
    /// Id of the authority: the selected root of the skill.
    pub root: String,
    /// Handle of the skill.
    pub package: String,
    /// Description of the skill, at most 256 bytes.
    pub description: String,
}

/// Mentioned skill that could not be injected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OmittedMention {
    /// Name or handle of the mention, at most 256 bytes.
    pub mention: String,
    /// Reason, as a sentence.
    pub reason: String,
}

impl Session {
    /// Reads the skills that the user mentioned in a prompt or next to it, for a model. Skills that
    /// are hidden from models are included, and skills that are not `user_invocable` are not. A word
    /// of the text that matches no skill is ignored; every other mention that matches no skill is
    /// omitted with a reason.
    ///
    /// A mention is an entry of [`UserPrompt::mentions`], a link `[$name](handle)` or
    /// `[$name](path)`, or `$name` if one skill has the name. A path matches no skill. A tag in the
    /// text of a skill gets a backslash, so that no text ends its fragment. Three rules keep a mention
    /// from meaning another skill:
    ///
    /// - A word that is spelled like an environment variable, such as `$HOME`, is not a mention.
    /// - If a handle has no skill any more, the plain name next to it is not taken for another skill.
    /// - If no skill is named `deploy`, `$deploy` means `deploy-kit:deploy`, if no other plugin has a
    ///   skill `deploy`. Otherwise the candidates are in [`InjectedSkills::ambiguous`].
    pub async fn inject(&self, prompt: &UserPrompt) -> InjectedSkills {
        let view = self.current_view();
        let mut injected = InjectedSkills::default();
        let skills = resolve_mentions(self, &view, prompt, &mut injected);

        let mut reader = FragmentReader::new(self, MAX_INJECTED_BYTES);
        for skill in &skills {
            if prompt.arguments.len() > MAX_ARGUMENT_BYTES {
                injected.omit(&skill.package, long_arguments_reason());
                continue;
            }
            match reader.read_file(skill, "", &prompt.arguments).await {
                Ok(read) => {
                    let used = UsedFile {
                        arguments: prompt.arguments.clone(),
                        ..UsedFile::of_page(skill, &read.page)
                    };
                    self.inner.used.lock().record(used);
                    injected.fragments.push(read.fragment);
                }
                Err(error) => injected.omit(&skill.package, error.sentence()),
            }
        }
        injected
    }
}

/// Fragment with the page of the file that is its body.
pub struct ReadFragment {
    pub fragment: SkillFragment,
    pub page: TextPage,
}

/// Reader of the fragments of one prompt.
pub struct FragmentReader<'a> {
    session: &'a Session,
    /// Bytes that further fragments may have.
    room: usize,
    /// Errors of the unavailable sources. Each wait for a lost source is long, so the prompt waits
    /// for a source only once.
    lost: HashMap<(SourceKind, &'a str), ToolError>,
}

impl<'a> FragmentReader<'a> {
    /// Returns a reader of fragments of at most `room` bytes together.
    pub fn new(session: &'a Session, room: usize) -> Self {
        Self {
            session,
            room,
            lost: HashMap::new(),
        }
    }

    /// Returns whether a further fragment may fit.
    pub fn has_room(&self) -> bool {
        self.room > MIN_BODY_BYTES
    }

    /// Reads the fragment of a file of a skill, or returns the error for which the file is omitted. An
    /// empty resource is the main resource, which has the values of the arguments.
    pub async fn read_file(
        &mut self,
        skill: &SharedSkill,
        resource: &str,
        arguments: &str,
    ) -> Result<ReadFragment, ToolError> {
        let Session { inner, .. } = self.session;
        let AuthorityRef { kind, id } = AuthorityRef::of_skill(skill);
        let source = self.session.find_authority(kind, id)?.source;
        let key = (source.kind(), source.id());
        if let Some(error) = self.lost.get(&key) {
            return Err(error.clone());
        }

        let plugin = self.session.readable_plugin(source, skill);
        let directories = SkillDirectories {
            skill: &skill.package,
            plugin: plugin.map_or(PluginDirectory::Unknown, PluginDirectory::Handle),
        };
        let file = FragmentFile {
            skill,
            resource,
            room: self.room.min(MAX_FRAGMENT_BYTES),
            values: PlaceholderValues::new(arguments, directories),
        };

        let target = InvocationTarget::of_skill(source, &skill.package, Some(skill));
        let invocation =
            InvocationGuard::start(inner.invocation_session(), InvocationKind::Inject, target);
        let work = read_fragment(source, &file, inner.options.tool_names);
        let work = work.instrument(invocation.span());
        let read = inner.run_until_closed(work).await.flatten();
        invocation.finish_with_text(read.as_ref().map(|read| read.fragment.text.as_str()));

        match &read {
            Ok(read) => self.room -= read.fragment.text.len(),
            Err(error) if error.code().is_source_unavailable() => {
                self.lost.insert(key, error.clone());
            }
            Err(_) => {}
        }
        read
    }
}

/// File of a skill that becomes a fragment.
struct FragmentFile<'a> {
    skill: &'a SharedSkill,
    /// Handle of the file; empty for the main resource.
    resource: &'a str,
    /// Limit of the fragment in bytes.
    room: usize,
    /// Values of the placeholders of a main resource.
    values: PlaceholderValues<'a>,
}

impl FragmentFile<'_> {
    /// Returns the text of a page with its values. Only a main resource has placeholders.
    fn fill<'t>(&self, contents: &'t str) -> Cow<'t, str> {
        if self.resource.is_empty() {
            self.values.fill(contents)
        } else {
            Cow::Borrowed(contents)
        }
    }
}

/// Returns the frame of a file. The frame of a main resource names the other files of the skill.
async fn frame_file<'a>(
    source: &dyn SkillSource,
    file: &FragmentFile<'a>,
    names: ToolNames,
) -> Result<FragmentFrame<'a>, ToolError> {
    let skill = file.skill;
    let frame = FragmentFrame::new(skill, names);
    if !file.resource.is_empty() {
        return Ok(frame.with_resource(file.resource));
    }

    let listed = ListedDirectory {
        authority: AuthorityRef::of_skill(skill).id,
        package: &skill.package,
        directory: &format!("{}/", skill.package),
    };
    let files = match describe_files(source, &listed, &skill.main_resource).await {
        // The text of the skill would not come either.
        Err(error) if error.code().is_source_unavailable() => return Err(error),
        // Not every source can list files.
        files => files.unwrap_or_default(),
    };
    Ok(frame.with_files(files.as_deref()))
}

async fn read_fragment(
    source: &dyn SkillSource,
    file: &FragmentFile<'_>,
    names: ToolNames,
) -> Result<ReadFragment, ToolError> {
    let FragmentFile {
        skill,
        resource,
        room,
        ..
    } = *file;
    let frame = frame_file(source, file, names).await?;

    let handle = if resource.is_empty() {
        &skill.main_resource
    } else {
        resource
    };
    let truncated_frame = frame.truncated_at(handle, CURSOR_PLACEHOLDER);
    let truncated_overhead = truncated_frame.overhead();
    if truncated_overhead + MIN_BODY_BYTES > room {
        let message = names.fill_placeholders("no room for this skill here; read it with {read}");
        return Err(ToolError::from_code(ToolErrorCode::TooLarge, &message));
    }

    let request = TextPageRequest {
        authority: AuthorityRef::of_skill(skill).id.to_owned(),
        package: skill.package.clone(),
        resource: resource.to_owned(),
        ..TextPageRequest::default()
    };
    let page = read_fitting(source, request, room, &|page: &TextPage| {
        let frame = frame.truncated_at(&page.resource, &page.next_cursor);
        let body_room = room.saturating_sub(frame.overhead());
        let with_values = |text: &str| file.fill(text).into_owned();
        let bytes = fitting_bytes(&page.contents, body_room, with_values);
        if bytes == page.contents.len() || !page.next_cursor.is_empty() {
            return bytes;
        }
        // A truncated page needs a call and a cursor, which the whole page does not have.
        bytes.min(fitting_bytes(
            &page.contents,
            room - truncated_overhead,
            with_values,
        ))
    })
    .await?;

    let frame = frame.truncated_at(&page.resource, &page.next_cursor);
    let fragment = SkillFragment {
        name: skill.name.clone(),
        package: skill.package.clone(),
        text: frame.wrap_body(&file.fill(&page.contents)),
        truncated: !page.next_cursor.is_empty(),
    };
    Ok(ReadFragment { fragment, page })
}

/// Skills of a view by handle and name, for the mentions of one prompt.
struct MentionIndex<'a> {
    prompt: &'a UserPrompt,
    connectors: HashSet<&'a str>,
    /// Names that must not resolve to a skill.
    blocked: HashSet<&'a str>,
    /// Skills by package and by main resource.
    handles: HashMap<&'a str, Vec<&'a SharedSkill>>,
    names: HashMap<&'a str, Vec<&'a SharedSkill>>,
    /// Skills by name without the plugin's name: `deploy` for `deploy-plugin:deploy`.
    bare_names: HashMap<&'a str, Vec<&'a SharedSkill>>,
    /// Handles and names of the skills that a person may not choose.
    closed: HashSet<&'a str>,
    /// Names that mean a skill which is not approved now.
    reserved: &'a HashSet<String>,
}

/// Skills that a mention matches.
struct MentionMatches<'a> {
    /// Name or handle of the mention.
    mention: &'a str,
    skills: &'a [&'a SharedSkill],
}

impl InjectedSkills {
    fn omit(&mut self, mention: &str, reason: String) {
        self.omitted.push(omitted_mention(mention, reason));
    }

    /// Records a name that several skills have, with the first of these skills as candidates.
    fn record_ambiguous(&mut self, name: &str, skills: &[&SharedSkill]) {
        let candidates = skills.iter().take(MAX_CANDIDATES);
        self.ambiguous.push(AmbiguousName {
            name: name.to_owned(),
            candidates: candidates.map(|skill| mention_candidate(skill)).collect(),
        });
    }
}

/// Returns an omission with at most 256 bytes of the mention.
pub fn omitted_mention(mention: &str, reason: String) -> OmittedMention {
    OmittedMention {
        mention: truncate_with_ellipsis(mention, MAX_MENTION_BYTES),
        reason,
    }
}

impl<'a> MentionIndex<'a> {
    fn new(view: &'a SessionView, prompt: &'a UserPrompt, mentions: &'a [ParsedMention]) -> Self {
        let mut index = Self {
            prompt,
            connectors: prompt.connectors.iter().map(String::as_str).collect(),
            blocked: HashSet::new(),
            handles: HashMap::new(),
            names: HashMap::new(),
            bare_names: HashMap::new(),
            closed: HashSet::new(),
            reserved: &view.reserved_names,
        };
        for skill in &view.skills {
            if !skill.user_invocable {
                index.closed.extend(
                    [&skill.package, &skill.main_resource, &skill.name].map(String::as_str),
                );
                continue;
            }

            let other_handle = Some(&skill.main_resource).filter(|file| **file != skill.package);
            for handle in iter::once(&skill.package).chain(other_handle) {
                index.handles.entry(handle).or_default().push(skill);
            }

            index.names.entry(&skill.name).or_default().push(skill);
            if let Some((_, bare_name)) = skill.name.rsplit_once(':') {
                index.bare_names.entry(bare_name).or_default().push(skill);
            }
        }

        // A name next to a handle without a skill must not resolve to another skill with the name, as the
        // user picked a certain skill.
        for mention in mentions {
            if let ParsedMention::Handle { handle, name } = mention
                && index.find_by_handle(handle).is_empty()
            {
                let directory = handle.trim_end_matches("/SKILL.md").rsplit('/').next();
                let name = Some(name.as_str()).filter(|name| !name.is_empty());
                index.blocked.extend(name.or(directory));
            }
        }
        index
    }

    fn find_by_handle(&self, handle: &str) -> &[&'a SharedSkill] {
        self.handles
            .get(handle)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// Returns the skills with this name. If there are none and the caller has no skill with the
    /// name, returns the skills with the name after a plugin's name.
    fn find_by_name(&self, name: &str) -> &[&'a SharedSkill] {
        if self.blocked.contains(name) {
            return &[];
        }
        if let Some(skills) = self.names.get(name) {
            return skills;
        }

        if self.reserved.contains(name) {
            return &[];
        }
        match self.bare_names.get(name) {
            Some(skills) if !self.prompt.caller_skills.iter().any(|skill| skill == name) => skills,
            _ => &[],
        }
    }

    /// Returns the skills that a mention matches, or `None` if a word of the text is no mention. A word
    /// matches the skills of its first candidate that is the name of a skill.
    fn find_matches<'m>(&'m self, mention: &'m ParsedMention) -> Option<MentionMatches<'m>> {
        match mention {
            // Two sources may have one handle: the mention is then ambiguous.
            ParsedMention::Handle { handle, .. } => Some(MentionMatches {
                mention: handle,
                skills: self.find_by_handle(handle),
            }),
            ParsedMention::Name(name) => Some(MentionMatches {
                mention: name,
                skills: self.find_by_name(name),
            }),
            ParsedMention::Word(words) => {
                let mut words = words.iter().map(String::as_str);
                if words.clone().any(|word| self.connectors.contains(word)) {
                    return None;
                }
                let mention = words.find(|word| !self.find_by_name(word).is_empty())?;
                let skills = self.find_by_name(mention);
                Some(MentionMatches { mention, skills })
            }
        }
    }
}

/// Returns the mentioned skills without duplicates, and records all other mentions in `injected`.
fn resolve_mentions(
    session: &Session,
    view: &SessionView,
    prompt: &UserPrompt,
    injected: &mut InjectedSkills,
) -> Vec<SharedSkill> {
    let mentions = prompt.parse_mentions();
    let index = MentionIndex::new(view, prompt, &mentions);
    // Only a mention without a skill needs these names, and each listing is read for them.
    let excluded = LazyCell::new(|| excluded_skills(session));

    let mut skills = Vec::new();
    let mut seen = HashSet::new();
    let mut ambiguous = HashSet::new();
    for mention in &mentions {
        let Some(found) = index.find_matches(mention) else {
            if let ParsedMention::Word(words) = mention
                && let Some(name) = words.iter().find(|word| excluded.contains(*word))
            {
                injected.omit(name, EXCLUDED_REASON.to_owned());
            }
            continue;
        };

        match found.skills {
            [] => {
                let reason = if index.closed.contains(found.mention) {
                    CLOSED_REASON.to_owned()
                } else if excluded.contains(found.mention) {
                    EXCLUDED_REASON.to_owned()
                } else {
                    missing_reason(mention).to_owned() + &similar_names(view, found.mention)
                };
                injected.omit(found.mention, reason);
            }
            [skill] => {
                let AuthorityRef { kind, id } = AuthorityRef::of_skill(skill);
                if seen.insert((kind, id, skill.package.as_str())) {
                    skills.push(SharedSkill::clone(skill));
                    if prompt.caller_skills.contains(&skill.name) {
                        injected.replaced.push(skill.name.clone());
                    }
                }
            }
            [first, ..] => {
                let name = match mention {
                    ParsedMention::Handle { .. } => first.name.as_str(),
                    ParsedMention::Name(_) | ParsedMention::Word(_) => found.mention,
                };
                if ambiguous.insert(name) {
                    injected.record_ambiguous(name, found.skills);
                }
            }
        }
    }

    skills
}

/// Returns the names and handles of the skills that the choice of the session leaves out.
fn excluded_skills(session: &Session) -> HashSet<String> {
    let choice = &session.inner.options.choice;
    let mut excluded = HashSet::new();
    for source in session.sources().iter().filter(|_| !choice.is_empty()) {
        let listing = source.snapshot().listing;
        excluded.extend(
            listing
                .skills
                .iter()
                .filter(|skill| !choice.includes_skill(&**source, skill))
                .flat_map(|skill| [skill.name.clone(), skill.package.clone()]),
        );
    }
    excluded
}

fn missing_reason(mention: &ParsedMention) -> &'static str {
    match mention {
        ParsedMention::Handle { handle, .. } if !handle.contains("://") => {
            "a path is no handle of a skill; name the skill, or use its handle"
        }
        ParsedMention::Handle { .. } => {
            "no skill of this session has this handle now; name the skill again"
        }
        ParsedMention::Name(_) | ParsedMention::Word(_) => {
            "no skill of this session has this name now"
        }
    }
}

fn mention_candidate(skill: &SharedSkill) -> MentionCandidate {
    let AuthorityRef { kind, id } = AuthorityRef::of_skill(skill);
    MentionCandidate {
        name: skill.name.clone(),
        kind: kind.to_owned(),
        root: id.to_owned(),
        package: skill.package.clone(),
        description: truncate_with_ellipsis(
            &escape_hidden_chars(&skill.description),
            MAX_DESCRIPTION_BYTES,
        ),
    }
}
