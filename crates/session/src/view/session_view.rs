//! The listed skills of a session at one moment: the skills of all sources, merged by name, in the
//! order of the selection. Recent views are cached, so that a client can page through a view that
//! has changed.

use crate::options::choice::SkillChoice;
use crate::skills::authorities::SessionAuthority;
use crate::skills::equal_roots::{EqualRoots, ExecutorRoot};
use crate::skills::skill::{AuthorityRef, SharedSkill, TextEmphasis, is_hidden};
use crate::skills::skill_source::{
    SkillListing, SkillSource, SourceChanges, SourceKind, SourceSnapshot,
};
use caproot_core::text::{single_line, truncate_with_ellipsis};
use futures_util::StreamExt as _;
use futures_util::stream::{BoxStream, SelectAll};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt::{self, Write as _};
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
#[derive(Debug, Default)]
pub struct SessionView {
    /// Random, so that a cursor of another session matches no view.
    pub id: u64,
    /// Sorted by kind of source, root as selected, name and package; includes hidden skills. A skill
    /// that a rule of the session hides or switches on has another `not_offered` here.
    pub skills: Vec<SharedSkill>,
    /// Rules for the skills in the instruction text.
    pub emphasis: TextEmphasis,
    /// Listings of the available sources, without the choice of the session. Sessions may share them.
    pub listings: Vec<Arc<SkillListing>>,
    /// Roots with equal skills, which lists and texts show once.
    pub equal_roots: EqualRoots,
    /// How many of the skills are hidden from models. Equal skills count once.
    pub hidden: usize,
    /// Names of skills that are not approved now.
    pub reserved_names: HashSet<String>,
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
    /// Snapshots from which the latest view was built: of the sources, then of the masking sources.
    latest: Vec<SourceSnapshot>,
}

/// Sources of a session, and the rules for their skills.
#[derive(Debug, Clone, Copy)]
pub struct ViewScope<'a> {
    pub sources: &'a [Arc<dyn SkillSource>],
    /// Sources of the parents of a fork, whose names the fork must not use for other skills.
    pub masking: &'a [Arc<dyn SkillSource>],
    pub authorities: &'a [SessionAuthority],
    pub choice: &'a SkillChoice,
}

/// Names that skills of a source must not have, because a skill of an earlier kind has them. An
/// unavailable source keeps its names, so that a name does not come to mean the skill of another
/// source. A fork masks the names that its session masks, also if the fork excludes the skills with
/// these names: a fork never has a skill that its session does not have.
struct NameMask<'a> {
    /// Earliest kind of the skills with a name.
    first_kinds: HashMap<&'a str, SourceKind>,
}

