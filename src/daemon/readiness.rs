//! Looks up the programs and variables that skills need, below the directories that the operator names.
//! A program is a file with an execute bit. Nothing is opened or run.
//!
//! Each name is looked up once, and again after an event in one of the directories. So a list of
//! skills reads no directory.

use crate::daemon::model::requirements::is_own_platform;
use crate::daemon::model::{Catalog, ReadinessConfig, SkillRequirement, SkillRequirements};
use caproot_core::file_watch::{COMPARE_INTERVAL, parent_dirs, start_file_watcher};
use caproot_core::sync::{Mutex, run_blocking};
use caproot_core::wire::RelPath;
use lru::LruCache;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// Maximum number of programs that are looked up. Further programs are unknown.
const MAX_PROGRAMS: usize = 8_192;
/// Maximum number of catalogs whose readiness is kept.
const MAX_TABLES: NonZeroUsize = NonZeroUsize::new(64).expect("not zero");
/// Longest wait for a lookup, because the disk of a directory may hang. The result is unknown until the
/// lookup ends.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);

/// Result of the lookup of a program or a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LookupResult {
    Absent,
    Unknown,
    Present,
}

/// Readiness of a skill that declares requirements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedReadiness {
    /// Requirements that the executor does not have.
    pub missing: Vec<SkillRequirement>,
    /// Whether a requirement is unknown.
    pub has_unknown: bool,
}

/// Readiness of the skills of a catalog that declare requirements.
#[derive(Debug)]
pub struct ReadinessTable {
    /// Number of the lookups from which the table was made.
    pub generation: u64,
    /// By package.
    pub skills: BTreeMap<RelPath, CheckedReadiness>,
}

/// Looks requirements up. All clones share the results.
#[derive(Debug, Clone)]
pub struct ReadinessChecker(Arc<CheckerState>);

#[derive(Debug)]
struct CheckerState {
    path: Vec<PathBuf>,
    /// Variables that may be answered, and whether each is set.
    variables: BTreeMap<String, bool>,
    programs: Mutex<HashMap<Box<str>, LookupResult>>,
    tables: Mutex<LruCache<TableKey, KnownTable>>,
    /// Number of changes of `programs` that may change a table.
    generation: watch::Sender<u64>,
}

/// Table of a catalog.
#[derive(Debug)]
struct KnownTable {
    catalog: Weak<Catalog>,
    table: Arc<ReadinessTable>,
}

/// Address of a catalog, and the generation of the lookups.
type TableKey = (usize, u64);

impl ReadinessChecker {
    /// Creates a checker. Reads the variables of this process once, because they never change.
    #[must_use]
    pub fn new(config: &ReadinessConfig) -> Self {
        Self(Arc::new(CheckerState {
            path: config.path.clone(),
            variables: config
                .variables
                .iter()
                .map(|name| (name.clone(), std::env::var_os(name).is_some()))
                .collect(),
            programs: Mutex::default(),
            tables: Mutex::new(LruCache::new(MAX_TABLES)),
            generation: watch::Sender::new(0),
        }))
    }

