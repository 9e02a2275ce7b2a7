//! Skills that a person named, as fragments for a model: found by handle or name, read, framed, bounded
//! each and all together. What cannot be is said. Leaves finding names to `mentions`.

use super::fitting::read_fitting;
use super::fragment::{FragmentFrame, fitting_bytes};
use super::invocation::InvocationGuard;
use super::lifecycle::session_closed_error;
use super::list::AuthorityRef;
use super::mentions::{ParsedMention, UserPrompt};
use super::metrics::InvocationKind;
use super::result::{ToolError, ToolErrorCode};
use super::source::{SkillSource, SourceKind, TextPage, TextPageRequest};
use super::text::truncate_with_ellipsis;
use super::view::SessionView;
use super::{Session, SharedSkill, ToolNames};
use crate::hidden_chars::escape_hidden_chars;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use tracing::Instrument as _;

/// The most bytes of one fragment.
pub const MAX_FRAGMENT_BYTES: usize = 8_000;
/// The most bytes of all fragments of one prompt.
pub const MAX_INJECTED_BYTES: usize = 32_000;
/// A fragment with less of its skill's text than this is not worth its place.
const MIN_BODY_BYTES: usize = 256;
/// What a cursor takes, before one is known.
const CURSOR_PLACEHOLDER: &str = "____________________________________________________________________\
                              ____________________________________________________________________";
/// The most candidates of one name, and the most bytes of the description of each.
const MAX_CANDIDATES: usize = 16;
const MAX_DESCRIPTION_BYTES: usize = 256;
/// The most bytes of what was named that are repeated.
const MAX_MENTION_BYTES: usize = 256;

/// What the skills that a prompt names come to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InjectedSkills {
    /// For the model, in the order in which the skills were named. External context, as all results are.
    pub fragments: Vec<SkillFragment>,
    /// Names that can mean several skills; none of these skills is in `fragments` for such a name.
    pub ambiguous: Vec<AmbiguousName>,
    /// Names of the caller's own skills that were taken by one of an executor: the caller leaves its own
    /// out.
    pub replaced: Vec<String>,
    /// What was named and is not in `fragments`.
    pub omitted: Vec<OmittedMention>,
}

/// One skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SkillFragment {
    /// Its name.
    pub name: String,
    /// Its handle.
    pub package: String,
    /// The text, from `<skill>` to `</skill>`, at most [`MAX_FRAGMENT_BYTES`] bytes.
    pub text: String,
    /// Whether it is cut; it then ends with the call that goes on.
    pub truncated: bool,
}

/// A name that can mean several skills.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AmbiguousName {
    /// The name.
    pub name: String,
    /// The skills that the name can mean, at most 16.
    pub candidates: Vec<MentionCandidate>,
}

/// One skill that a name can mean. `[$name](package)` names it alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MentionCandidate {
    /// Its name, which may begin with the name of a plugin: `deploy-plugin:deploy`.
    pub name: String,
    /// Its authority's kind: `executor`, `local` or `mcp`.
    pub kind: String,
    /// Its authority's id: the selected root that it is of.
    pub root: String,
    /// Its handle.
    pub package: String,
    /// What it says of itself, at most 256 bytes.
    pub description: String,
}

/// A skill that was named and could not be injected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OmittedMention {
    /// How it was named, at most 256 bytes.
    pub mention: String,
    /// Why it is not there: a sentence.
    pub reason: String,
}

