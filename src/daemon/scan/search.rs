//! Scan for skills below one root, as a state machine over directory listings. The scan goes
//! breadth first and by names in byte order, so that a limit ends every scan at the same entry. The
//! caller lists the directories of one round in any order and in parallel.
//!
//! A directory is entered once. Directories that are reached without a link are entered first, so
//! that their skills are named by the path without a link. Linked directories follow, shallow
//! before deep.

use super::file_problem::{link_not_followed_problem, not_regular_problem};
use super::scanned_dir::{DirListing, DirToScan, ListingEntry, ListingEntryKind, SkillFileRead};
use crate::daemon::fs::{DisabledSkills, ReadRules};
use crate::daemon::model::catalog::{BoundedDiagnostics, RootCounts};
use crate::daemon::model::diagnostic::{DiagnosticCode, FileProblem};
use crate::daemon::model::limits::Limits;
use crate::daemon::model::skill::SkillFile;
use crate::daemon::model::{
    Catalog, DirIdentity, DisableRules, PublishedRoot, ResolvedPath, Severity, TrustPolicy,
    skill_file_name,
};
use caproot_core::text::EscapedBytes;
use caproot_core::wire::RelPath;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

/// Rules of a scan.
#[derive(Debug, Clone)]
pub struct SearchRules {
    /// Limits of the scan.
    pub limits: Limits,
    /// Names of directories that are never entered.
    pub skipped_dirs: Vec<Box<[u8]>>,
    /// Names of directories that are not entered directly inside a skill.
    pub resource_dirs: Vec<Box<[u8]>>,
    /// Whether links are followed.
    pub follow_links: bool,
    /// Published roots, which only their own scans enter. The scanned root may be one of them.
    pub nested_roots: Arc<HashSet<ResolvedPath>>,
    /// Rules for skills that are found and not listed.
    pub disable_rules: Arc<DisableRules>,
    /// Approved skills. A scan ignores the lock if it does not apply to the root.
    pub trust: Option<TrustPolicy>,
}

impl SearchRules {
    /// Returns the rules for reading and listing the files of a package, without approval.
    #[must_use]
    pub fn read_rules<'a>(
        &'a self,
        published: &'a [PublishedRoot],
        catalog: &'a Catalog,
        package: &RelPath,
    ) -> ReadRules<'a> {
        let disabled_skills = DisabledSkills {
            packages: &catalog.disabled_packages,
            rules: &self.disable_rules,
            published,
        };
        // The rules of skills apply to a package that is a skill and a plugin.
        let is_plugin = catalog.plugin(package).is_some() && catalog.skill(package).is_none();
        ReadRules {
            skipped_dirs: &self.skipped_dirs,
            follow_links: catalog.header.follow_links,
            disabled_skills,
            manifest_files: &catalog.manifest_files,
            is_plugin,
            approved_files: None,
        }
    }
}

/// Default of [`SearchRules::skipped_dirs`].
pub const DEFAULT_SKIPPED_DIRS: [&str; 7] = [
    ".git",
    ".hg",
    ".svn",
    "node_modules",
    "target",
    "__pycache__",
    ".venv",
];
/// Default of [`SearchRules::resource_dirs`].
pub const DEFAULT_RESOURCE_DIRS: [&str; 3] = ["scripts", "references", "assets"];

/// SKILL.md with the path that names the skill.
#[derive(Debug)]
pub struct SkillCandidate {
    /// Directory of the skill below the root, with links unresolved.
    pub package: RelPath,
    /// Resolved path of the file.
    pub resolved: ResolvedPath,
    /// Parsed content of the file.
    pub file: Arc<SkillFile>,
}

impl SkillCandidate {
    /// Returns the path of the SKILL.md below the root.
    fn skill_file(&self) -> RelPath {
        self.package.join_path(&skill_file_name())
    }

    fn has_own_name(&self) -> bool {
        has_name_of_skill(&self.package, &self.file)
    }
}