    /// Returns a receiver that changes with the results.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.generation.subscribe()
    }

    /// Returns the readiness of the skills of a catalog. `None` if no skill declares a requirement.
    pub async fn check_catalog(&self, catalog: &Arc<Catalog>) -> Option<Arc<ReadinessTable>> {
        if !catalog.may_have_requirements {
            return None;
        }
        if let Some(table) = self.0.known_table(catalog) {
            return Some(table);
        }
        let has_looked_up = self.look_up_new(catalog).await;

        // The lock keeps the generation and the results together.
        let programs = self.0.programs.lock();
        // Another call may have waited for the same lookup.
        if let Some(table) = self.0.known_table(catalog) {
            return Some(table);
        }
        let generation = *self.0.generation.borrow();
        let is_set = |name: &str| self.0.variables.get(name).copied();
        let table = Arc::new(ReadinessTable {
            generation,
            skills: catalog
                .skills(0)
                .filter_map(|skill| {
                    let checked = check(skill.requirements()?, &programs, is_set);
                    Some((skill.package.clone(), checked))
                })
                .collect(),
        });
        if has_looked_up {
            let known = KnownTable {
                catalog: Arc::downgrade(catalog),
                table: table.clone(),
            };
            let key = table_key(catalog, generation);
            self.0.tables.lock().put(key, known);
        }
        Some(table)
    }

    /// Looks up the programs of a catalog that were not looked up yet. Returns whether all lookups began:
    /// without a free thread, the next call must look up again.
    async fn look_up_new(&self, catalog: &Catalog) -> bool {
        if self.0.path.is_empty() {
            return true;
        }
        let new: Vec<Box<str>> = {
            let known = self.0.programs.lock();
            let new: BTreeSet<_> = catalog
                .skills(0)
                .filter_map(|skill| skill.requirements())
                .flat_map(SkillRequirements::programs)
                .filter(|name| !known.contains_key(*name))
                .collect();
            let room = MAX_PROGRAMS.saturating_sub(known.len());
            new.into_iter().take(room).map(Into::into).collect()
        };
        if new.is_empty() {
            return true;
        }

        let state = self.0.clone();
        let lookup = run_blocking(move || state.record_lookup(&new));
        // After the timeout, the lookup goes on, and its end is a change.
        !matches!(timeout(LOOKUP_TIMEOUT, lookup).await, Ok(Err(_)))
    }

    /// Looks all programs up again after each event in the directories. Never returns.
    pub async fn follow_changes(self) {
        if self.0.path.is_empty() {
            return std::future::pending().await;
        }
        let (watched, mut hints) = start_file_watcher(|sentence| tracing::warn!("{sentence}"));
        // A directory that is made later is an event in the directory above.
        let parents = parent_dirs(self.0.path.iter().map(PathBuf::as_path));
        let dirs: BTreeSet<_> = self.0.path.iter().cloned().chain(parents).collect();

        loop {
            let state = self.0.clone();
            let watched = watched.clone();
            let dirs = dirs.clone();
            let looked_up = run_blocking(move || {
                watched.watch_only(&dirs);
                let known: Vec<_> = state.programs.lock().keys().cloned().collect();
                state.record_lookup(&known);
            });
            if let Err(error) = looked_up.await {
                tracing::warn!("cannot look up the programs of skills: {error}");
            }
            hints.wait_for_hint(COMPARE_INTERVAL).await;
        }
    }
}

fn table_key(catalog: &Arc<Catalog>, generation: u64) -> TableKey {
    (Arc::as_ptr(catalog).addr(), generation)
}

impl CheckerState {
    /// Returns the table of a catalog from the newest results. A table whose lookup did not end in time is
    /// found until the lookup ends, which is a new generation.
    fn known_table(&self, catalog: &Arc<Catalog>) -> Option<Arc<ReadinessTable>> {
        let key = table_key(catalog, *self.generation.borrow());
        let mut tables = self.tables.lock();
        // Another catalog may have the address of one that ended.
        tables
            .get(&key)
            .filter(|known| known.catalog.strong_count() > 0)
            .map(|known| known.table.clone())
    }

    /// Looks programs up, and counts a change if a result differs. Blocks on the disk.
    fn record_lookup(&self, names: &[Box<str>]) {
        let found: Vec<_> = names
            .iter()
            .map(|name| (name.clone(), find_program(&self.path, name)))
            .collect();

        let mut is_changed = false;
        let mut programs = self.programs.lock();
        for (name, presence) in found {
            is_changed |= programs.insert(name, presence) != Some(presence);
        }
        // Under the lock, so that a table never has new results and an old generation.
        if is_changed {
            self.generation.send_modify(|generation| *generation += 1);
        }
    }
}

/// Checks requirements by the results of lookups, and by whether a variable is set.
fn check(
    requirements: &SkillRequirements,
    programs: &HashMap<Box<str>, LookupResult>,
    is_set: impl Fn(&str) -> Option<bool>,
) -> CheckedReadiness {
    let mut checked = CheckedReadiness {
        missing: Vec::new(),
        has_unknown: requirements.has_unknown,
    };

    for item in &requirements.items {
        let presence = match item {
            SkillRequirement::Program(names) => any_presence(names.iter().map(|name| {
                let known = programs.get(name).copied();
                known.unwrap_or(LookupResult::Unknown)
            })),
            SkillRequirement::Variable(name) => presence_from(is_set(name)),
            SkillRequirement::Platform(names) => presence_from(is_own_platform(names)),
        };

        match presence {
            LookupResult::Present => {}
            LookupResult::Absent => checked.missing.push(item.clone()),
            LookupResult::Unknown => checked.has_unknown = true,
        }
    }
    checked
}

