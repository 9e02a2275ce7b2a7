//! The search for skills below one root, as a state machine over plain listings: breadth first,
//! names in byte order, so that limits cut at the same place every time. Leaves listing and reading
//! to `disk`, which may do the visits of one round in any order and in parallel.
//!
//! A directory is entered once. Directories that are reached without a link are all entered first,
//! so that they name what they hold; links follow, shallow before deep.

use super::catalog::{Counts, Diagnostics};
use super::diagnostic::{Code, Diagnostic, Problem};
use super::limits::Limits;
use super::listing::{Entry, Identity, Listing, Visit, What};
use super::skill::MainFile;
use super::{RelPath, Spot, SwitchedOff, main_file};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

/// What a search may do.
#[derive(Debug, Clone)]
pub struct Rules {
    /// How far it may go.
    pub limits: Limits,
    /// Directories that are never entered, by name.
    pub passed_over: Vec<Box<[u8]>>,
    /// Directories that are not entered directly inside a skill, by name.
    pub own_directories: Vec<Box<[u8]>>,
    /// Whether links are followed at all.
    pub follow_links: bool,
    /// Published roots, which are searched as themselves only. The root may be one of them.
    pub fences: Arc<HashSet<Spot>>,
    /// Skills that are found and not listed.
    pub switched_off: Arc<SwitchedOff>,
}

/// The names that are passed over unless the operator says otherwise.
pub const PASSED_OVER: [&str; 7] =
    [".git", ".hg", ".svn", "node_modules", "target", "__pycache__", ".venv"];
/// The names that are passed over directly inside a skill unless the operator says otherwise.
pub const OWN_DIRECTORIES: [&str; 3] = ["scripts", "references", "assets"];

/// A SKILL.md, named by the path that won.
#[derive(Debug)]
pub struct Candidate {
    /// Its directory, as walked.
    pub package: RelPath,
    /// Where the file really is.
    pub spot: Spot,
    /// What it holds.
    pub file: Arc<MainFile>,
}

/// All that a search found.
#[derive(Debug)]
pub struct Found {
    /// What it found.
    pub rest: Rest,
    /// Each directory that was entered, and whether it may hold a manifest.
    pub entered: HashMap<Spot, bool>,
}

/// What a search found, but for where it has been.
#[derive(Debug)]
pub struct Rest {
    /// Every SKILL.md that could be read.
    pub candidates: Vec<Candidate>,
    /// What was wrong on the way.
    pub diagnostics: Diagnostics,
    /// What was met; `left_out` so far.
    pub counts: Counts,
    /// Whether a limit cut the search short.
    pub truncated: bool,
}

/// A search under way. Ask [`Search::round`], list what it gives, hand it to [`Search::absorb`] in
/// the same order, until a round is empty; then [`Search::finish`].
#[derive(Debug)]
pub struct Search {
    rules: Rules,
    root: Spot,
    direct: Vec<Visit>,
    /// By depth.
    linked: BTreeMap<usize, Vec<(Visit, Option<Identity>)>>,
    entered: HashMap<Identity, RelPath>,
    spots: HashMap<Spot, bool>,
    candidates: Vec<(Candidate, bool)>,
    diagnostics: Diagnostics,
    counts: Counts,
    passed_over: BTreeMap<Box<[u8]>, u32>,
    too_deep: Option<(RelPath, u32)>,
    stopped: bool,
    truncated: bool,
}

impl Search {
    /// A search that begins at `root`.
    #[must_use]
    pub fn new(root: Spot, rules: Rules) -> Self {
        let first = Visit { walked: RelPath::root(), spot: root.clone(), linked: false };
        let diagnostics = Diagnostics::keeping(rules.limits.max_diagnostics);
        Self {
            rules,
            root,
            direct: vec![first],
            linked: BTreeMap::new(),
            entered: HashMap::new(),
            spots: HashMap::new(),
            candidates: Vec::new(),
            diagnostics,
            counts: Counts::default(),
            passed_over: BTreeMap::new(),
            too_deep: None,
            stopped: false,
            truncated: false,
        }
    }

    /// The directories to list next; none when the search is over.
    pub fn round(&mut self) -> Vec<Visit> {
        while !self.stopped {
            let mut round = std::mem::take(&mut self.direct);
            if round.is_empty() {
                let Some((_, mut level)) = self.linked.pop_first() else { break };
                level.sort_by(|a, b| a.0.walked.cmp(&b.0.walked));
                round =
                    level.into_iter().filter_map(|(v, id)| self.unless_entered(v, id)).collect();
            }
            // One more than fits, so that reaching the limit is seen by absorbing it.
            let room = self.rules.limits.max_directories - self.counts.directories as usize;
            round.truncate(room + 1);
            if !round.is_empty() {
                return round;
            }
        }
        Vec::new()
    }