impl Session {
    /// The skills that a person named in a prompt or beside it, for a model; those that only a person may
    /// call are there to be called so. Names that are no skill's are nobody's business; a handle that is
    /// none's is left out with a reason.
    pub async fn inject(&self, prompt: &UserPrompt) -> InjectedSkills {
        let view = self.current_view();
        let mut injected = InjectedSkills::default();
        let skills = resolve_mentions(&view, prompt, &mut injected);
        let mut room = MAX_INJECTED_BYTES;
        // Of a source that did not answer, nothing more is asked for: each wait is long.
        let mut lost: HashMap<(SourceKind, &str), String> = HashMap::new();
        for skill in &skills {
            let read = match self.source_of_skill(skill) {
                Err(refusal) => Err(refusal.sentence()),
                Ok(source) => {
                    let who = (source.kind(), source.id());
                    if let Some(why) = lost.get(&who) {
                        Err(why.clone())
                    } else {
                        let room = room.min(MAX_FRAGMENT_BYTES);
                        let fragment = self.inject_skill(source, skill, room).await;
                        fragment.map_err(|refusal| {
                            let why = refusal.sentence();
                            if refusal.code.is_source_unavailable() {
                                lost.insert(who, why.clone());
                            }
                            why
                        })
                    }
                }
            };
            match read {
                Ok(fragment) => {
                    room -= fragment.text.len();
                    injected.fragments.push(fragment);
                }
                Err(why) => {
                    let named = truncate_with_ellipsis(&skill.package, MAX_MENTION_BYTES);
                    injected.omitted.push(OmittedMention { mention: named, reason: why });
                }
            }
        }
        injected
    }

    /// A fragment, counted.
    async fn inject_skill(
        &self,
        source: &dyn SkillSource,
        skill: &SharedSkill,
        room: usize,
    ) -> Result<SkillFragment, ToolError> {
        let who = (source.kind().name(), source.id());
        let counters = &self.inner.counters;
        let invocation =
            InvocationGuard::start(counters, InvocationKind::Inject, who, &skill.package);
        let names = &self.inner.tool_names;
        let work = read_fragment(source, skill, room, names).instrument(invocation.span());
        let fragment =
            self.inner.run_until_closed(work).await.unwrap_or_else(|| Err(session_closed_error()));
        invocation.finish_with_fragment(fragment.as_ref().map(|fragment| fragment.text.as_str()));
        fragment
    }

    fn source_of_skill(&self, skill: &SharedSkill) -> Result<&dyn SkillSource, ToolError> {
        let AuthorityRef { kind, id } = AuthorityRef::of_skill(skill);
        self.source_for_authority(kind, id)
    }
}

async fn read_fragment(
    source: &dyn SkillSource,
    skill: &SharedSkill,
    room: usize,
    names: &ToolNames,
) -> Result<SkillFragment, ToolError> {
    let least = FragmentFrame::for_skill(skill)
        .truncated_at(skill, &skill.main_resource, CURSOR_PLACEHOLDER, names)
        .overhead();
    if least + MIN_BODY_BYTES > room {
        let message = names.fill_placeholders("there is no room for it here; {read} reads it");
        return Err(ToolError::from_code(ToolErrorCode::TooLarge, &message));
    }
    let fit = |page: &TextPage| {
        let whole = room.saturating_sub(frame_page(skill, page, names).overhead());
        let bytes = fitting_bytes(&page.contents, whole);
        if bytes == page.contents.len() || !page.next_cursor.is_empty() {
            return bytes;
        }
        // Cut, it has a call and a cursor that it has not whole.
        bytes.min(fitting_bytes(&page.contents, room - least))
    };
    let wanted = TextPageRequest {
        authority: AuthorityRef::of_skill(skill).id.to_owned(),
        package: skill.package.clone(),
        ..TextPageRequest::default()
    };
    let page = read_fitting(source, wanted, room, &fit).await?;
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

/// A view's skills by whatever names them.
struct MentionIndex<'a> {
    /// By package and by main resource.
    handles: HashMap<&'a str, Vec<&'a SharedSkill>>,
    names: HashMap<&'a str, Vec<&'a SharedSkill>>,
    /// By the name without the plugin's: `deploy` for `deploy-plugin:deploy`.
    bare_names: HashMap<&'a str, Vec<&'a SharedSkill>>,
}

impl<'a> MentionIndex<'a> {
    fn from_view(view: &'a SessionView) -> Self {
        let (mut handles, mut names) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        let mut bare_names = HashMap::<_, Vec<_>>::new();
        for skill in &view.skills {
            handles.entry(skill.package.as_str()).or_default().push(skill);
            if skill.main_resource != skill.package {
                handles.entry(skill.main_resource.as_str()).or_default().push(skill);
            }
            names.entry(skill.name.as_str()).or_default().push(skill);
            if let Some((_, bare)) = skill.name.rsplit_once(':') {
                bare_names.entry(bare).or_default().push(skill);
            }
        }
        Self { handles, names, bare_names }
    }