/// Returns the requirements that this process does not find: programs in its `PATH`, and variables of its
/// environment. Blocks on the disk.
#[must_use]
pub fn missing_in_process(requirements: &SkillRequirements) -> Vec<SkillRequirement> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<_> = std::env::split_paths(&path).collect();
    let programs = requirements
        .programs()
        .map(|name| (name.into(), find_program(&path, name)))
        .collect();
    let is_set = |name: &str| Some(std::env::var_os(name).is_some());
    check(requirements, &programs, is_set).missing
}

fn presence_from(is_present: Option<bool>) -> LookupResult {
    match is_present {
        Some(true) => LookupResult::Present,
        Some(false) => LookupResult::Absent,
        None => LookupResult::Unknown,
    }
}

/// Returns the presence of one of several programs.
fn any_presence(all: impl Iterator<Item = LookupResult>) -> LookupResult {
    all.max().unwrap_or(LookupResult::Absent)
}

/// Looks a program up in the directories, by the mode bits of the file to which its links lead. A
/// directory that cannot be seen may have the program: a sandbox can hide a directory as if it did not
/// exist.
fn find_program(path: &[PathBuf], name: &str) -> LookupResult {
    let mut result = if path.is_empty() {
        LookupResult::Unknown
    } else {
        LookupResult::Absent
    };
    for dir in path {
        match fs::metadata(dir.join(name)) {
            Ok(meta) if meta.is_file() && meta.permissions().mode() & 0o111 != 0 => {
                return LookupResult::Present;
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_dir(dir) => {}
            Err(_) => result = LookupResult::Unknown,
        }
    }
    result
}

fn is_dir(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_dir())
}

#[cfg(test)]
mod tests {
    use super::{LookupResult, any_presence, find_program};
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    fn write_program(path: &Path, mode: u32) {
        fs::write(path, "").expect("a file");
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
    }

    #[test]
    fn a_program_is_a_file_with_an_execute_bit() {
        let top = tempfile::tempdir().expect("a directory");
        let [first, second] = ["a", "b"].map(|name| top.path().join(name));
        for dir in [&first, &second] {
            fs::create_dir(dir).expect("a directory");
        }
        write_program(&first.join("text"), 0o644);
        write_program(&second.join("tool"), 0o001);
        symlink("tool", second.join("link")).expect("a link");
        symlink("none", first.join("dangling")).expect("a link");
        fs::create_dir(first.join("dir")).expect("a directory");
        let path = [first, second];

        for name in ["tool", "link"] {
            assert_eq!(find_program(&path, name), LookupResult::Present, "{name}");
        }
        for name in ["text", "dangling", "dir", "none"] {
            assert_eq!(find_program(&path, name), LookupResult::Absent, "{name}");
        }
    }

    #[test]
    fn a_directory_that_cannot_be_seen_makes_a_program_unknown() {
        let top = tempfile::tempdir().expect("a directory");
        write_program(&top.path().join("tool"), 0o755);
        let hidden = top.path().join("hidden");
        let path = [hidden, top.path().to_owned()];
        assert_eq!(find_program(&path, "tool"), LookupResult::Present);
        assert_eq!(find_program(&path, "none"), LookupResult::Unknown);
        assert_eq!(find_program(&[], "none"), LookupResult::Unknown);
        // The path of a directory may be a file.
        assert_eq!(
            find_program(&[top.path().join("tool")], "x"),
            LookupResult::Unknown
        );
    }

    #[test]
    fn one_of_several_programs_is_enough() {
        use LookupResult::{Absent, Present, Unknown};
        for (all, result) in [
            ([Absent, Present], Present),
            ([Unknown, Present], Present),
            ([Absent, Unknown], Unknown),
            ([Absent, Absent], Absent),
        ] {
            assert_eq!(any_presence(all.into_iter()), result, "{all:?}");
        }
    }
}
