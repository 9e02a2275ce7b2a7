//! Skills that a user mentioned, as fragments for a model. Skills are found by handle or name. Each
//! fragment and all fragments together have a size limit, and every omitted skill is reported.

use super::fitting::read_fitting;
use super::fragment::{FragmentFrame, fitting_bytes};
use super::mentions::{ParsedMention, UserPrompt};
use super::metrics::{InvocationGuard, InvocationKind};
use super::result::{ToolError, ToolErrorCode};
use super::skill::{AuthorityRef, SharedSkill};
use super::skill_source::{SkillSource, SourceKind, TextPage, TextPageRequest};
use super::state::{Session, session_closed_error};
use super::tool_names::ToolNames;
use super::view::SessionView;
use caproot_core::text::{escape_hidden_chars, truncate_with_ellipsis};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
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
/// Limit of a repeated mention in bytes.
const MAX_MENTION_BYTES: usize = 256;

/// Skills that a prompt mentions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SkillFragment {
    /// Name of the skill.
    pub name: String,
    /// Handle of the skill.
    pub package: String,
    /// Text from `<skill>` to `</skill>`, at most [`MAX_FRAGMENT_BYTES`] bytes.
    pub text: String,
    /// Whether the text is truncated. A truncated text ends with the call that continues it.
    pub truncated: bool,
}

/// Name that matches several skills.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AmbiguousName {
    /// Name in the mention.
    pub name: String,
    /// Matching skills, at most 16.
    pub candidates: Vec<MentionCandidate>,
}

/// Skill that a name matches. `[$name](package)` mentions only this skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MentionCandidate {
    /// Name of the skill, which may begin with the name of a plugin: `deploy-plugin:deploy`.
    pub name: String,
    /// Kind of the authority: `executor`, `local` or `mcp`.
    pub kind: String,
    /// Id of the authority: the selected root of the skill.
    pub root: String,
    /// Handle of the skill.
    pub package: String,
    /// Description of the skill, at most 256 bytes.
    pub description: String,
}

/// Mentioned skill that could not be injected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OmittedMention {
    /// Name or handle of the mention, at most 256 bytes.
    pub mention: String,
    /// Reason, as a sentence.
    pub reason: String,
}

impl Session {
    /// Reads the skills that the user mentioned in a prompt or next to it, for a model. Skills that
    /// only a user may invoke are included. A name that matches no skill is ignored; a handle that
    /// matches no skill is omitted with a reason.
    ///
    /// A mention is an entry of [`UserPrompt::mentions`], a link `[$name](handle)`, or `$name` if
    /// one skill has the name. A tag in the text of a skill gets a backslash, so that no text ends
    /// its fragment. Three rules keep a mention from meaning another skill:
    ///
    /// - A word that is spelled like an environment variable, such as `$HOME`, is not a mention.
    /// - If a handle has no skill any more, the plain name next to it is not taken for another skill.
    /// - If no skill is named `deploy`, `$deploy` means `deploy-kit:deploy`, if no other plugin has a
    ///   skill `deploy`. Otherwise the candidates are in [`InjectedSkills::ambiguous`].
    pub async fn inject(&self, prompt: &UserPrompt) -> InjectedSkills {
        inject_mentioned(self, prompt).await
    }
}

/// Reads the skills that a prompt mentions.
async fn inject_mentioned(session: &Session, prompt: &UserPrompt) -> InjectedSkills {
    let view = session.current_view();
    let mut injected = InjectedSkills::default();
    let skills = resolve_mentions(&view, prompt, &mut injected);
    let mut room = MAX_INJECTED_BYTES;
    // Each wait for a lost source is long, so the prompt waits for a source only once.
    let mut lost: HashMap<(SourceKind, &str), String> = HashMap::new();
    for skill in &skills {
        let AuthorityRef { kind, id } = AuthorityRef::of_skill(skill);
        let read = match session.source_for_authority(kind, id) {
            Err(error) => Err(error.sentence()),
            Ok(source) => {
                let key = (source.kind(), source.id());
                if let Some(reason) = lost.get(&key) {
                    Err(reason.clone())
                } else {
                    let room = room.min(MAX_FRAGMENT_BYTES);
                    let fragment = inject_skill(session, source, skill, room).await;
                    fragment.map_err(|error| {
                        let reason = error.sentence();
                        if error.code().is_source_unavailable() {
                            lost.insert(key, reason.clone());
                        }
                        reason
                    })
                }
            }
        };
        match read {
            Ok(fragment) => {
                room -= fragment.text.len();
                injected.fragments.push(fragment);
            }
            Err(reason) => {
                let mention = truncate_with_ellipsis(&skill.package, MAX_MENTION_BYTES);
                injected.omitted.push(OmittedMention { mention, reason });
            }
        }
    }
    injected
}

