//! The listed skills of a session at one moment: the skills of all sources, merged by name, in the
//! order of the selection. Recent views are cached, so that a client can page through a view that
//! has changed.

use super::authorities::SessionAuthority;
use super::choice::SkillChoice;
use super::equal_roots::{EqualRoots, ExecutorRoot};
use super::skill::{AuthorityRef, SharedSkill, is_hidden};
use super::skill_source::{SkillListing, SkillSource, SourceKind, SourceSnapshot, SourceWatch};
use caproot_core::text::{single_line, truncate_with_ellipsis};
use futures_util::future::select_all;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

/// Cached views; the cursor of an older view is gone.
const MAX_CACHED_VIEWS: usize = 8;
/// Limits of the warnings of a view: their number, and the bytes of each.
const MAX_WARNINGS: usize = 16;
const MAX_WARNING_BYTES: usize = 256;
/// Approximate bytes of skill names in one warning.
const MAX_NAMES_BYTES: usize = 120;

/// Skills and warnings of a session at one moment.
#[derive(Debug)]
pub struct SessionView {
    /// Random, so that a cursor of another session matches no view.
    pub id: u64,
    /// Sorted by kind of source, root as selected, name and package; includes hidden skills.
    pub skills: Vec<SharedSkill>,
    /// Listings of the available sources, without the choice of the session. Sessions may share them.
    pub listings: Vec<Arc<SkillListing>>,
    /// Roots with equal skills, which lists and texts show once.
    pub equal_roots: EqualRoots,
    /// How many of the skills are hidden from models. Equal skills count once.
    pub hidden: usize,
    /// Warnings for a model, each on one line.
    pub warnings: Vec<String>,
    /// Whether a limit cut a scan short.
    pub truncated: bool,
}

/// Latest view and the views before it.
#[derive(Debug, Default)]
pub struct SessionViewCache {
    /// The latest view comes first.
    views: VecDeque<Arc<SessionView>>,
    /// Snapshots from which the latest view was built.
    latest_sources: Vec<SourceSnapshot>,
}

/// Watch for changes of a session's sources: the skills or the state of a source changed, or the
/// grace period of a lost source is over and its skills are no longer listed.
#[derive(Debug)]
pub struct SessionWatch(Vec<(ChangedSource, Box<dyn SourceWatch>)>);

/// Source that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedSource {
    /// Kind of the source.
    pub kind: SourceKind,
    /// Id of the source; the environment of an executor.
    pub id: String,
}

impl SessionView {
    /// Returns the view of a closed session.
    pub fn closed() -> Self {
        let warnings = vec!["the session is closed".to_owned()];
        Self {
            id: 0,
            skills: Vec::new(),
            listings: Vec::new(),
            equal_roots: EqualRoots::default(),
            hidden: 0,
            warnings,
            truncated: false,
        }
    }

    fn build(
        sources: &[Arc<dyn SkillSource>],
        snapshots: &[SourceSnapshot],
        authorities: &[SessionAuthority],
        choice: &SkillChoice,
    ) -> Self {
        let chosen: Vec<_> = sources
            .iter()
            .zip(snapshots)
            .map(|(source, snapshot)| SourceSnapshot {
                listing: choice.filter_listing(&**source, &snapshot.listing),
                unavailable_reason: snapshot.unavailable_reason.clone(),
            })
            .collect();
        let masked = masked_names(sources, &chosen);

        let mut builder = ViewBuilder::default();
        for (index, source) in sources.iter().enumerate() {
            builder.add_source(index, &**source, &chosen[index]);
            if chosen[index].unavailable_reason.is_none() {
                let phrase = source.kind().describe(source.id());
                let warning = masked_warning(&phrase, masked.get(&index));
                builder.masking.extend(warning);
            }
        }

        // A skill of an unavailable source may match a rule.
        if builder.unavailable.is_empty() {
            let unmatched = choice.unmatched_warnings(sources, &chosen);
            builder.warnings.extend(unmatched);
        }

        let mut skills = Vec::new();
        for authority in authorities {
            let names = masked.get(&authority.source_index);
            let run = builder.skills_of(authority).iter();
            let unmasked =
                run.filter(|skill| names.is_none_or(|names| !names.contains(&*skill.name)));
            skills.extend(unmasked.cloned());
        }

        let available = snapshots
            .iter()
            .filter(|snapshot| snapshot.unavailable_reason.is_none());
        let equal_roots = EqualRoots::find(&executor_roots(sources, authorities, &skills));
        let hidden = skills
            .iter()
            .filter(|skill| is_hidden(skill) && equal_roots.is_in_texts(skill));
        Self {
            id: RandomState::new().hash_one(sources.len()),
            hidden: hidden.count(),
            listings: available.map(|snapshot| snapshot.listing.clone()).collect(),
            equal_roots,
            skills,
            truncated: builder.truncated,
            warnings: builder.into_warnings(),
        }
    }
}