/// Result of a scan.
#[derive(Debug)]
pub struct SearchOutcome {
    /// Skills and diagnostics.
    pub findings: SearchFindings,
    /// Whether each entered directory may contain a plugin manifest, by resolved path.
    pub entered_dirs: HashMap<ResolvedPath, bool>,
}

/// Skills and diagnostics of a scan.
#[derive(Debug)]
pub struct SearchFindings {
    /// Every SKILL.md whose read succeeded.
    pub candidates: Vec<SkillCandidate>,
    /// Diagnostics of the scan.
    pub diagnostics: BoundedDiagnostics,
    /// Counts of the scan. The caller adds to `omitted`.
    pub counts: RootCounts,
    /// Whether a limit ended the scan early.
    pub truncated: bool,
}

/// Scan in progress. Call [`next_round`](Self::next_round), list the directories that the call
/// returns, and pass the listings to [`add_listing`](Self::add_listing) in the same order. Repeat
/// until a round is empty, then call [`finish`](Self::finish).
#[derive(Debug)]
pub struct SkillSearch {
    rules: SearchRules,
    root: ResolvedPath,
    /// Directories of the next round.
    pending_dirs: Vec<DirToScan>,
    /// Linked directories by depth, entered after all directories without a link.
    pending_linked_dirs: BTreeMap<usize, Vec<(DirToScan, Option<DirIdentity>)>>,
    entered_identities: HashMap<DirIdentity, RelPath>,
    /// Links to directories that are entered in this round, by identity.
    linked_in_round: HashMap<DirIdentity, Vec<RelPath>>,
    entered_dirs: HashMap<ResolvedPath, bool>,
    /// Candidates, each with whether its path goes through a link.
    candidates: Vec<(SkillCandidate, bool)>,
    diagnostics: BoundedDiagnostics,
    counts: RootCounts,
    skipped_names: BTreeMap<Box<[u8]>, u32>,
    /// First directory over `max_depth`, and how many there are.
    first_too_deep: Option<(RelPath, u32)>,
    stopped: bool,
    truncated: bool,
}

