//! All that a session may show at one moment: the skills of all its sources, merged by the one rule of
//! names, in the order of the selection. Views are kept while nothing changes, and a few old ones for
//! those who page through them.

use super::source::{SkillSource, SourceKind, SourceSnapshot};
use super::text::{single_line, truncate_with_ellipsis};
use super::{Session, SharedSkill, lock};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

/// The views that pages can go on from.
const MAX_CACHED_VIEWS: usize = 8;
/// The most warnings, and the most bytes of each.
const MAX_WARNINGS: usize = 16;
const MAX_WARNING_BYTES: usize = 256;
/// About as many bytes of names stand in one.
const MAX_NAMES_BYTES: usize = 120;

/// What there is.
#[derive(Debug)]
pub(super) struct SessionView {
    /// Random, so that a cursor of another session is known for what it is.
    pub(super) id: u64,
    /// By kind of source; roots as selected, then by name, then by package; hidden ones too.
    pub(super) skills: Vec<SharedSkill>,
    /// How many of them only a person may call.
    pub(super) hidden: usize,
    /// What a model should know, each on one line.
    pub(super) warnings: Vec<String>,
    /// Whether a limit cut a search short.
    pub(super) truncated: bool,
}

impl SessionView {
    /// Of a session that is closed.
    fn closed() -> Self {
        let warnings = vec!["the session is closed".to_owned()];
        Self { id: 0, skills: Vec::new(), hidden: 0, warnings, truncated: false }
    }
}

/// The view of now, and those before it.
#[derive(Debug, Default)]
pub(super) struct SessionViewCache {
    views: VecDeque<Arc<SessionView>>,
    /// What the first of them was made of.
    latest_sources: Vec<SourceSnapshot>,
}

/// Whether only a person may call a skill, by its name.
pub(super) fn is_hidden(skill: &SharedSkill) -> bool {
    skill.policy.as_ref().is_some_and(|policy| policy.allow_implicit_invocation == Some(false))
}

impl Session {
    /// What there is now.
    pub(super) fn current_view(&self) -> Arc<SessionView> {
        if self.is_closed() {
            return Arc::new(SessionView::closed());
        }
        let sources: Vec<_> = self.sources.iter().map(|source| source.snapshot()).collect();
        let mut views = lock(&self.views);
        if let Some(view) = views.views.front()
            && views.latest_sources.len() == sources.len()
            && views.latest_sources.iter().zip(&sources).all(|(a, b)| a.is_same(b))
        {
            return view.clone();
        }
        let view = Arc::new(self.build_view(&sources));
        views.latest_sources = sources;
        views.views.push_front(view.clone());
        views.views.truncate(MAX_CACHED_VIEWS);
        view
    }

    /// A view that was shown not long ago.
    pub(super) fn cached_view(&self, id: u64) -> Option<Arc<SessionView>> {
        lock(&self.views).views.iter().find(|view| view.id == id).cloned()
    }

    fn build_view(&self, listed: &[SourceSnapshot]) -> SessionView {
        let masked = masked_names(&self.sources, listed);
        let mut runs: HashMap<(usize, &str), &[SharedSkill]> = HashMap::new();
        let (mut unavailable, mut warnings, mut hiding) = (Vec::new(), Vec::new(), Vec::new());
        let mut truncated = false;
        for (at, (source, SourceSnapshot { listing, unavailable_reason: why })) in
            self.sources.iter().zip(listed).enumerate()
        {
            let who = source.kind().describe(source.id());
            if let Some(why) = why {
                unavailable
                    .push(format!("{who} cannot be used, and its skills are left out: {why}"));
                continue;
            }
            for run in listing.skills.chunk_by(|a, b| a.authority == b.authority) {
                if let Some(authority) = &run[0].authority
                    && authority.kind == source.kind().name()
                {
                    runs.insert((at, &authority.id), run);
                }
            }
            warnings.extend(listing.warnings.iter().cloned());
            truncated |= listing.truncated;
            hiding.extend(masked_warning(&who, masked.get(&at)));
        }
        let mut skills = Vec::new();
        for (_, id, at) in &self.authorities {
            let run = runs.get(&(*at, id.as_str())).copied().unwrap_or_default();
            let names = masked.get(at);
            let is_masked = |skill: &SharedSkill| {
                names.is_some_and(|names| names.contains(skill.name.as_str()))
            };
            skills.extend(run.iter().filter(|skill| !is_masked(skill)).cloned());
        }
        SessionView {
            id: RandomState::new().hash_one(self.sources.len()),
            hidden: skills.iter().filter(|skill| is_hidden(skill)).count(),
            skills,
            warnings: limit_warnings(&[unavailable, hiding, warnings].concat()),
            truncated,
        }
    }
}

/// Of each source, by its place, the names that are taken by skills of an earlier kind. Sources that
/// cannot be used keep the names that they had, so that none comes to mean another's skill by that.
fn masked_names<'a>(
    sources: &[Arc<dyn SkillSource>],
    listed: &'a [SourceSnapshot],
) -> HashMap<usize, BTreeSet<&'a str>> {
    let mut masked = HashMap::new();
    let mut taken: HashSet<&str> = HashSet::new();
    let names = |kind: SourceKind| {
        let of_kind = sources.iter().zip(listed).enumerate();
        of_kind.filter(move |(_, (source, _))| source.kind() == kind)
    };
    let behind_all = sources.iter().map(|source| source.kind()).max();
    for kind in SourceKind::ALL {
        if !taken.is_empty() {
            for (at, (_, listed)) in names(kind) {
                let own = listed.listing.skills.iter().map(|skill| skill.name.as_str());
                let lost: BTreeSet<_> = own.filter(|name| taken.contains(name)).collect();
                masked.insert(at, lost);
            }
        }
        // Nobody comes behind the last.
        if behind_all > Some(kind) {
            for (_, (_, listed)) in names(kind) {
                taken.extend(listed.listing.skills.iter().map(|skill| skill.name.as_str()));
            }
        }
    }
    masked
}

/// Says which names of a source are not listed.
fn masked_warning(who: &str, names: Option<&BTreeSet<&str>>) -> Option<String> {
    let names = names.filter(|names| !names.is_empty())?;
    let mut said = String::new();
    let mut shown = 0;
    for name in names {
        if shown > 0 && said.len() + name.len() > MAX_NAMES_BYTES {
            break;
        }
        if shown > 0 {
            said.push_str(", ");
        }
        said.push_str(name);
        shown += 1;
    }
    if shown < names.len() {
        let _ = write!(said, " and {} more", names.len() - shown);
    }
    Some(format!("skills of {who} are not listed, as others have their names: {said}"))
}

/// A few warnings, each on one line.
fn limit_warnings(warnings: &[String]) -> Vec<String> {
    let line = |warning: &String| truncate_with_ellipsis(&single_line(warning), MAX_WARNING_BYTES);
    if warnings.len() <= MAX_WARNINGS {
        return warnings.iter().map(line).collect();
    }
    let mut bounded: Vec<_> = warnings[..MAX_WARNINGS - 1].iter().map(line).collect();
    bounded.push(format!("{} warnings more", warnings.len() - bounded.len()));
    bounded
}
