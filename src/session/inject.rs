//! Skills that a person named, as fragments for a model: found by handle or name, read, framed, bounded
//! each and all together. What cannot be is said. Leaves finding names to `mentions`.

use super::fitting::read_fitting;
use super::fragment::{Frame, fits};
use super::invocation::Invocation;
use super::lifecycle::closed;
use super::list::Authority;
use super::mentions::{Named, Prompt};
use super::metrics::How;
use super::one_line::cut;
use super::result::{Code, Refusal};
use super::source::{SkillSource, SourceKind, TextPage, Wanted};
use super::view::View;
use super::{Session, SharedSkill, ToolNames};
use crate::hidden::escape_hidden;
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
const TYPICAL_CURSOR: &str = "____________________________________________________________________\
                              ____________________________________________________________________";
/// The most candidates of one name, and the most bytes of the description of each.
const MAX_CANDIDATES: usize = 16;
const MAX_DESCRIPTION_BYTES: usize = 256;
/// The most bytes of what was named that are repeated.
const MAX_NAMED_BYTES: usize = 256;

/// What the skills that a prompt names come to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Injected {
    /// For the model, in the order in which the skills were named. External context, as all results are.
    pub fragments: Vec<Fragment>,
    /// Names that can mean several skills; none of these skills is in `fragments` for such a name.
    pub ambiguous: Vec<Ambiguous>,
    /// Names of the caller's own skills that were taken by one of an executor: the caller leaves its own
    /// out.
    pub replaced: Vec<String>,
    /// What was named and is not in `fragments`.
    pub left_out: Vec<LeftOut>,
}

/// One skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fragment {
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
pub struct Ambiguous {
    /// The name.
    pub name: String,
    /// The skills that the name can mean, at most 16.
    pub candidates: Vec<Candidate>,
}

/// One skill that a name can mean. `[$name](package)` names it alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
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
pub struct LeftOut {
    /// How it was named, at most 256 bytes.
    pub named: String,
    /// Why it is not there: a sentence.
    pub why: String,
}

