//! The search for skills below one root, as a state machine over plain listings: breadth first,
//! names in byte order, so that limits cut at the same place every time. Leaves listing and reading
//! to `disk`, which may do the visits of one round in any order and in parallel.
//!
//! A directory is entered once. Directories that are reached without a link are all entered first,
//! so that they name what they hold; links follow, shallow before deep.

use super::catalog::{BoundedDiagnostics, RootCounts};
use super::diagnostic::{Diagnostic, DiagnosticCode, FileProblem};
use super::limits::Limits;
use super::listing::{DirIdentity, DirListing, DirToScan, ListingEntry, ListingEntryKind};
use super::skill::SkillFile;
use super::{DisableRules, RelPath, ResolvedPath, skill_file_name};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

/// What a search may do.
#[derive(Debug, Clone)]
pub struct SearchRules {
    /// How far it may go.
    pub limits: Limits,
    /// Directories that are never entered, by name.
    pub skipped_dirs: Vec<Box<[u8]>>,
    /// Directories that are not entered directly inside a skill, by name.
    pub resource_dirs: Vec<Box<[u8]>>,
    /// Whether links are followed at all.
    pub follow_links: bool,
    /// Published roots, which are searched as themselves only. The root may be one of them.
    pub nested_roots: Arc<HashSet<ResolvedPath>>,
    /// Skills that are found and not listed.
    pub disable_rules: Arc<DisableRules>,
}

/// The names that are passed over unless the operator says otherwise.
pub const DEFAULT_SKIPPED_DIRS: [&str; 7] =
    [".git", ".hg", ".svn", "node_modules", "target", "__pycache__", ".venv"];
/// The names that are passed over directly inside a skill unless the operator says otherwise.
pub const DEFAULT_RESOURCE_DIRS: [&str; 3] = ["scripts", "references", "assets"];

/// A SKILL.md, named by the path that won.
#[derive(Debug)]
pub struct SkillCandidate {
    /// Its directory, as walked.
    pub package: RelPath,
    /// Where the file really is.
    pub resolved: ResolvedPath,
    /// What it holds.
    pub file: Arc<SkillFile>,
}

/// All that a search found.
#[derive(Debug)]
pub struct SearchOutcome {
    /// What it found.
    pub findings: SearchFindings,
    /// Each directory that was entered, and whether it may hold a manifest.
    pub entered_dirs: HashMap<ResolvedPath, bool>,
}

/// What a search found, but for where it has been.
#[derive(Debug)]
pub struct SearchFindings {
    /// Every SKILL.md that could be read.
    pub candidates: Vec<SkillCandidate>,
    /// What was wrong on the way.
    pub diagnostics: BoundedDiagnostics,
    /// What was met; `left_out` so far.
    pub counts: RootCounts,
    /// Whether a limit cut the search short.
    pub truncated: bool,
}

/// A search under way. Ask [`Search::round`], list what it gives, hand it to [`Search::absorb`] one by one in
/// the same order, until a round is empty; then [`Search::finish`].
#[derive(Debug)]
pub struct SkillSearch {
    rules: SearchRules,
    root: ResolvedPath,
    pending_dirs: Vec<DirToScan>,
    /// By depth.
    pending_linked_dirs: BTreeMap<usize, Vec<(DirToScan, Option<DirIdentity>)>>,
    entered_identities: HashMap<DirIdentity, RelPath>,
    entered_dirs: HashMap<ResolvedPath, bool>,
    candidates: Vec<(SkillCandidate, bool)>,
    diagnostics: BoundedDiagnostics,
    counts: RootCounts,
    skipped_names: BTreeMap<Box<[u8]>, u32>,
    first_too_deep: Option<(RelPath, u32)>,
    stopped: bool,
    truncated: bool,
}