    fn unless_entered(&mut self, visit: Visit, identity: Option<Identity>) -> Option<Visit> {
        let Some(first) = identity.and_then(|id| self.entered.get(&id)) else {
            return Some(visit);
        };
        let note = alias(first);
        self.report(visit.walked, note);
        None
    }

    /// Takes the listings of a round, in the round's order.
    pub fn absorb(&mut self, listed: Vec<(Visit, Result<Arc<Listing>, Problem>)>) {
        self.entered.reserve(listed.len());
        self.spots.reserve(listed.len());
        for (visit, listing) in listed {
            if self.stopped {
                return;
            }
            if self.counts.directories as usize >= self.rules.limits.max_directories {
                let value = self.rules.limits.max_directories;
                self.stop("max_directories", value, visit.walked);
                return;
            }
            match listing {
                Ok(listing) => self.enter(visit, &listing),
                Err(problem) => self.report(visit.walked, problem),
            }
        }
    }

    fn enter(&mut self, visit: Visit, listing: &Listing) {
        if let Some(visit) = self.unless_entered(visit, Some(listing.identity)) {
            self.entered.insert(listing.identity, visit.walked.clone());
            self.spots.insert(visit.spot.clone(), listing.may_hold_manifest);
            self.counts.directories += 1;
            self.look_at(&visit, listing);
        }
    }

    fn look_at(&mut self, visit: &Visit, listing: &Listing) {
        let room = self.rules.limits.max_entries - self.counts.entries as usize;
        let seen = listing.total.min(room);
        self.counts.entries += u32::try_from(seen).unwrap_or(u32::MAX);
        let entries = || listing.entries.iter().filter(|e| e.ordinal < room);
        let is_skill = entries().any(|e| {
            &*e.name == b"SKILL.md" && matches!(e.what, What::File(_) | What::LinkedFile(..))
        });
        let named = entries().any(|e| &*e.name == b"SKILL.md");
        for entry in entries() {
            // Only a name that holds no `/` or NUL can come from a directory.
            let Some(walked) = visit.walked.join(&entry.name) else { continue };
            if self.is_passed_over(entry, is_skill) {
                continue;
            }
            if !named && entry.is_wrong_case() {
                self.report(
                    walked.clone(),
                    Problem::note(
                        Code::WrongCase,
                        "not a skill: did you mean `SKILL.md`? The name must be in that letter case",
                    ),
                );
            }
            self.take(visit, walked, entry);
            if self.stopped {
                return;
            }
        }
        if listing.total > room {
            self.stop("max_entries", self.rules.limits.max_entries, visit.walked.clone());
        }
    }

    fn is_passed_over(&mut self, entry: &Entry, is_skill: bool) -> bool {
        if !matches!(entry.what, What::Directory | What::LinkedDirectory(..)) {
            return false;
        }
        if entry.name.starts_with(b"..") {
            // How Kubernetes keeps the versions of a mounted ConfigMap: what is meant to be seen are
            // links into these.
            self.count_passed_over(b"..*");
            return true;
        }
        let names = &self.rules.passed_over;
        let own = &self.rules.own_directories;
        let passed = names.contains(&entry.name) || is_skill && own.contains(&entry.name);
        if passed {
            self.count_passed_over(&entry.name);
        }
        passed
    }

    fn count_passed_over(&mut self, name: &[u8]) {
        self.counts.passed_over += 1;
        *self.passed_over.entry(name.into()).or_default() += 1;
    }

    fn take(&mut self, visit: &Visit, walked: RelPath, entry: &Entry) {
        let is_main = &*entry.name == b"SKILL.md";
        match &entry.what {
            What::Directory => {
                if is_main {
                    self.leave_out(walked.clone(), not_regular());
                }
                let spot = if visit.walked == visit.spot.rel {
                    // Held once, not twice.
                    Some(Spot { base: visit.spot.base, rel: walked.clone() })
                } else {
                    visit.spot.join(&entry.name)
                };
                let Some(spot) = spot else { return };
                self.queue(Visit { walked, spot, linked: visit.linked }, None);
            }
            What::File(Some(read)) => {
                let Some(spot) = visit.spot.join(&entry.name) else { return };
                self.candidate(visit, walked, spot, visit.linked, read);
            }
            What::LinkedFile(_, Some(_)) | What::LinkedDirectory(..)
                if !self.rules.follow_links =>
            {
                self.bad_link(walked, is_main, not_followed());
            }
            What::LinkedFile(spot, Some(read)) => {
                self.candidate(visit, walked, spot.clone(), true, read);
            }
            What::LinkedDirectory(spot, identity) => {
                if is_main {
                    self.leave_out(walked.clone(), not_regular());
                }
                let visit = Visit { walked, spot: spot.clone(), linked: true };
                self.queue(visit, Some(*identity));
            }
            What::BadLink(problem) => self.bad_link(walked, is_main, problem.clone()),
            What::Special if is_main => self.leave_out(walked, not_regular()),
            What::Special | What::File(None) | What::LinkedFile(_, None) => {}
        }
    }