/// Watch for changes of a session's sources: the skills or the state of a source changed, or the
/// grace period of a lost source is over and its skills are no longer listed.
pub struct SessionWatch(SelectAll<BoxStream<'static, ChangedSource>>);

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
        Self {
            warnings: vec!["the session is closed".to_owned()],
            ..Self::default()
        }
    }

    fn build(scope: &ViewScope<'_>, snapshots: &[SourceSnapshot]) -> Self {
        let ViewScope {
            sources,
            authorities,
            choice,
            ..
        } = *scope;
        let mask = NameMask::new(scope, snapshots);
        let chosen: Vec<_> = sources
            .iter()
            .zip(snapshots)
            .map(|(source, snapshot)| choice.filter_snapshot(&**source, snapshot))
            .collect();

        let mut builder = ViewBuilder::default();
        builder.add_sources(scope, &chosen, &mask);

        // The most important warnings come first.
        let warnings = [builder.unavailable, builder.masking, builder.warnings].concat();
        let mut view = Self {
            id: RandomState::new().hash_one(sources.len()),
            warnings: limit_warnings(&warnings),
            truncated: builder.truncated,
            ..Self::default()
        };
        for authority in authorities {
            let key = (authority.source_index, authority.id.as_str());
            let run = builder.runs.get(&key).copied().unwrap_or_default();
            for skill in run {
                if !mask.masks(authority.kind, &skill.name) {
                    view.add_skill(choice, &*sources[authority.source_index], skill);
                }
            }
        }

        view.equal_roots = EqualRoots::find(&executor_roots(sources, authorities, &view.skills));
        let hidden = view
            .skills
            .iter()
            .filter(|skill| is_hidden(skill) && view.equal_roots.is_in_texts(skill));
        view.hidden = hidden.count();

        let reserved_names = snapshots
            .iter()
            .flat_map(|snapshot| &snapshot.listing.reserved_names);
        view.reserved_names = reserved_names.cloned().collect();
        view.listings = snapshots[..sources.len()]
            .iter()
            .filter(|snapshot| snapshot.unavailable_reason.is_none())
            .map(|snapshot| snapshot.listing.clone())
            .collect();
        view
    }

    fn add_skill(&mut self, choice: &SkillChoice, source: &dyn SkillSource, skill: &SharedSkill) {
        let display = choice.display_of(source, skill);
        let index = self.skills.len();
        if display.is_pinned {
            self.emphasis.pinned.insert(index);
        }
        if display.is_name_only {
            self.emphasis.name_only.insert(index);
        }

        let mut skill = skill.clone();
        if display.not_offered != skill.not_offered() {
            Arc::make_mut(&mut skill).set_not_offered(display.not_offered);
        }
        self.skills.push(skill);
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

    let roots = skills
        .chunk_by(|a, b| a.authority == b.authority)
        .filter_map(|skills| {
            let AuthorityRef { kind, id } = AuthorityRef::of_skill(&skills[0]);
            let is_executor = kind == SourceKind::Executor.name();
            Some(ExecutorRoot {
                environment_id: environments.get(id).filter(|_| is_executor)?,
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
    /// Adds all sources, and a warning for each rule that matches no skill.
    fn add_sources(
        &mut self,
        scope: &ViewScope<'_>,
        chosen: &'a [SourceSnapshot],
        mask: &NameMask<'_>,
    ) {
        for (index, source) in scope.sources.iter().enumerate() {
            self.add_source(index, &**source, &chosen[index], mask);
        }

        // A skill of an unavailable source may match a rule.
        if self.unavailable.is_empty() {
            let unmatched = scope.choice.unmatched_warnings(scope.sources, chosen);
            self.warnings.extend(unmatched);
        }
    }

    fn add_source(
        &mut self,
        index: usize,
        source: &dyn SkillSource,
        snapshot: &'a SourceSnapshot,
        mask: &NameMask<'_>,
    ) {
        let kind = source.kind();
        let phrase = kind.describe(source.id());
        if let Some(reason) = &snapshot.unavailable_reason {
            self.unavailable.push(format!(
                "{phrase} cannot be used, and its skills are omitted: {reason}"
            ));
            return;
        }

        let listing = &snapshot.listing;
        for run in listing.skills.chunk_by(|a, b| a.authority == b.authority) {
            let authority = AuthorityRef::of_skill(&run[0]);
            if authority.kind == kind.name() {
                self.runs.insert((index, authority.id), run);
            }
        }

        let masked = listing
            .skills
            .iter()
            .map(|skill| &*skill.name)
            .filter(|name| mask.masks(kind, name))
            .collect();
        self.masking.extend(masked_warning(&phrase, &masked));
        self.warnings.extend(listing.warnings.iter().cloned());
        self.truncated |= listing.truncated;
    }
}

impl SessionViewCache {
    /// Returns the view of now: the cached view if no snapshot changed.
    pub fn current(&mut self, scope: &ViewScope<'_>) -> Arc<SessionView> {
        let sources = scope.sources.iter().chain(scope.masking);
        let snapshots: Vec<_> = sources.map(|source| source.snapshot()).collect();
        // The sources of a session are always the same.
        if let Some(view) = self.views.front()
            && self
                .latest
                .iter()
                .zip(&snapshots)
                .all(|(before, now)| before.is_same(now))
        {
            return view.clone();
        }

        let view = Arc::new(SessionView::build(scope, &snapshots));
        self.latest = snapshots;
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
    pub(crate) fn new<'a>(
        changes: impl Iterator<Item = (&'a dyn SkillSource, SourceChanges)>,
    ) -> Self {
        let by_source = changes.map(|(source, changes)| {
            let own = ChangedSource {
                kind: source.kind(),
                id: source.id().to_owned(),
            };
            changes.map(move |()| own.clone()).boxed()
        });
        Self(by_source.collect())
    }

    /// Waits for the next change and returns its source. Cancel-safe.
    pub async fn next(&mut self) -> ChangedSource {
        match self.0.next().await {
            Some(changed) => changed,
            // No source can change any more.
            None => std::future::pending().await,
        }
    }
}

impl fmt::Debug for SessionWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionWatch").finish_non_exhaustive()
    }
}

impl<'a> NameMask<'a> {
    fn new(scope: &ViewScope<'a>, snapshots: &'a [SourceSnapshot]) -> Self {
        let mut first_kinds = HashMap::new();
        let base = scope.choice.base();
        // No kind comes after the last kind, so its names mask no other skill.
        let last_kind = scope.sources.iter().map(|source| source.kind()).max();

        for (source, snapshot) in scope.sources.iter().chain(scope.masking).zip(snapshots) {
            let kind = source.kind();
            if last_kind <= Some(kind) {
                continue;
            }

            let listed = snapshot
                .listing
                .skills
                .iter()
                .filter(|skill| base.includes(&**source, &skill.name, &skill.package))
                .map(|skill| &skill.name);
            let reserved = snapshot
                .listing
                .reserved_names
                .iter()
                .filter(|name| base.may_include_name(&**source, name));
            for name in listed.chain(reserved) {
                let first = first_kinds.entry(name.as_str()).or_insert(kind);
                *first = kind.min(*first);
            }
        }

        Self { first_kinds }
    }

    /// Returns whether a skill of this kind must not have the name.
    fn masks(&self, kind: SourceKind, name: &str) -> bool {
        let first = self.first_kinds.get(name);
        first.is_some_and(|first| *first < kind)
    }
}

/// Returns a warning with the names of a source that are not listed.
fn masked_warning(phrase: &str, masked: &BTreeSet<&str>) -> Option<String> {
    if masked.is_empty() {
        return None;
    }

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
    let mut limited: Vec<_> = warnings
        .iter()
        .map(|warning| truncate_with_ellipsis(&single_line(warning), MAX_WARNING_BYTES))
        .take(MAX_WARNINGS)
        .collect();

    if warnings.len() > MAX_WARNINGS {
        let more = warnings.len() - MAX_WARNINGS + 1;
        limited[MAX_WARNINGS - 1] = format!("{more} more warnings");
    }
    limited
}