impl SkillSearch {
    /// A search that begins at `root`.
    #[must_use]
    pub fn new(root: ResolvedPath, rules: SearchRules) -> Self {
        let first = DirToScan { path: RelPath::root(), resolved: root.clone(), via_link: false };
        let diagnostics = BoundedDiagnostics::with_limit(rules.limits.max_diagnostics);
        Self {
            rules,
            root,
            pending_dirs: vec![first],
            pending_linked_dirs: BTreeMap::new(),
            entered_identities: HashMap::new(),
            entered_dirs: HashMap::new(),
            candidates: Vec::new(),
            diagnostics,
            counts: RootCounts::default(),
            skipped_names: BTreeMap::new(),
            first_too_deep: None,
            stopped: false,
            truncated: false,
        }
    }

    /// The directories to list next; none when the search is over.
    pub fn next_round(&mut self) -> Vec<DirToScan> {
        while !self.stopped {
            let mut round = std::mem::take(&mut self.pending_dirs);
            if round.is_empty() {
                let Some((_, mut level)) = self.pending_linked_dirs.pop_first() else { break };
                level.sort_by(|a, b| a.0.path.cmp(&b.0.path));
                round =
                    level.into_iter().filter_map(|(v, id)| self.skip_if_entered(v, id)).collect();
            }
            // One more than fits, so that reaching the limit is seen by absorbing it.
            let room = self.rules.limits.max_directories - self.counts.directories as usize;
            round.truncate(room + 1);
            if !round.is_empty() {
                self.entered_identities.reserve(round.len());
                self.entered_dirs.reserve(round.len());
                return round;
            }
        }
        Vec::new()
    }

    fn skip_if_entered(
        &mut self,
        visit: DirToScan,
        identity: Option<DirIdentity>,
    ) -> Option<DirToScan> {
        let Some(first) = identity.and_then(|id| self.entered_identities.get(&id)) else {
            return Some(visit);
        };
        let note = alias_problem(first);
        self.add_diagnostic(visit.path, note);
        None
    }

    /// Takes the listing of the next visit of a round.
    pub fn add_listing(&mut self, visit: DirToScan, listing: Result<Arc<DirListing>, FileProblem>) {
        if self.stopped {
            return;
        }
        if self.counts.directories as usize >= self.rules.limits.max_directories {
            let value = self.rules.limits.max_directories;
            return self.stop_at_limit("max_directories", value, visit.path);
        }
        match listing {
            Ok(listing) => self.enter_dir(visit, &listing),
            Err(problem) => self.add_diagnostic(visit.path, problem),
        }
    }

    fn enter_dir(&mut self, visit: DirToScan, listing: &DirListing) {
        if let Some(visit) = self.skip_if_entered(visit, Some(listing.identity)) {
            self.entered_identities.insert(listing.identity, visit.path.clone());
            self.entered_dirs.insert(visit.resolved.clone(), listing.may_hold_manifest);
            self.counts.directories += 1;
            self.process_entries(&visit, listing);
        }
    }

    fn process_entries(&mut self, visit: &DirToScan, listing: &DirListing) {
        let room = self.rules.limits.max_entries - self.counts.entries as usize;
        let seen = listing.total_entries.min(room);
        self.counts.entries += u32::try_from(seen).unwrap_or(u32::MAX);
        let entries = || listing.entries.iter().filter(|e| e.ordinal < room);
        let is_skill = entries().any(|e| {
            &*e.name == b"SKILL.md"
                && matches!(e.kind, ListingEntryKind::File(_) | ListingEntryKind::LinkedFile(..))
        });
        let named = entries().any(|e| &*e.name == b"SKILL.md");
        for entry in entries() {
            // Only a name that holds no `/` or NUL can come from a directory.
            let Some(walked) = visit.path.join(&entry.name) else { continue };
            if self.skip_dir_by_name(entry, is_skill) {
                continue;
            }
            if !named && entry.is_skill_file_in_any_case() {
                self.add_diagnostic(
                    walked.clone(),
                    FileProblem::note(
                        DiagnosticCode::WrongCase,
                        "not a skill: did you mean `SKILL.md`? The name must be in that letter case",
                    ),
                );
            }
            self.process_entry(visit, walked, entry);
            if self.stopped {
                return;
            }
        }
        if listing.total_entries > room {
            self.stop_at_limit("max_entries", self.rules.limits.max_entries, visit.path.clone());
        }
    }