/// Reads a fragment and records the invocation.
async fn inject_skill(
    session: &Session,
    source: &dyn SkillSource,
    skill: &SharedSkill,
    room: usize,
) -> Result<SkillFragment, ToolError> {
    let inner = &session.inner;
    let key = (source.kind().name(), source.id());
    let kind = InvocationKind::Inject;
    let invocation = InvocationGuard::start(&inner.counters, kind, key, &skill.package);
    let work = read_fragment(source, skill, room, &inner.tool_names).instrument(invocation.span());
    let fragment = inner.run_until_closed(work).await;
    let fragment = fragment.unwrap_or_else(|| Err(session_closed_error()));
    invocation.finish_with_fragment(fragment.as_ref().map(|fragment| fragment.text.as_str()));
    fragment
}

async fn read_fragment(
    source: &dyn SkillSource,
    skill: &SharedSkill,
    room: usize,
    names: &ToolNames,
) -> Result<SkillFragment, ToolError> {
    let truncated_overhead = FragmentFrame::for_skill(skill)
        .truncated_at(skill, &skill.main_resource, CURSOR_PLACEHOLDER, names)
        .overhead();
    if truncated_overhead + MIN_BODY_BYTES > room {
        let message = names.fill_placeholders("no room for this skill here; read it with {read}");
        return Err(ToolError::from_code(ToolErrorCode::TooLarge, &message));
    }
    let fit = |page: &TextPage| {
        let whole = room.saturating_sub(frame_page(skill, page, names).overhead());
        let bytes = fitting_bytes(&page.contents, whole);
        if bytes == page.contents.len() || !page.next_cursor.is_empty() {
            return bytes;
        }
        // A truncated page needs a call and a cursor, which the whole page does not have.
        bytes.min(fitting_bytes(&page.contents, room - truncated_overhead))
    };
    let request = TextPageRequest {
        authority: AuthorityRef::of_skill(skill).id.to_owned(),
        package: skill.package.clone(),
        ..TextPageRequest::default()
    };
    let page = read_fitting(source, request, room, &fit).await?;
    Ok(SkillFragment {
        name: skill.name.clone(),
        package: skill.package.clone(),
        text: frame_page(skill, &page, names).wrap_body(&page.contents),
        truncated: !page.next_cursor.is_empty(),
    })
}

fn frame_page(skill: &SharedSkill, page: &TextPage, names: &ToolNames) -> FragmentFrame {
    let frame = FragmentFrame::for_skill(skill);
    if page.next_cursor.is_empty() {
        return frame;
    }
    frame.truncated_at(skill, &page.resource, &page.next_cursor, names)
}

/// Skills of a view, by handle and name.
struct MentionIndex<'a> {
    /// Skills by package and by main resource.
    handles: HashMap<&'a str, Vec<&'a SharedSkill>>,
    names: HashMap<&'a str, Vec<&'a SharedSkill>>,
    /// Skills by name without the plugin's name: `deploy` for `deploy-plugin:deploy`.
    bare_names: HashMap<&'a str, Vec<&'a SharedSkill>>,
}

impl<'a> MentionIndex<'a> {
    fn from_view(view: &'a SessionView) -> Self {
        let (mut handles, mut names) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        let mut bare_names = HashMap::<_, Vec<_>>::new();
        for skill in &view.skills {
            handles
                .entry(skill.package.as_str())
                .or_default()
                .push(skill);
            if skill.main_resource != skill.package {
                handles
                    .entry(skill.main_resource.as_str())
                    .or_default()
                    .push(skill);
            }
            names.entry(skill.name.as_str()).or_default().push(skill);
            if let Some((_, bare)) = skill.name.rsplit_once(':') {
                bare_names.entry(bare).or_default().push(skill);
            }
        }
        Self {
            handles,
            names,
            bare_names,
        }
    }