impl Session {
    /// The skills that a person named in a prompt or beside it, for a model; those that only a person may
    /// call are there to be called so. Names that are no skill's are nobody's business; a handle that is
    /// none's is left out with a reason.
    pub async fn inject(&self, prompt: &Prompt) -> Injected {
        let view = self.view();
        let mut injected = Injected::default();
        let skills = found(&view, prompt, &mut injected);
        let mut room = MAX_INJECTED_BYTES;
        // Of a source that did not answer, nothing more is asked for: each wait is long.
        let mut lost: HashMap<(SourceKind, &str), String> = HashMap::new();
        for skill in &skills {
            let read = match self.source_of(skill) {
                Err(refusal) => Err(refusal.sentence()),
                Ok(source) => {
                    let who = (source.kind(), source.id());
                    if let Some(why) = lost.get(&who) {
                        Err(why.clone())
                    } else {
                        let room = room.min(MAX_FRAGMENT_BYTES);
                        let fragment = self.invoked(source, skill, room).await;
                        fragment.map_err(|refusal| {
                            let why = refusal.sentence();
                            if refusal.code.is_of_lost_source() {
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
                    let named = cut(&skill.package, MAX_NAMED_BYTES);
                    injected.left_out.push(LeftOut { named, why });
                }
            }
        }
        injected
    }

    /// A fragment, counted.
    async fn invoked(
        &self,
        source: &dyn SkillSource,
        skill: &SharedSkill,
        room: usize,
    ) -> Result<Fragment, Refusal> {
        let who = (source.kind().name(), source.id());
        let counters = &self.life.counters;
        let invocation = Invocation::begin(counters, How::Inject, who, &skill.package);
        let names = &self.life.tool_names;
        let work = fragment(source, skill, room, names).instrument(invocation.span());
        let fragment = self.life.unless_closed(work).await.unwrap_or_else(|| Err(closed()));
        invocation.injected(fragment.as_ref().map(|fragment| fragment.text.as_str()));
        fragment
    }

    fn source_of(&self, skill: &SharedSkill) -> Result<&dyn SkillSource, Refusal> {
        let Authority { kind, id } = Authority::of(skill);
        self.source(kind, id)
    }
}

async fn fragment(
    source: &dyn SkillSource,
    skill: &SharedSkill,
    room: usize,
    names: &ToolNames,
) -> Result<Fragment, Refusal> {
    let least = Frame::of(skill).cut_at(skill, &skill.main_resource, TYPICAL_CURSOR, names).bare();
    if least + MIN_BODY_BYTES > room {
        let message = names.fill("there is no room for it here; {read} reads it");
        return Err(Refusal::said(Code::TooLarge, &message));
    }
    let fit = |page: &TextPage| {
        let whole = room.saturating_sub(frame(skill, page, names).bare());
        let bytes = fits(&page.contents, whole);
        if bytes == page.contents.len() || !page.next_cursor.is_empty() {
            return bytes;
        }
        // Cut, it has a call and a cursor that it has not whole.
        bytes.min(fits(&page.contents, room - least))
    };
    let wanted = Wanted {
        authority: Authority::of(skill).id.to_owned(),
        package: skill.package.clone(),
        ..Wanted::default()
    };
    let page = read_fitting(source, wanted, room, &fit).await?;
    Ok(Fragment {
        name: skill.name.clone(),
        package: skill.package.clone(),
        text: frame(skill, &page, names).around(&page.contents),
        truncated: !page.next_cursor.is_empty(),
    })
}

fn frame(skill: &SharedSkill, page: &TextPage, names: &ToolNames) -> Frame {
    let frame = Frame::of(skill);
    if page.next_cursor.is_empty() {
        return frame;
    }
    frame.cut_at(skill, &page.resource, &page.next_cursor, names)
}

/// A view's skills by whatever names them.
struct Index<'a> {
    /// By package and by main resource.
    handles: HashMap<&'a str, Vec<&'a SharedSkill>>,
    names: HashMap<&'a str, Vec<&'a SharedSkill>>,
    /// By the name without the plugin's: `deploy` for `deploy-plugin:deploy`.
    bare_names: HashMap<&'a str, Vec<&'a SharedSkill>>,
}

impl<'a> Index<'a> {
    fn of(view: &'a View) -> Self {
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

    fn with_handle(&self, handle: &str) -> &[&'a SharedSkill] {
        self.handles.get(handle).map(Vec::as_slice).unwrap_or_default()
    }

    /// The skills with this name; if there are none, the skills of plugins that have it behind the
    /// plugin's name, unless the caller has a skill with the name.
    fn named(&self, name: &str, prompt: &Prompt) -> &[&'a SharedSkill] {
        let is_own = || prompt.local.iter().any(|own| own == name);
        let bare = || self.bare_names.get(name).filter(|_| !is_own());
        self.names.get(name).or_else(bare).map(Vec::as_slice).unwrap_or_default()
    }
}

/// The skills that are meant, each once.
fn found(view: &View, prompt: &Prompt, injected: &mut Injected) -> Vec<SharedSkill> {
    let index = Index::of(view);
    let (mut skills, mut taken) = (Vec::new(), HashSet::new());
    let connectors: HashSet<&String> = prompt.connectors.iter().collect();
    let mut several = HashSet::new();
    let named = prompt.named();
    let blocked = blocked(&index, &named);
    for named in &named {
        let (name, meant) = match named {
            // One handle may be of two sources: neither is taken for the other.
            Named::Handle { handle, .. } => (handle, index.with_handle(handle)),
            Named::Name(name) if blocked.contains(name.as_str()) => (name, &[][..]),
            Named::Name(name) => (name, index.named(name, prompt)),
            Named::Word(words) if words.iter().any(|word| connectors.contains(word)) => continue,
            Named::Word(words) => {
                let open = words.iter().filter(|word| !blocked.contains(word.as_str()));
                let each = open.map(|word| (word, index.named(word, prompt)));
                match each.into_iter().find(|(_, meant)| !meant.is_empty()) {
                    Some(found) => found,
                    None => continue,
                }
            }
        };
        match meant {
            [skill] => {
                let Authority { kind, id } = Authority::of(skill);
                if taken.insert((kind, id, skill.package.as_str())) {
                    skills.push(SharedSkill::clone(skill));
                    if prompt.local.contains(&skill.name) {
                        injected.replaced.push(skill.name.clone());
                    }
                }
            }
            [] => injected
                .left_out
                .push(LeftOut { named: cut(name, MAX_NAMED_BYTES), why: why_none(named) }),
            [first, ..] => {
                let name = if let Named::Handle { .. } = named { &first.name } else { name };
                if several.insert(name) {
                    let candidates = meant.iter().take(MAX_CANDIDATES).map(|s| candidate(s));
                    let (name, candidates) = (name.clone(), candidates.collect());
                    injected.ambiguous.push(Ambiguous { name, candidates });
                }
            }
        }
    }
    skills
}

/// The plain names that stand next to a handle without a skill. Such a name must not fall back to
/// another skill with the same name: the person picked a certain one.
fn blocked<'a>(index: &Index<'_>, named: &'a [Named]) -> HashSet<&'a str> {
    let lost = named.iter().filter_map(|named| match named {
        Named::Handle { handle, name } if index.with_handle(handle).is_empty() => {
            let directory = handle.trim_end_matches("/SKILL.md").rsplit('/').next();
            Some(if name.is_empty() { directory.unwrap_or_default() } else { name })
        }
        _ => None,
    });
    lost.collect()
}

fn why_none(named: &Named) -> String {
    match named {
        Named::Handle { .. } => {
            "no skill of this session has this handle now; name the skill again".to_owned()
        }
        Named::Name(_) | Named::Word(_) => "no skill of this session is meant by it now".to_owned(),
    }
}

fn candidate(skill: &SharedSkill) -> Candidate {
    let Authority { kind, id } = Authority::of(skill);
    Candidate {
        name: skill.name.clone(),
        kind: kind.to_owned(),
        root: id.to_owned(),
        package: skill.package.clone(),
        description: cut(&escape_hidden(&skill.description), MAX_DESCRIPTION_BYTES),
    }
}