    fn skip_dir_by_name(&mut self, entry: &ListingEntry, is_skill: bool) -> bool {
        if !matches!(
            entry.kind,
            ListingEntryKind::Directory | ListingEntryKind::LinkedDirectory(..)
        ) {
            return false;
        }
        if entry.name.starts_with(b"..") {
            // How Kubernetes keeps the versions of a mounted ConfigMap: what is meant to be seen are
            // links into these.
            self.count_skipped(b"..*");
            return true;
        }
        let names = &self.rules.skipped_dirs;
        let own = &self.rules.resource_dirs;
        let passed = names.contains(&entry.name) || is_skill && own.contains(&entry.name);
        if passed {
            self.count_skipped(&entry.name);
        }
        passed
    }

    fn count_skipped(&mut self, name: &[u8]) {
        self.counts.skipped += 1;
        *self.skipped_names.entry(name.into()).or_default() += 1;
    }

    fn process_entry(&mut self, visit: &DirToScan, walked: RelPath, entry: &ListingEntry) {
        let is_main = &*entry.name == b"SKILL.md";
        match &entry.kind {
            ListingEntryKind::Directory => {
                if is_main {
                    self.report_omitted(walked.clone(), not_regular_problem());
                }
                let spot = if visit.path == visit.resolved.rel_path {
                    // Held once, not twice.
                    Some(ResolvedPath {
                        dir_index: visit.resolved.dir_index,
                        rel_path: walked.clone(),
                    })
                } else {
                    visit.resolved.join(&entry.name)
                };
                let Some(spot) = spot else { return };
                self.queue_dir(
                    DirToScan { path: walked, resolved: spot, via_link: visit.via_link },
                    None,
                );
            }
            ListingEntryKind::File(Some(read)) => {
                let Some(spot) = visit.resolved.join(&entry.name) else { return };
                self.add_candidate(visit, walked, spot, visit.via_link, read);
            }
            ListingEntryKind::LinkedFile(_, Some(_)) | ListingEntryKind::LinkedDirectory(..)
                if !self.rules.follow_links =>
            {
                self.report_broken_link(walked, is_main, link_not_followed_problem());
            }
            ListingEntryKind::LinkedFile(spot, Some(read)) => {
                self.add_candidate(visit, walked, spot.clone(), true, read);
            }
            ListingEntryKind::LinkedDirectory(spot, identity) => {
                if is_main {
                    self.report_omitted(walked.clone(), not_regular_problem());
                }
                let visit = DirToScan { path: walked, resolved: spot.clone(), via_link: true };
                self.queue_dir(visit, Some(*identity));
            }
            ListingEntryKind::BrokenLink(problem) => {
                self.report_broken_link(walked, is_main, problem.clone())
            }
            ListingEntryKind::SpecialFile if is_main => {
                self.report_omitted(walked, not_regular_problem())
            }
            ListingEntryKind::SpecialFile
            | ListingEntryKind::File(None)
            | ListingEntryKind::LinkedFile(_, None) => {}
        }
    }

    fn report_broken_link(&mut self, walked: RelPath, is_main: bool, mut problem: FileProblem) {
        if is_main {
            problem.severity = super::Severity::Error;
            self.report_omitted(walked, problem);
        } else {
            self.add_diagnostic(walked, problem);
        }
    }

    fn queue_dir(&mut self, visit: DirToScan, identity: Option<DirIdentity>) {
        if visit.resolved != self.root && self.rules.nested_roots.contains(&visit.resolved) {
            let name = visit.path.file_name().unwrap_or_default().to_vec();
            return self.count_skipped(&name);
        }
        let depth = visit.path.depth();
        if depth > self.rules.limits.max_depth {
            let (_, more) = self.first_too_deep.get_or_insert((visit.path, 0));
            *more += 1;
        } else if visit.via_link {
            self.pending_linked_dirs.entry(depth).or_default().push((visit, identity));
        } else {
            self.pending_dirs.push(visit);
        }
    }