    fn find_by_handle(&self, handle: &str) -> &[&'a SharedSkill] {
        self.handles
            .get(handle)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// Returns the skills with this name. If there are none and the caller has no skill with the
    /// name, returns the skills with the name after a plugin's name.
    fn find_by_name(&self, name: &str, prompt: &UserPrompt) -> &[&'a SharedSkill] {
        let is_callers = || prompt.caller_skills.iter().any(|skill| skill == name);
        let bare = || self.bare_names.get(name).filter(|_| !is_callers());
        self.names
            .get(name)
            .or_else(bare)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }
}

/// Returns the mentioned skills without duplicates, and records all other mentions in `injected`.
fn resolve_mentions(
    view: &SessionView,
    prompt: &UserPrompt,
    injected: &mut InjectedSkills,
) -> Vec<SharedSkill> {
    let index = MentionIndex::from_view(view);
    let (mut skills, mut seen) = (Vec::new(), HashSet::new());
    let connectors: HashSet<&String> = prompt.connectors.iter().collect();
    let mut ambiguous = HashSet::new();
    let mentions = prompt.parse_mentions();
    let blocked = names_of_missing_handles(&index, &mentions);
    for mention in &mentions {
        let (name, matches) = match mention {
            // Two sources may have one handle: the mention is then ambiguous.
            ParsedMention::Handle { handle, .. } => (handle, index.find_by_handle(handle)),
            ParsedMention::Name(name) if blocked.contains(name.as_str()) => (name, &[][..]),
            ParsedMention::Name(name) => (name, index.find_by_name(name, prompt)),
            ParsedMention::Word(words) if words.iter().any(|word| connectors.contains(word)) => {
                continue;
            }
            ParsedMention::Word(words) => {
                let open = words.iter().filter(|word| !blocked.contains(word.as_str()));
                let each = open.map(|word| (word, index.find_by_name(word, prompt)));
                match each.into_iter().find(|(_, skills)| !skills.is_empty()) {
                    Some(found) => found,
                    None => continue,
                }
            }
        };
        match matches {
            [skill] => {
                let AuthorityRef { kind, id } = AuthorityRef::of_skill(skill);
                if seen.insert((kind, id, skill.package.as_str())) {
                    skills.push(SharedSkill::clone(skill));
                    if prompt.caller_skills.contains(&skill.name) {
                        injected.replaced.push(skill.name.clone());
                    }
                }
            }
            [] => injected.omitted.push(OmittedMention {
                mention: truncate_with_ellipsis(name, MAX_MENTION_BYTES),
                reason: missing_reason(mention),
            }),
            [first, ..] => {
                let name = if let ParsedMention::Handle { .. } = mention {
                    &first.name
                } else {
                    name
                };
                if ambiguous.insert(name) {
                    let candidates = matches
                        .iter()
                        .take(MAX_CANDIDATES)
                        .map(|s| mention_candidate(s));
                    let (name, candidates) = (name.clone(), candidates.collect());
                    injected.ambiguous.push(AmbiguousName { name, candidates });
                }
            }
        }
    }
    skills
}

/// Returns the plain names next to a handle without a skill. Such a name must not resolve to
/// another skill with the same name, as the user picked a certain skill.
fn names_of_missing_handles<'a>(
    index: &MentionIndex<'_>,
    mentions: &'a [ParsedMention],
) -> HashSet<&'a str> {
    let lost = mentions.iter().filter_map(|mention| match mention {
        ParsedMention::Handle { handle, name } if index.find_by_handle(handle).is_empty() => {
            let directory = handle.trim_end_matches("/SKILL.md").rsplit('/').next();
            Some(if name.is_empty() {
                directory.unwrap_or_default()
            } else {
                name
            })
        }
        _ => None,
    });
    lost.collect()
}

fn missing_reason(mention: &ParsedMention) -> String {
    match mention {
        ParsedMention::Handle { .. } => {
            "no skill of this session has this handle now; name the skill again".to_owned()
        }
        ParsedMention::Name(_) | ParsedMention::Word(_) => {
            "no skill of this session has this name now".to_owned()
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