/// Returns the roots of executors with their part of the skills of a view.
fn executor_roots<'a>(
    sources: &'a [Arc<dyn SkillSource>],
    authorities: &'a [SessionAuthority],
    skills: &'a [SharedSkill],
) -> Vec<ExecutorRoot<'a>> {
    let environments: HashMap<&str, &str> = authorities
        .iter()
        .filter(|authority| authority.kind == SourceKind::Executor)
        .map(|authority| (&*authority.id, sources[authority.source_index].id()))
        .collect();

    let runs = skills.chunk_by(|a, b| a.authority == b.authority);
    let roots = runs.filter_map(|skills| {
        let AuthorityRef { kind, id } = AuthorityRef::of_skill(&skills[0]);
        let environment_id = environments.get(id).copied();
        Some(ExecutorRoot {
            environment_id: environment_id.filter(|_| kind == SourceKind::Executor.name())?,
            id,
            skills,
        })
    });
    roots.collect()
}

/// Skills and warnings of the sources of a view.
#[derive(Default)]
struct ViewBuilder<'a> {
    /// Skills by the index of the source and the id of the authority.
    runs: HashMap<(usize, &'a str), &'a [SharedSkill]>,
    unavailable: Vec<String>,
    masking: Vec<String>,
    warnings: Vec<String>,
    truncated: bool,
}

impl<'a> ViewBuilder<'a> {
    fn add_source(&mut self, index: usize, source: &dyn SkillSource, snapshot: &'a SourceSnapshot) {
        if let Some(reason) = &snapshot.unavailable_reason {
            let phrase = source.kind().describe(source.id());
            self.unavailable.push(format!(
                "{phrase} cannot be used, and its skills are omitted: {reason}"
            ));
            return;
        }

        let listing = &snapshot.listing;
        for run in listing.skills.chunk_by(|a, b| a.authority == b.authority) {
            let authority = AuthorityRef::of_skill(&run[0]);
            if authority.kind == source.kind().name() {
                self.runs.insert((index, authority.id), run);
            }
        }

        self.warnings.extend(listing.warnings.iter().cloned());
        self.truncated |= listing.truncated;
    }

    fn skills_of(&self, authority: &SessionAuthority) -> &'a [SharedSkill] {
        let key = (authority.source_index, authority.id.as_str());
        self.runs.get(&key).copied().unwrap_or_default()
    }

    /// Returns the limited warnings, the most important first.
    fn into_warnings(self) -> Vec<String> {
        limit_warnings(&[self.unavailable, self.masking, self.warnings].concat())
    }
}