    fn add_candidate(
        &mut self,
        visit: &DirToScan,
        walked: RelPath,
        spot: ResolvedPath,
        linked: bool,
        read: &Result<Arc<SkillFile>, FileProblem>,
    ) {
        match read {
            Err(problem) => self.report_omitted(walked, problem.clone()),
            // Links may yet turn out to be other names of the same, so only these surely count.
            Ok(_) if !linked && self.candidates.len() >= self.rules.limits.max_skills => {
                self.stop_at_limit("max_skills", self.rules.limits.max_skills, walked);
            }
            Ok(file) => {
                let package = visit.path.clone();
                let file = file.clone();
                self.candidates.push((SkillCandidate { package, resolved: spot, file }, linked));
            }
        }
    }

    /// Settles which path names what, and closes the counts.
    #[must_use]
    pub fn finish(mut self) -> SearchOutcome {
        let mut all = std::mem::take(&mut self.candidates);
        all.sort_by_cached_key(|(c, linked)| (*linked, c.package.depth(), c.package.clone()));
        let walked = |candidate: &SkillCandidate| candidate.package.join_path(&skill_file_name());
        let mut first: HashMap<ResolvedPath, usize> = HashMap::with_capacity(all.len());
        let mut candidates: Vec<SkillCandidate> = Vec::with_capacity(all.len());
        for (candidate, _) in all {
            if let Some(first) = first.get(&candidate.resolved) {
                self.report_omitted(
                    walked(&candidate),
                    alias_problem(&walked(&candidates[*first])),
                );
            } else if candidates.len() >= self.rules.limits.max_skills {
                self.stop_at_limit("max_skills", self.rules.limits.max_skills, walked(&candidate));
                break;
            } else {
                first.insert(candidate.resolved.clone(), candidates.len());
                candidates.push(candidate);
            }
        }
        if let Some((at, dirs)) = self.first_too_deep.take() {
            let limit = self.rules.limits.max_depth;
            let more = if dirs > 1 { format!(", nor {} more", dirs - 1) } else { String::new() };
            self.report_limit(
                at,
                &format!("max_depth is {limit}: this directory was not searched{more}"),
            );
        }
        if self.counts.skipped > 0 {
            let mut text = String::from("directories that were not searched, by name:");
            for (name, count) in &self.skipped_names {
                let name = String::from_utf8_lossy(name);
                let _ = write!(text, " `{}` ({count})", name.escape_debug());
            }
            self.add_diagnostic(
                RelPath::root(),
                FileProblem::note(DiagnosticCode::DirectoriesSkipped, text),
            );
        }
        let rest = SearchFindings {
            candidates,
            diagnostics: self.diagnostics,
            counts: self.counts,
            truncated: self.truncated,
        };
        SearchOutcome { findings: rest, entered_dirs: self.entered_dirs }
    }

    fn stop_at_limit(&mut self, name: &str, value: usize, at: RelPath) {
        self.stopped = true;
        self.report_limit(at, &format!("{name} is {value}: the search stopped here"));
    }

    fn report_limit(&mut self, at: RelPath, text: &str) {
        self.truncated = true;
        let text = format!("{text}; raise the limit, or select a smaller root");
        self.add_diagnostic(at, FileProblem::warning(DiagnosticCode::LimitReached, text));
    }

    fn report_omitted(&mut self, at: RelPath, problem: FileProblem) {
        self.counts.omitted += 1;
        self.add_diagnostic(at, problem);
    }

    fn add_diagnostic(&mut self, at: RelPath, problem: FileProblem) {
        self.diagnostics.push(Diagnostic { resource: Some(at), problem });
    }
}

fn alias_problem(first: &RelPath) -> FileProblem {
    FileProblem::note(
        DiagnosticCode::Alias,
        format!("another path to `{first}`, which names what it holds"),
    )
}

fn not_regular_problem() -> FileProblem {
    FileProblem::error(DiagnosticCode::NotRegular, "not a regular file; it was not opened")
}

fn link_not_followed_problem() -> FileProblem {
    FileProblem::warning(DiagnosticCode::OutsideRoot, "links are not followed below this root")
}

#[cfg(test)]
mod tests;