impl SkillSearch {
    /// Creates a scan that begins at `root`.
    #[must_use]
    pub fn new(root: ResolvedPath, rules: SearchRules) -> Self {
        let first = DirToScan {
            path: RelPath::root(),
            resolved: root.clone(),
            via_link: false,
        };
        let diagnostics = BoundedDiagnostics::with_limit(rules.limits.max_diagnostics);

        Self {
            rules,
            root,
            pending_dirs: vec![first],
            pending_linked_dirs: BTreeMap::new(),
            entered_identities: HashMap::new(),
            linked_in_round: HashMap::new(),
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

    /// Returns the directories to list next, or none if the scan is complete.
    pub fn next_round(&mut self) -> Vec<DirToScan> {
        while !self.stopped {
            let mut round = std::mem::take(&mut self.pending_dirs);
            self.linked_in_round.clear();

            if round.is_empty() {
                let Some((_, mut level)) = self.pending_linked_dirs.pop_first() else {
                    break;
                };
                level.sort_by(|a, b| a.0.path.cmp(&b.0.path));
                for (dir, identity) in level {
                    let Some(dir) = self.skip_if_entered(dir, identity) else {
                        continue;
                    };
                    if let Some(identity) = identity {
                        let links = self.linked_in_round.entry(identity).or_default();
                        links.push(dir.path.clone());
                    }
                    round.push(dir);
                }
            }

            // One directory more than the limit, so that `add_listing` reports the limit.
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

    /// Returns the directory, or reports an alias if the directory was entered by another path.
    fn skip_if_entered(
        &mut self,
        dir: DirToScan,
        identity: Option<DirIdentity>,
    ) -> Option<DirToScan> {
        let Some(first) = identity.and_then(|id| self.entered_identities.get(&id)) else {
            return Some(dir);
        };
        let alias = alias_problem(first);
        self.add_diagnostic(dir.path, alias);
        None
    }

    /// Adds the listing of the next directory of the round.
    pub fn add_listing(&mut self, dir: DirToScan, listing: Result<Arc<DirListing>, FileProblem>) {
        if self.stopped {
            return;
        }
        if self.counts.directories as usize >= self.rules.limits.max_directories {
            let value = self.rules.limits.max_directories;
            return self.stop_at_limit("max_directories", value, dir.path);
        }

        let listing = match listing {
            Ok(listing) => listing,
            Err(problem) => return self.add_diagnostic(dir.path, problem),
        };

        if listing.is_worktree {
            let why = "a Git worktree of a repository below the root, and so not searched again";
            let problem = FileProblem::note(DiagnosticCode::DirectoriesSkipped, why);
            return self.add_diagnostic(dir.path, problem);
        }

        if let Some(better) = self.better_link(&dir, &listing) {
            return self.add_diagnostic(dir.path, alias_problem(&better));
        }

        if let Some(dir) = self.skip_if_entered(dir, Some(listing.identity)) {
            self.entered_identities
                .insert(listing.identity, dir.path.clone());
            self.entered_dirs
                .insert(dir.resolved.clone(), listing.may_hold_manifest);
            self.counts.directories += 1;
            self.process_entries(&dir, &listing);
        }
    }

    /// Returns the link of the round that leads to the same skill and has the name of the skill, if
    /// this link has another name.
    fn better_link(&self, dir: &DirToScan, listing: &DirListing) -> Option<RelPath> {
        let links = self.linked_in_round.get(&listing.identity)?;
        let file = listing.skill_file()?;
        if has_name_of_skill(&dir.path, file) {
            return None;
        }
        let mut links = links.iter();
        links.find(|path| has_name_of_skill(path, file)).cloned()
    }

    fn process_entries(&mut self, dir: &DirToScan, listing: &DirListing) {
        let room = self.rules.limits.max_entries - self.counts.entries as usize;
        let seen = listing.total_entries.min(room);
        self.counts.entries += u32::try_from(seen).unwrap_or(u32::MAX);

        let entries: Vec<_> = listing
            .entries
            .iter()
            .filter(|entry| entry.ordinal < room)
            .collect();
        let named = entries.iter().find(|e| &*e.name == b"SKILL.md");
        let is_skill = named.is_some_and(|e| e.is_skill_file_in_any_case());
        let has_skill_file = named.is_some();
        for entry in entries {
            // `readdir` returns no name with a `/` or NUL.
            let Some(path) = dir.path.join(&entry.name) else {
                continue;
            };
            if self.skip_dir_by_name(entry, is_skill) {
                continue;
            }

            if !has_skill_file && entry.is_skill_file_in_any_case() {
                let why =
                    "not a skill: the file name is case-sensitive; rename the file to `SKILL.md`";
                let problem = FileProblem::warning(DiagnosticCode::WrongCase, why);
                self.add_diagnostic(path.clone(), problem);
            }

            self.process_entry(dir, path, entry);
            if self.stopped {
                return;
            }
        }

        if listing.total_entries > room {
            let value = self.rules.limits.max_entries;
            self.stop_at_limit("max_entries", value, dir.path.clone());
        }
    }

    /// Counts the entry as skipped if it is a directory whose name is skipped. Returns whether the
    /// entry is skipped.
    fn skip_dir_by_name(&mut self, entry: &ListingEntry, is_skill: bool) -> bool {
        if !matches!(
            entry.kind,
            ListingEntryKind::Directory | ListingEntryKind::LinkedDirectory(..)
        ) {
            return false;
        }

        if entry.name.starts_with(b"..") {
            // Kubernetes keeps the versions of a mounted ConfigMap in such directories, and links
            // to their files from the volume's directory.
            self.count_skipped(b"..*");
            return true;
        }

        let rules = &self.rules;
        let is_skipped = rules.skipped_dirs.contains(&entry.name)
            || is_skill && rules.resource_dirs.contains(&entry.name);
        if is_skipped {
            self.count_skipped(&entry.name);
        }
        is_skipped
    }

    fn count_skipped(&mut self, name: &[u8]) {
        self.counts.skipped += 1;
        *self.skipped_names.entry(name.into()).or_default() += 1;
    }

    fn process_entry(&mut self, dir: &DirToScan, path: RelPath, entry: &ListingEntry) {
        let is_skill_file = &*entry.name == b"SKILL.md";
        let is_irregular = match &entry.kind {
            ListingEntryKind::Directory | ListingEntryKind::SpecialFile => true,
            ListingEntryKind::LinkedDirectory(..) => self.rules.follow_links,
            _ => false,
        };
        if is_skill_file && is_irregular {
            self.report_omitted(path.clone(), not_regular_problem());
        }

        match &entry.kind {
            ListingEntryKind::Directory => {
                let Some(mut resolved) = dir.resolved.join(&entry.name) else {
                    return;
                };
                if resolved.rel_path == path {
                    // Shares the path's memory.
                    resolved.rel_path = path.clone();
                }
                let subdir = DirToScan {
                    path,
                    resolved,
                    via_link: dir.via_link,
                };
                self.queue_dir(subdir, None);
            }
            ListingEntryKind::File(Some(read)) => {
                if let Some(resolved) = dir.resolved.join(&entry.name) {
                    self.add_candidate(dir, path, resolved, dir.via_link, read);
                }
            }
            ListingEntryKind::LinkedFile(_, Some(_)) | ListingEntryKind::LinkedDirectory(..)
                if !self.rules.follow_links =>
            {
                self.report_broken_link(path, is_skill_file, link_not_followed_problem());
            }
            ListingEntryKind::LinkedFile(resolved, Some(read)) => {
                self.add_candidate(dir, path, resolved.clone(), true, read);
            }
            ListingEntryKind::LinkedDirectory(resolved, identity) => {
                let dir = DirToScan {
                    path,
                    resolved: resolved.clone(),
                    via_link: true,
                };
                self.queue_dir(dir, Some(*identity));
            }
            ListingEntryKind::BrokenLink(problem) => {
                self.report_broken_link(path, is_skill_file, problem.clone());
            }
            ListingEntryKind::SpecialFile
            | ListingEntryKind::File(None)
            | ListingEntryKind::LinkedFile(_, None) => {}
        }
    }

    fn report_broken_link(&mut self, path: RelPath, is_skill_file: bool, mut problem: FileProblem) {
        if is_skill_file {
            problem.severity = Severity::Error;
            self.report_omitted(path, problem);
        } else {
            self.add_diagnostic(path, problem);
        }
    }

    fn queue_dir(&mut self, dir: DirToScan, identity: Option<DirIdentity>) {
        if dir.resolved != self.root && self.rules.nested_roots.contains(&dir.resolved) {
            let name = dir.path.file_name().unwrap_or_default().to_vec();
            return self.count_skipped(&name);
        }
        let depth = dir.path.depth();
        if depth > self.rules.limits.max_depth {
            let (_, more) = self.first_too_deep.get_or_insert((dir.path, 0));
            *more += 1;
        } else if dir.via_link {
            self.pending_linked_dirs
                .entry(depth)
                .or_default()
                .push((dir, identity));
        } else {
            self.pending_dirs.push(dir);
        }
    }

    fn add_candidate(
        &mut self,
        dir: &DirToScan,
        path: RelPath,
        resolved: ResolvedPath,
        via_link: bool,
        read: &SkillFileRead,
    ) {
        match read {
            Err(problem) => self.report_omitted(path, problem.clone()),
            // A linked SKILL.md may be an alias, so that only `finish` can count it.
            Ok(_) if !via_link && self.candidates.len() >= self.rules.limits.max_skills => {
                self.stop_at_limit("max_skills", self.rules.limits.max_skills, path);
            }
            Ok(file) => {
                let candidate = SkillCandidate {
                    package: dir.path.clone(),
                    resolved,
                    file: file.clone(),
                };
                self.candidates.push((candidate, via_link));
            }
        }
    }

    /// Resolves aliases, reports skipped and too deep directories, and returns the result.
    #[must_use]
    pub fn finish(mut self) -> SearchOutcome {
        let mut all = std::mem::take(&mut self.candidates);

        // `find_aliases` prefers the first path of a file: one without a link, then the least deep.
        all.sort_by_cached_key(|(c, via_link)| (*via_link, c.package.depth(), c.package.clone()));

        let aliases = find_aliases(&all);
        let mut candidates: Vec<SkillCandidate> = Vec::with_capacity(all.len());
        for (at, (candidate, _)) in all.into_iter().enumerate() {
            if let Some(used) = aliases.get(&at) {
                // An alias is no skill of its own, so that the limit does not count it.
                self.report_omitted(candidate.skill_file(), alias_problem(used));
            } else if candidates.len() >= self.rules.limits.max_skills {
                let value = self.rules.limits.max_skills;
                self.stop_at_limit("max_skills", value, candidate.skill_file());
                break;
            } else {
                candidates.push(candidate);
            }
        }

        if let Some((at, dirs)) = self.first_too_deep.take() {
            let limit = self.rules.limits.max_depth;
            let more = if dirs > 1 {
                format!(", nor {} more", dirs - 1)
            } else {
                String::new()
            };
            let text = format!("max_depth is {limit}: this directory was not scanned{more}");
            self.report_limit(at, &text);
        }

        if self.counts.skipped > 0 {
            let mut text = String::from("skipped directories, by name:");
            for (name, count) in &self.skipped_names {
                let _ = write!(text, " `{}` ({count})", EscapedBytes(name));
            }
            let problem = FileProblem::note(DiagnosticCode::DirectoriesSkipped, text);
            self.add_diagnostic(RelPath::root(), problem);
        }

        let findings = SearchFindings {
            candidates,
            diagnostics: self.diagnostics,
            counts: self.counts,
            truncated: self.truncated,
        };
        SearchOutcome {
            findings,
            entered_dirs: self.entered_dirs,
        }
    }

    fn stop_at_limit(&mut self, name: &str, value: usize, at: RelPath) {
        self.stopped = true;
        self.report_limit(at, &format!("{name} is {value}: the scan stopped here"));
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
        self.diagnostics.report(Some(at), problem);
    }
}

/// Returns the candidates that lead to the file of another candidate, by index, with the path of the
/// other. The first candidate of a file is used. If all lead through links, a candidate in a directory
/// with the skill's name is used instead.
fn find_aliases(all: &[(SkillCandidate, bool)]) -> HashMap<usize, RelPath> {
    let mut used_by_file: HashMap<&ResolvedPath, usize> = HashMap::with_capacity(all.len());
    let mut others = Vec::new();
    for (at, (candidate, _)) in all.iter().enumerate() {
        let used = used_by_file.entry(&candidate.resolved).or_insert(at);
        if *used == at {
            continue;
        }
        let (first, via_link) = &all[*used];
        let is_better = *via_link && !first.has_own_name() && candidate.has_own_name();
        others.push(if is_better {
            std::mem::replace(used, at)
        } else {
            at
        });
    }

    let with_used = others.into_iter().map(|at| {
        let used = used_by_file[&all[at].0.resolved];
        (at, all[used].0.skill_file())
    });
    with_used.collect()
}

/// Whether the directory of a skill has the name of the skill.
fn has_name_of_skill(package: &RelPath, file: &SkillFile) -> bool {
    let fields = file.frontmatter.as_ref();
    fields.is_some_and(|fields| package.file_name() == Some(fields.name().as_bytes()))
}

fn alias_problem(first: &RelPath) -> FileProblem {
    let why = format!("another path to `{first}`; only that path is used");
    FileProblem::note(DiagnosticCode::Alias, why)
}

#[cfg(test)]
mod tests;