impl SessionViewCache {
    /// Returns the view of these snapshots: the cached view if no snapshot changed.
    pub fn current(
        &mut self,
        sources: &[Arc<dyn SkillSource>],
        snapshots: Vec<SourceSnapshot>,
        authorities: &[SessionAuthority],
        choice: &SkillChoice,
    ) -> Arc<SessionView> {
        if let Some(view) = self.views.front()
            && self.latest_sources.len() == snapshots.len()
            && self
                .latest_sources
                .iter()
                .zip(&snapshots)
                .all(|(a, b)| a.is_same(b))
        {
            return view.clone();
        }

        let view = Arc::new(SessionView::build(sources, &snapshots, authorities, choice));
        self.latest_sources = snapshots;
        self.views.push_front(view.clone());
        self.views.truncate(MAX_CACHED_VIEWS);
        view
    }

    /// Returns a cached view.
    pub fn find(&self, id: u64) -> Option<Arc<SessionView>> {
        self.views.iter().find(|view| view.id == id).cloned()
    }
}

impl SessionWatch {
    pub(super) fn new(sources: &[Arc<dyn SkillSource>]) -> Self {
        let watched = sources.iter().filter_map(|source| {
            let changed = ChangedSource {
                kind: source.kind(),
                id: source.id().to_owned(),
            };
            Some((changed, source.watch()?))
        });
        Self(watched.collect())
    }

    /// Waits for the next change and returns its source. Cancel-safe.
    pub async fn next(&mut self) -> ChangedSource {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        let each = self.0.iter_mut().map(|(source, watch)| {
            Box::pin(async move {
                watch.changed().await;
                source.clone()
            })
        });
        select_all(each).await.0
    }
}

/// Returns, by index of the source, the names that a skill of an earlier kind has. An unavailable
/// source keeps its names, so that a name does not come to mean the skill of another source.
fn masked_names<'a>(
    sources: &[Arc<dyn SkillSource>],
    snapshots: &'a [SourceSnapshot],
) -> HashMap<usize, BTreeSet<&'a str>> {
    let mut masked = HashMap::new();
    let mut used_names: HashSet<&str> = HashSet::new();
    let last_kind = sources.iter().map(|source| source.kind()).max();

    for kind in SourceKind::ALL {
        let indexes = 0..sources.len();
        let of_kind = indexes.filter(|index| sources[*index].kind() == kind);

        if !used_names.is_empty() {
            for index in of_kind.clone() {
                let names = skill_names(&snapshots[index]);
                let lost = names.filter(|name| used_names.contains(name));
                masked.insert(index, lost.collect());
            }
        }

        // No kind comes after the last kind, so its names mask no other skill.
        if last_kind > Some(kind) {
            used_names.extend(of_kind.flat_map(|index| skill_names(&snapshots[index])));
        }
    }

    masked
}

fn skill_names(snapshot: &SourceSnapshot) -> impl Iterator<Item = &str> {
    let skills = snapshot.listing.skills.iter();
    skills.map(|skill| skill.name.as_str())
}

/// Returns a warning with the names of a source that are not listed.
fn masked_warning(phrase: &str, names: Option<&BTreeSet<&str>>) -> Option<String> {
    let masked = names.filter(|names| !names.is_empty())?;
    let mut text = String::new();
    let mut shown = 0;

    for name in masked {
        if shown > 0 && text.len() + name.len() > MAX_NAMES_BYTES {
            break;
        }
        if shown > 0 {
            text.push_str(", ");
        }
        text.push_str(name);
        shown += 1;
    }
    if shown < masked.len() {
        let _ = write!(text, " and {} more", masked.len() - shown);
    }

    Some(format!(
        "skills of {phrase} are not listed, as others have their names: {text}"
    ))
}

/// Returns at most [`MAX_WARNINGS`] warnings, each truncated and on one line.
fn limit_warnings(warnings: &[String]) -> Vec<String> {
    let shown = if warnings.len() > MAX_WARNINGS {
        MAX_WARNINGS - 1
    } else {
        warnings.len()
    };
    let mut limited: Vec<_> = warnings[..shown]
        .iter()
        .map(|warning| truncate_with_ellipsis(&single_line(warning), MAX_WARNING_BYTES))
        .collect();

    if shown < warnings.len() {
        limited.push(format!("{} more warnings", warnings.len() - shown));
    }
    limited
}