    fn find_by_handle(&self, handle: &str) -> &[&'a SharedSkill] {
        self.handles.get(handle).map(Vec::as_slice).unwrap_or_default()
    }

    /// The skills with this name; if there are none, the skills of plugins that have it behind the
    /// plugin's name, unless the caller has a skill with the name.
    fn find_by_name(&self, name: &str, prompt: &UserPrompt) -> &[&'a SharedSkill] {
        let is_own = || prompt.caller_skills.iter().any(|own| own == name);
        let bare = || self.bare_names.get(name).filter(|_| !is_own());
        self.names.get(name).or_else(bare).map(Vec::as_slice).unwrap_or_default()
    }
}

/// The skills that are meant, each once.
fn resolve_mentions(
    view: &SessionView,
    prompt: &UserPrompt,
    injected: &mut InjectedSkills,
) -> Vec<SharedSkill> {
    let index = MentionIndex::from_view(view);
    let (mut skills, mut taken) = (Vec::new(), HashSet::new());
    let connectors: HashSet<&String> = prompt.connectors.iter().collect();
    let mut several = HashSet::new();
    let named = prompt.parse_mentions();
    let blocked = names_of_missing_handles(&index, &named);
    for named in &named {
        let (name, meant) = match named {
            // One handle may be of two sources: neither is taken for the other.
            ParsedMention::Handle { handle, .. } => (handle, index.find_by_handle(handle)),
            ParsedMention::Name(name) if blocked.contains(name.as_str()) => (name, &[][..]),
            ParsedMention::Name(name) => (name, index.find_by_name(name, prompt)),
            ParsedMention::Word(words) if words.iter().any(|word| connectors.contains(word)) => {
                continue;
            }
            ParsedMention::Word(words) => {
                let open = words.iter().filter(|word| !blocked.contains(word.as_str()));
                let each = open.map(|word| (word, index.find_by_name(word, prompt)));
                match each.into_iter().find(|(_, meant)| !meant.is_empty()) {
                    Some(found) => found,
                    None => continue,
                }
            }
        };
        match meant {
            [skill] => {
                let AuthorityRef { kind, id } = AuthorityRef::of_skill(skill);
                if taken.insert((kind, id, skill.package.as_str())) {
                    skills.push(SharedSkill::clone(skill));
                    if prompt.caller_skills.contains(&skill.name) {
                        injected.replaced.push(skill.name.clone());
                    }
                }
            }
            [] => injected.omitted.push(OmittedMention {
                mention: truncate_with_ellipsis(name, MAX_MENTION_BYTES),
                reason: missing_reason(named),
            }),
            [first, ..] => {
                let name =
                    if let ParsedMention::Handle { .. } = named { &first.name } else { name };
                if several.insert(name) {
                    let candidates =
                        meant.iter().take(MAX_CANDIDATES).map(|s| mention_candidate(s));
                    let (name, candidates) = (name.clone(), candidates.collect());
                    injected.ambiguous.push(AmbiguousName { name, candidates });
                }
            }
        }
    }
    skills
}

/// The plain names that stand next to a handle without a skill. Such a name must not fall back to
/// another skill with the same name: the person picked a certain one.
fn names_of_missing_handles<'a>(
    index: &MentionIndex<'_>,
    named: &'a [ParsedMention],
) -> HashSet<&'a str> {
    let lost = named.iter().filter_map(|named| match named {
        ParsedMention::Handle { handle, name } if index.find_by_handle(handle).is_empty() => {
            let directory = handle.trim_end_matches("/SKILL.md").rsplit('/').next();
            Some(if name.is_empty() { directory.unwrap_or_default() } else { name })
        }
        _ => None,
    });
    lost.collect()
}

fn missing_reason(named: &ParsedMention) -> String {
    match named {
        ParsedMention::Handle { .. } => {
            "no skill of this session has this handle now; name the skill again".to_owned()
        }
        ParsedMention::Name(_) | ParsedMention::Word(_) => {
            "no skill of this session is meant by it now".to_owned()
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