    fn bad_link(&mut self, walked: RelPath, is_main: bool, mut problem: Problem) {
        if is_main {
            problem.severity = super::Severity::Error;
            self.leave_out(walked, problem);
        } else {
            self.report(walked, problem);
        }
    }

    fn queue(&mut self, visit: Visit, identity: Option<Identity>) {
        if visit.spot != self.root && self.rules.fences.contains(&visit.spot) {
            let name = visit.walked.file_name().unwrap_or_default().to_vec();
            return self.count_passed_over(&name);
        }
        let depth = visit.walked.depth();
        if depth > self.rules.limits.max_depth {
            let (_, more) = self.too_deep.get_or_insert((visit.walked, 0));
            *more += 1;
        } else if visit.linked {
            self.linked.entry(depth).or_default().push((visit, identity));
        } else {
            self.direct.push(visit);
        }
    }

    fn candidate(
        &mut self,
        visit: &Visit,
        walked: RelPath,
        spot: Spot,
        linked: bool,
        read: &Result<Arc<MainFile>, Problem>,
    ) {
        match read {
            Err(problem) => self.leave_out(walked, problem.clone()),
            // Links may yet turn out to be other names of the same, so only these surely count.
            Ok(_) if !linked && self.candidates.len() >= self.rules.limits.max_skills => {
                self.stop("max_skills", self.rules.limits.max_skills, walked);
            }
            Ok(file) => {
                let package = visit.walked.clone();
                let file = file.clone();
                self.candidates.push((Candidate { package, spot, file }, linked));
            }
        }
    }

    /// Settles which path names what, and closes the counts.
    #[must_use]
    pub fn finish(mut self) -> Found {
        let mut all = std::mem::take(&mut self.candidates);
        all.sort_by_cached_key(|(c, linked)| (*linked, c.package.depth(), c.package.clone()));
        let walked = |candidate: &Candidate| candidate.package.join_all(&main_file());
        let mut first: HashMap<Spot, usize> = HashMap::with_capacity(all.len());
        let mut candidates: Vec<Candidate> = Vec::with_capacity(all.len());
        for (candidate, _) in all {
            if let Some(first) = first.get(&candidate.spot) {
                self.leave_out(walked(&candidate), alias(&walked(&candidates[*first])));
            } else if candidates.len() >= self.rules.limits.max_skills {
                self.stop("max_skills", self.rules.limits.max_skills, walked(&candidate));
                break;
            } else {
                first.insert(candidate.spot.clone(), candidates.len());
                candidates.push(candidate);
            }
        }
        if let Some((at, dirs)) = self.too_deep.take() {
            let limit = self.rules.limits.max_depth;
            let more = if dirs > 1 { format!(", nor {} more", dirs - 1) } else { String::new() };
            self.limit(at, &format!("max_depth is {limit}: this directory was not searched{more}"));
        }
        if self.counts.passed_over > 0 {
            let mut text = String::from("directories that were not searched, by name:");
            for (name, count) in &self.passed_over {
                let name = String::from_utf8_lossy(name);
                let _ = write!(text, " `{}` ({count})", name.escape_debug());
            }
            self.report(RelPath::root(), Problem::note(Code::PassedOver, text));
        }
        let rest = Rest {
            candidates,
            diagnostics: self.diagnostics,
            counts: self.counts,
            truncated: self.truncated,
        };
        Found { rest, entered: self.spots }
    }

    fn stop(&mut self, name: &str, value: usize, at: RelPath) {
        self.stopped = true;
        self.limit(at, &format!("{name} is {value}: the search stopped here"));
    }

    fn limit(&mut self, at: RelPath, text: &str) {
        self.truncated = true;
        let text = format!("{text}; raise the limit, or select a smaller root");
        self.report(at, Problem::warning(Code::LimitReached, text));
    }

    fn leave_out(&mut self, at: RelPath, problem: Problem) {
        self.counts.left_out += 1;
        self.report(at, problem);
    }

    fn report(&mut self, at: RelPath, problem: Problem) {
        self.diagnostics.push(Diagnostic { resource: Some(at), problem });
    }
}

fn alias(first: &RelPath) -> Problem {
    Problem::note(Code::Alias, format!("another path to `{first}`, which names what it holds"))
}

fn not_regular() -> Problem {
    Problem::error(Code::NotRegular, "not a regular file; it was not opened")
}

fn not_followed() -> Problem {
    Problem::warning(Code::OutsideRoot, "links are not followed below this root")
}

#[cfg(test)]
mod tests;
