//! The listed skills of a session at one moment: the skills of all sources, merged by name, in the
//! order of the selection. Recent views are cached, so that a client can page through a view that
//! has changed.

use super::choice::SkillChoice;
use super::skill::{SharedSkill, is_hidden};
use super::skill_source::{SkillSource, SourceKind, SourceSnapshot, SourceWatch};
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
    /// How many of the skills only a user may invoke.
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
            hidden: 0,
            warnings,
            truncated: false,
        }
    }

    fn build(
        sources: &[Arc<dyn SkillSource>],
        snapshots: &[SourceSnapshot],
        authorities: &[(SourceKind, String, usize)],
        choice: &SkillChoice,
    ) -> Self {
        let chosen = sources
            .iter()
            .zip(snapshots)
            .map(|(source, snapshot)| SourceSnapshot {
                listing: choice.filter_listing(&**source, &snapshot.listing),
                unavailable_reason: snapshot.unavailable_reason.clone(),
            });
        let snapshots = &chosen.collect::<Vec<_>>();
        let masked = masked_names(sources, snapshots);
        let mut runs: HashMap<(usize, &str), &[SharedSkill]> = HashMap::new();
        let (mut unavailable, mut warnings, mut masking) = (Vec::new(), Vec::new(), Vec::new());
        let mut truncated = false;
        for (
            index,
            (
                source,
                SourceSnapshot {
                    listing,
                    unavailable_reason,
                },
            ),
        ) in sources.iter().zip(snapshots).enumerate()
        {
            let phrase = source.kind().describe(source.id());
            if let Some(reason) = unavailable_reason {
                unavailable.push(format!(
                    "{phrase} cannot be used, and its skills are omitted: {reason}"
                ));
                continue;
            }
            for run in listing.skills.chunk_by(|a, b| a.authority == b.authority) {
                if let Some(authority) = &run[0].authority
                    && authority.kind == source.kind().name()
                {
                    runs.insert((index, &authority.id), run);
                }
            }
            warnings.extend(listing.warnings.iter().cloned());
            truncated |= listing.truncated;
            masking.extend(masked_warning(&phrase, masked.get(&index)));
        }
        // A skill of an unavailable source may match a rule.
        if unavailable.is_empty() {
            let listings = sources.iter().zip(snapshots);
            let listings = listings.map(|(source, snapshot)| (&**source, &*snapshot.listing));
            warnings.extend(choice.unmatched_warnings(&listings));
        }
        let mut skills = Vec::new();
        for (_, id, index) in authorities {
            let run = runs
                .get(&(*index, id.as_str()))
                .copied()
                .unwrap_or_default();
            let names = masked.get(index);
            let is_masked = |skill: &SharedSkill| {
                names.is_some_and(|names| names.contains(skill.name.as_str()))
            };
            skills.extend(run.iter().filter(|skill| !is_masked(skill)).cloned());
        }
        Self {
            id: RandomState::new().hash_one(sources.len()),
            hidden: skills.iter().filter(|skill| is_hidden(skill)).count(),
            skills,
            warnings: limit_warnings(&[unavailable, masking, warnings].concat()),
            truncated,
        }
    }
}

impl SessionViewCache {
    /// Returns the view of these snapshots: the cached view if no snapshot changed.
    pub fn current(
        &mut self,
        sources: &[Arc<dyn SkillSource>],
        snapshots: Vec<SourceSnapshot>,
        authorities: &[(SourceKind, String, usize)],
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
    let of_kind = |kind: SourceKind| {
        let each = sources.iter().zip(snapshots).enumerate();
        each.filter(move |(_, (source, _))| source.kind() == kind)
    };
    let last_kind = sources.iter().map(|source| source.kind()).max();
    for kind in SourceKind::ALL {
        if !used_names.is_empty() {
            for (index, (_, snapshot)) in of_kind(kind) {
                let names = snapshot
                    .listing
                    .skills
                    .iter()
                    .map(|skill| skill.name.as_str());
                let lost: BTreeSet<_> = names.filter(|name| used_names.contains(name)).collect();
                masked.insert(index, lost);
            }
        }
        // No kind comes after the last kind, so its names mask no other skill.
        if last_kind > Some(kind) {
            for (_, (_, snapshot)) in of_kind(kind) {
                used_names.extend(
                    snapshot
                        .listing
                        .skills
                        .iter()
                        .map(|skill| skill.name.as_str()),
                );
            }
        }
    }
    masked
}

/// Returns a warning with the names of a source that are not listed.
fn masked_warning(phrase: &str, names: Option<&BTreeSet<&str>>) -> Option<String> {
    let names = names.filter(|names| !names.is_empty())?;
    let mut text = String::new();
    let mut shown = 0;
    for name in names {
        if shown > 0 && text.len() + name.len() > MAX_NAMES_BYTES {
            break;
        }
        if shown > 0 {
            text.push_str(", ");
        }
        text.push_str(name);
        shown += 1;
    }
    if shown < names.len() {
        let _ = write!(text, " and {} more", names.len() - shown);
    }
    Some(format!(
        "skills of {phrase} are not listed, as others have their names: {text}"
    ))
}

/// Returns at most [`MAX_WARNINGS`] warnings, each truncated and on one line.
fn limit_warnings(warnings: &[String]) -> Vec<String> {
    let line = |warning: &String| truncate_with_ellipsis(&single_line(warning), MAX_WARNING_BYTES);
    if warnings.len() <= MAX_WARNINGS {
        return warnings.iter().map(line).collect();
    }
    let mut limited: Vec<_> = warnings[..MAX_WARNINGS - 1].iter().map(line).collect();
    limited.push(format!("{} more warnings", warnings.len() - limited.len()));
    limited
}
