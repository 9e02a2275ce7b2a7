//! Comparison of the packages of a root with the lock. A package is compared when its skill or plugin is new,
//! when a directory of the package changes, and when a read found bytes that are not approved.

use super::parallel_list::process_in_order;
use super::scan_progress::ScanProgress;
use super::scanned_root::{ScanContext, ScannedRoot};
use super::search::SearchRules;
use super::watches::{DirWatches, WatchRecorder};
use crate::daemon::fs::open_file::{OpenFile, find_target};
use crate::daemon::fs::{
    ApprovedVersion, KnownFileDigest, KnownFiles, MatchedVersion, PackageComparison,
    PackageComparisonRequest, PackageDifference, PackageObserver, ReadBudget, ResolvedRootDir,
    compare_package,
};
use crate::daemon::model::catalog::{ApprovedView, BoundedDiagnostics};
use crate::daemon::model::sidecar::sidecar_path;
use crate::daemon::model::{
    Catalog, Diagnostic, DiagnosticCode, FileProblem, FileVersion, PackageTrust, Plugin, RootTrust,
    Severity, Skill, TrustCounts, TrustMode, TrustPolicy, skill_file_name,
};
use caproot_core::lock::{ApprovedFiles, EntryKind};
use caproot_core::text::quote_word;
use caproot_core::wire::handle::encode_path;
use caproot_core::wire::{ContentDigest, RelPath};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Maximum number of packages that are compared without additional threads.
const MAX_INLINE_PACKAGES: usize = 8;

/// Maximum number of packages of one name that are compared. The files of an approved package can be
/// copied any number of times.
const MAX_PACKAGES_OF_NAME: usize = 8;

/// How often the comparisons of a root may read as much as the lock approves, in each
/// [`READ_BUDGET_INTERVAL`]. Each package of a name may be read once.
const READS_PER_INTERVAL: u64 = MAX_PACKAGES_OF_NAME as u64;
const READ_BUDGET_INTERVAL: Duration = Duration::from_mins(1);

/// Packages of a root whose names the lock has, as they were compared last.
#[derive(Debug, Default)]
pub struct PackageVerifier {
    packages: VerifiedPackages,
    /// Plugins whose names the lock does not have, as scanned and with their state.
    unknown_plugins: HashMap<RelPath, (Arc<Plugin>, Arc<Plugin>)>,
    last: Option<VerifiedCatalog>,
    read_budget: ReadBudget,
    /// Time at which the budget was refilled, and the digest of the lock of that time.
    last_refill: Option<(Instant, ContentDigest)>,
}

/// Catalog of a scan, and the catalog that callers see.
#[derive(Debug)]
struct VerifiedCatalog {
    scanned: Arc<Catalog>,
    verified: Arc<Catalog>,
}

/// Compared packages by path. A directory may be a skill and a plugin.
#[derive(Debug, Default)]
struct VerifiedPackages {
    skills: HashMap<RelPath, VerifiedPackage>,
    plugins: HashMap<RelPath, VerifiedPackage>,
}

impl VerifiedPackages {
    fn of_kind(&self, kind: EntryKind) -> &HashMap<RelPath, VerifiedPackage> {
        match kind {
            EntryKind::Skill => &self.skills,
            EntryKind::Plugin => &self.plugins,
        }
    }

    fn get(&self, package: &LockedPackage) -> Option<&VerifiedPackage> {
        self.of_kind(package.kind()).get(package.path())
    }

    fn insert(&mut self, package: VerifiedPackage) {
        let path = package.scanned.path().clone();
        let packages = match package.scanned.kind() {
            EntryKind::Skill => &mut self.skills,
            EntryKind::Plugin => &mut self.plugins,
        };
        packages.insert(path, package);
    }

    fn values(&self) -> impl Iterator<Item = &VerifiedPackage> {
        self.skills.values().chain(self.plugins.values())
    }
}

/// Skill or plugin.
#[derive(Debug, Clone)]
enum LockedPackage {
    Skill(Arc<Skill>),
    Plugin(Arc<Plugin>),
}

/// Result of the last comparison of a package.
#[derive(Debug)]
struct VerifiedPackage {
    /// Package as scanned.
    scanned: LockedPackage,
    /// Package with its approval.
    verified: LockedPackage,
    /// Token of the watches.
    token: u64,
    _watches: DirWatches,
    /// Versions of the approved files; empty unless the package is approved.
    file_versions: Box<[FileVersion]>,
    /// Digests of files that were read; empty if the package is approved.
    digests: Box<[KnownFileDigest]>,
    /// First differences; empty if the package is approved or cannot be compared.
    differences: Vec<PackageDifference>,
    /// Whether a change may cause no event: links were followed, or the comparison failed. Files with
    /// hard links are watched themselves.
    needs_recheck: bool,
}

/// Packages to compare again.
#[derive(Debug, Clone, Copy)]
pub struct DuePackages<'a> {
    /// Whether all packages are compared.
    pub all: bool,
    /// Tokens of changed directories.
    pub tokens: &'a HashSet<u64>,
    /// Packages of which a read found bytes that are not approved.
    pub refused: &'a HashSet<RelPath>,
    /// Whether packages are compared whose changes may cause no event.
    pub unreported: bool,
}

/// Parameters of the comparison of one package.
struct PackageTask<'a> {
    trust: &'a TrustPolicy,
    scanned_root: &'a ScannedRoot,
    root: ResolvedRootDir,
    rules: &'a SearchRules,
    scanned: &'a Catalog,
    context: &'a ScanContext<'a>,
    read_budget: &'a ReadBudget,
}

impl PackageVerifier {
    /// Returns the catalog of the root with the approval of each skill and plugin. Returns `None` if no lock applies
    /// to the root, or if nothing changed.
    pub fn verify_catalog(
        &mut self,
        root: &ScannedRoot,
        due: DuePackages<'_>,
        context: &ScanContext<'_>,
    ) -> Option<Arc<Catalog>> {
        let Some(trust) = &root.rules.trust else {
            *self = Self::default();
            return None;
        };
        let scanned = root.catalog.as_ref()?;
        let packages = self.due_packages(scanned, trust, due);
        let is_known = self
            .last
            .as_ref()
            .is_some_and(|last| Arc::ptr_eq(&last.scanned, scanned));
        if is_known && packages.is_empty() {
            return None;
        }

        self.refill_read_budget(trust, context.progress.started_at());
        self.compare_packages(&packages, root, due, context);
        self.packages.skills.retain(|package, _| {
            let skill = scanned.skill(package);
            skill.is_some_and(|skill| skill.trust == Some(PackageTrust::Changed))
        });
        self.packages.plugins.retain(|package, _| {
            let plugin = scanned.plugin(package).cloned();
            plugin.is_some_and(|plugin| LockedPackage::Plugin(plugin).is_locked(trust))
        });

        let plugins = self.list_plugins(scanned, trust);
        let verified = self.build_catalog(scanned, trust, plugins);

        // An equivalent catalog keeps its `Arc`, so that users need not compare it.
        let last = self.last.take().map(|last| last.verified);
        let verified = last
            .filter(|last| last.is_equivalent(&verified))
            .unwrap_or_else(|| Arc::new(verified));
        self.last = Some(VerifiedCatalog {
            scanned: scanned.clone(),
            verified: verified.clone(),
        });
        Some(verified)
    }

    /// Returns the last catalog that callers saw.
    pub fn last_catalog(&self) -> Option<&Arc<Catalog>> {
        self.last.as_ref().map(|last| &last.verified)
    }

    /// Returns the tokens of packages whose changes may cause no event.
    pub fn unreported_tokens(&self) -> impl Iterator<Item = u64> {
        let packages = self.packages.values();
        packages
            .filter(|package| package.needs_recheck)
            .map(|package| package.token)
    }

    /// Refills the budget if it was refilled long ago, or if the lock is another.
    fn refill_read_budget(&mut self, trust: &TrustPolicy, now: Instant) {
        let lock = &trust.lock;
        let is_recent = self
            .last_refill
            .is_some_and(|(at, digest)| digest == lock.digest && now < at + READ_BUDGET_INTERVAL);
        if is_recent {
            return;
        }

        let approved_bytes = lock.lock.total_bytes();
        self.read_budget
            .refill(approved_bytes.saturating_mul(READS_PER_INTERVAL));
        self.last_refill = Some((now, lock.digest));
    }

    /// Returns the packages to compare. A package whose name the lock has is `Changed` until then.
    fn due_packages(
        &self,
        scanned: &Catalog,
        trust: &TrustPolicy,
        due: DuePackages<'_>,
    ) -> Vec<LockedPackage> {
        // Packages that were compared before keep their place.
        let mut counts: HashMap<(EntryKind, Box<str>), usize> = HashMap::new();
        for package in self.packages.values() {
            let scanned_package = &package.scanned;
            if scanned_package.is_listed(scanned) {
                let name = scanned_package.name().into();
                *counts.entry((scanned_package.kind(), name)).or_default() += 1;
            }
        }

        let due = locked_packages(scanned, trust).filter(|package| {
            let Some(last) = self.packages.get(package) else {
                let name = package.name().into();
                let count = counts.entry((package.kind(), name)).or_default();
                *count += 1;
                return *count <= MAX_PACKAGES_OF_NAME;
            };
            due.all
                || !last.scanned.is_same(package)
                || due.tokens.contains(&last.token)
                || due.refused.contains(package.path())
                || due.unreported && last.needs_recheck
        });
        due.collect()
    }

    /// Compares packages on several threads, and stores the results.
    fn compare_packages(
        &mut self,
        due_packages: &[LockedPackage],
        root: &ScannedRoot,
        due: DuePackages<'_>,
        context: &ScanContext<'_>,
    ) {
        let (Some(trust), Some(scanned)) = (&root.rules.trust, &root.catalog) else {
            return;
        };
        let task = PackageTask {
            trust,
            scanned_root: root,
            root: ResolvedRootDir {
                snapshot: root.snapshot.clone(),
                path: root.path.clone(),
            },
            rules: &root.rules,
            scanned,
            context,
            read_budget: &self.read_budget,
        };

        let mut compared = Vec::with_capacity(due_packages.len());
        let packages = &self.packages;
        process_in_order(
            due_packages,
            MAX_INLINE_PACKAGES,
            context.progress,
            |package, (): &mut ()| {
                let last = packages.get(package);
                let is_refused = due.refused.contains(package.path());
                task.verify(package, last, is_refused)
            },
            |_, package| compared.push(package),
        );
        for package in compared {
            self.packages.insert(package);
        }
    }

    /// Returns all plugins with their approval, and remembers those that the lock does not have: an unchanged
    /// plugin keeps its `Arc`.
    fn list_plugins(&mut self, scanned: &Catalog, trust: &TrustPolicy) -> Vec<Arc<Plugin>> {
        let mut last = std::mem::take(&mut self.unknown_plugins);
        let mut listed = Vec::with_capacity(scanned.plugins().len());
        for plugin in scanned.plugins() {
            if let Some(package) = self.packages.plugins.get(&plugin.package) {
                if let LockedPackage::Plugin(verified) = &package.verified {
                    listed.push(verified.clone());
                }
                continue;
            }

            let known = last.remove(&plugin.package);
            let known = known.filter(|(scanned, verified)| {
                let state = trust.initial_state(EntryKind::Plugin, &plugin.manifest.name);
                Arc::ptr_eq(scanned, plugin) && verified.trust == Some(state)
            });
            let (_, verified) = known.unwrap_or_else(|| {
                let state = trust.initial_state(EntryKind::Plugin, &plugin.manifest.name);
                (plugin.clone(), Arc::new(plugin.with_trust(state)))
            });
            listed.push(verified.clone());
            self.unknown_plugins
                .insert(plugin.package.clone(), (plugin.clone(), verified));
        }
        listed
    }

    /// Builds the catalog that callers see.
    fn build_catalog(
        &self,
        scanned: &Catalog,
        trust: &TrustPolicy,
        mut plugins: Vec<Arc<Plugin>>,
    ) -> Catalog {
        let mut counts = TrustCounts::default();
        let mut listed = Vec::new();
        let mut hidden = Vec::new();
        let mut reserved_names = BTreeSet::new();
        for skill in scanned.skills(0) {
            let package = self.packages.skills.get(&skill.package);
            let skill = match package.map(|package| &package.verified) {
                Some(LockedPackage::Skill(verified)) => verified,
                _ => skill,
            };
            let state = skill.trust.clone().unwrap_or(PackageTrust::Unknown);
            counts.skills.count(&state);
            if state.is_approved() || trust.mode == TrustMode::Warn {
                listed.push(skill.clone());
            } else {
                // No less trusted source may take the name of a hidden skill.
                if state == PackageTrust::Changed {
                    reserved_names.insert(skill.name());
                }
                hidden.push(skill.package.clone());
            }
        }

        let is_approved = |plugin: &Plugin| {
            let trust = plugin.trust.as_ref();
            trust.is_some_and(PackageTrust::is_approved)
        };

        // Hidden plugins are counted, too, and so before they are removed.
        for plugin in &plugins {
            let state = plugin.trust.as_ref().unwrap_or(&PackageTrust::Unknown);
            counts.plugins.count(state);
        }
        if trust.mode == TrustMode::Hide {
            plugins.retain(|plugin| is_approved(plugin));
        }

        let mut diagnostics = match trust.mode {
            TrustMode::Warn => (*scanned.diagnostics).clone(),
            TrustMode::Hide => self.approved_diagnostics(scanned, trust),
        };
        self.report_changes(trust.mode, &mut diagnostics);
        self.report_copies(scanned, trust, &mut diagnostics);
        report_unknown(trust.mode, counts, &mut diagnostics);
        scanned.with_approval(ApprovedView {
            trust: RootTrust {
                mode: trust.mode,
                counts,
            },
            listed,
            hidden,
            reserved_names: reserved_names.into_iter().map(Into::into).collect(),
            plugins,
            diagnostics,
            last: self.last.as_ref().map(|last| &*last.verified),
        })
    }

    /// Returns the diagnostics about approved files, and about the limits of the scan. The others may have
    /// a path or quote a text that is not approved.
    fn approved_diagnostics(&self, scanned: &Catalog, trust: &TrustPolicy) -> BoundedDiagnostics {
        scanned.diagnostics.filtered(|diagnostic| {
            let Some(resource) = &diagnostic.resource else {
                return diagnostic.problem.code == DiagnosticCode::LimitReached;
            };
            let mut packages = std::iter::successors(resource.parent(), RelPath::parent);
            packages.any(|package| {
                let Some(file) = resource.strip_prefix(&package) else {
                    return false;
                };
                [EntryKind::Skill, EntryKind::Plugin]
                    .into_iter()
                    .any(|kind| {
                        let found = self.packages.of_kind(kind).get(&package);
                        let files = found.and_then(|found| found.approved_files(trust));
                        files.is_some_and(|files| files.get(&file).is_some())
                    })
            })
        })
    }

    /// Reports the names of which more packages exist than are compared.
    fn report_copies(
        &self,
        scanned: &Catalog,
        trust: &TrustPolicy,
        diagnostics: &mut BoundedDiagnostics,
    ) {
        let locked = locked_packages(scanned, trust);
        let copies = locked.filter(|package| self.packages.get(package).is_none());
        let names: BTreeSet<(Box<str>, EntryKind)> = copies
            .map(|package| (package.name().into(), package.kind()))
            .collect();
        for (name, kind) in names {
            let noun = kind.noun();
            let name = quote_word(&name);
            let message = format!(
                "more than {MAX_PACKAGES_OF_NAME} {noun}s are named {name}; the others are not \
                 compared with the lock; remove copies"
            );
            let severity = severity(trust.mode);
            diagnostics.push(Diagnostic {
                resource: None,
                problem: FileProblem::new(DiagnosticCode::PackageChanged, severity, message),
            });
        }
    }

    /// Reports each package that differs from the lock. The path of a hidden package is not approved.
    fn report_changes(&self, mode: TrustMode, diagnostics: &mut BoundedDiagnostics) {
        for package in self.packages.values() {
            let trust = package.verified.trust();
            if trust.is_some_and(PackageTrust::is_approved) {
                continue;
            }
            let message = change_message(&package.scanned, &package.differences, mode);
            diagnostics.push(Diagnostic {
                resource: (mode == TrustMode::Warn).then(|| package.scanned.main_file()),
                problem: FileProblem::new(DiagnosticCode::PackageChanged, severity(mode), message),
            });
        }
    }
}

impl VerifiedPackage {
    /// Returns the approved files of the package; `None` unless the package is approved.
    fn approved_files<'a>(&self, trust: &'a TrustPolicy) -> Option<&'a ApprovedFiles> {
        let verified = &self.verified;
        trust.approved_files(verified.kind(), verified.name(), verified.trust()?)
    }
}

impl LockedPackage {
    /// Whether a catalog has a package of this kind in the directory.
    fn is_listed(&self, catalog: &Catalog) -> bool {
        match self {
            Self::Skill(skill) => catalog.skill(&skill.package).is_some(),
            Self::Plugin(plugin) => catalog.plugin(&plugin.package).is_some(),
        }
    }

    fn kind(&self) -> EntryKind {
        match self {
            Self::Skill(_) => EntryKind::Skill,
            Self::Plugin(_) => EntryKind::Plugin,
        }
    }

    fn path(&self) -> &RelPath {
        match self {
            Self::Skill(skill) => &skill.package,
            Self::Plugin(plugin) => &plugin.package,
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Skill(skill) => skill.name(),
            Self::Plugin(plugin) => &plugin.manifest.name,
        }
    }

    fn trust(&self) -> Option<&PackageTrust> {
        match self {
            Self::Skill(skill) => skill.trust.as_ref(),
            Self::Plugin(plugin) => plugin.trust.as_ref(),
        }
    }

    /// Returns the path of the file that describes the package.
    fn main_file(&self) -> RelPath {
        match self {
            Self::Skill(skill) => skill.skill_file_path(),
            Self::Plugin(plugin) => plugin.package.join_path(&plugin.manifest_file),
        }
    }

    /// Whether the lock has the name. The scan looked the names of skills up.
    fn is_locked(&self, trust: &TrustPolicy) -> bool {
        match self {
            Self::Skill(skill) => skill.trust == Some(PackageTrust::Changed),
            Self::Plugin(plugin) => {
                let name = &plugin.manifest.name;
                trust.initial_state(EntryKind::Plugin, name) == PackageTrust::Changed
            }
        }
    }

    /// Whether the scan found no change.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Skill(a), Self::Skill(b)) => Arc::ptr_eq(a, b),
            (Self::Plugin(a), Self::Plugin(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// Returns the package with a state; the last one if it is equal.
    fn with_trust(&self, trust: PackageTrust, last: Option<&Self>) -> Self {
        if self.trust() == Some(&trust) {
            return self.clone();
        }
        match (self, last) {
            (Self::Skill(skill), last) => {
                let new = skill.with_trust(trust);
                match last {
                    Some(Self::Skill(last)) if **last == new => Self::Skill(last.clone()),
                    _ => Self::Skill(Arc::new(new)),
                }
            }
            (Self::Plugin(plugin), last) => {
                let new = plugin.with_trust(trust);
                match last {
                    Some(Self::Plugin(last)) if **last == new => Self::Plugin(last.clone()),
                    _ => Self::Plugin(Arc::new(new)),
                }
            }
        }
    }
}

impl PackageTask<'_> {
    /// Compares a package with its approved versions. After a refused read, each file is read again.
    fn verify(
        &self,
        scanned: &LockedPackage,
        last: Option<&VerifiedPackage>,
        is_refused: bool,
    ) -> VerifiedPackage {
        let next_token = self.context.next_token;

        // The token stays the same, so that events of the last watches still make the package due.
        let token = last.map_or_else(
            || next_token.fetch_add(1, Ordering::Relaxed),
            |last| last.token,
        );
        let mut observer = WatchObserver {
            recorder: WatchRecorder::new(self.context.watcher, token),
            progress: self.context.progress,
        };
        let compared = self.compare(scanned, last.filter(|_| !is_refused), &mut observer);

        let last_verified = last.map(|last| &last.verified);
        let mut package = VerifiedPackage {
            scanned: scanned.clone(),
            verified: scanned.with_trust(PackageTrust::Changed, last_verified),
            token,
            _watches: observer.recorder.into_guards().into(),
            file_versions: Box::default(),
            // After a refused read, the versions of the files do not tell their contents.
            digests: if is_refused {
                Box::default()
            } else {
                compared.digests
            },
            differences: Vec::new(),
            needs_recheck: compared.has_links,
        };
        match compared.result {
            Err(differences) => {
                package.needs_recheck |=
                    matches!(&*differences, [] | [PackageDifference::ReadTooOften]);
                package.differences = differences;
            }
            Ok(MatchedVersion {
                content_digest,
                file_versions,
            }) => {
                let approved = PackageTrust::Approved(Box::new(content_digest));
                package.verified = scanned.with_trust(approved, last_verified);
                package.file_versions = file_versions;
            }
        }
        package
    }

    /// Compares the parsed files first, which costs nothing, and then the files on the disk.
    fn compare(
        &self,
        scanned: &LockedPackage,
        last: Option<&VerifiedPackage>,
        observer: &mut dyn PackageObserver,
    ) -> PackageComparison {
        let candidates = match scanned {
            LockedPackage::Skill(skill) => self.skill_candidates(skill),
            LockedPackage::Plugin(plugin) => self.plugin_candidates(plugin),
        };
        let candidates = match candidates {
            Ok(candidates) => candidates,
            Err(difference) => return failed(vec![difference]),
        };

        let known = last.and_then(|last| {
            Some(KnownFiles {
                files: last.approved_files(self.trust)?,
                versions: &last.file_versions,
            })
        });
        let request = PackageComparisonRequest {
            package: scanned.path(),
            is_plugin: scanned.kind() == EntryKind::Plugin,
            versions: &candidates,
            max_depth: self.rules.limits.max_depth,
            rules: self.rules.read_rules(
                &self.context.target.published,
                self.scanned,
                scanned.path(),
            ),
            known,
            known_digests: last.map_or(&[], |last| &last.digests),
            read_budget: self.read_budget,
        };

        // If a file cannot be read, nothing shows an approval: the package counts as changed.
        compare_package(&self.root, &request, observer).unwrap_or_else(|_| failed(Vec::new()))
    }

    /// Returns the approved versions of a skill that have its parsed files; not empty.
    fn skill_candidates(
        &self,
        skill: &Skill,
    ) -> Result<Vec<ApprovedVersion<'_>>, PackageDifference> {
        let mut candidates = self.approved_versions(EntryKind::Skill, skill.name());
        candidates.retain(|version| has_skill_file(version.files, skill));
        if candidates.is_empty() || skill.is_stale() {
            return Err(PackageDifference::Changed(skill_file_name()));
        }
        candidates.retain(|version| has_sidecar(version.files, skill));
        if candidates.is_empty() {
            return Err(PackageDifference::Changed(sidecar_path()));
        }
        Ok(candidates)
    }

    /// Returns the approved versions of a plugin that have its version and its parsed files; not empty. The
    /// content that was parsed counts, because the disk may have the approved content again.
    fn plugin_candidates(
        &self,
        plugin: &Plugin,
    ) -> Result<Vec<ApprovedVersion<'_>>, PackageDifference> {
        let approved = self.trust.lock.lock.plugin_versions(&plugin.manifest.name);
        let versions = approved
            .iter()
            .filter(|version| version.version == plugin.manifest.version);
        let mut candidates: Vec<_> = versions
            .map(|version| ApprovedVersion {
                content_digest: version.content_digest,
                files: &version.files,
            })
            .collect();
        if candidates.is_empty() {
            let approved = approved.first().map(|version| version.version.clone());
            return Err(PackageDifference::Version {
                approved: approved.unwrap_or_default(),
                current: plugin.manifest.version.clone(),
            });
        }

        // A stale plugin has parts of an earlier version, which the disk has no longer.
        if plugin.stale {
            return Err(PackageDifference::Changed(plugin.manifest_file.clone()));
        }

        let ScannedRoot { snapshot, path, .. } = self.scanned_root;
        let Ok(dir) = find_target(snapshot, path, &plugin.package) else {
            return Err(PackageDifference::Changed(plugin.manifest_file.clone()));
        };
        let parsed = self.scanned_root.plugins.parsed_digests(&dir.real_path);
        for (file, digest) in parsed {
            candidates.retain(|version| {
                let approved = version.files.get(file).map(|file| file.digest);
                approved.is_some() && approved == digest
            });
            if candidates.is_empty() {
                return Err(PackageDifference::Changed(file.clone()));
            }
        }
        Ok(candidates)
    }

    fn approved_versions(&self, kind: EntryKind, name: &str) -> Vec<ApprovedVersion<'_>> {
        let versions = self.trust.lock.lock.approved_files(kind, name);
        let versions = versions.map(|(content_digest, files)| ApprovedVersion {
            content_digest,
            files,
        });
        versions.collect()
    }
}

/// Returns the scanned packages whose names the lock has.
fn locked_packages<'a>(
    scanned: &'a Catalog,
    trust: &'a TrustPolicy,
) -> impl Iterator<Item = LockedPackage> + 'a {
    let skills = scanned.skills(0).cloned().map(LockedPackage::Skill);
    let plugins = scanned.plugins().iter().cloned().map(LockedPackage::Plugin);
    skills
        .chain(plugins)
        .filter(|package| package.is_locked(trust))
}

/// Whether the parsed SKILL.md is the approved one.
fn has_skill_file(files: &ApprovedFiles, skill: &Skill) -> bool {
    let approved = files.get(&skill_file_name());
    approved.map(|file| file.digest) == skill.digest() && skill.digest().is_some()
}

/// Whether the parsed agents/openai.yaml is the approved one, if the skill has the file.
fn has_sidecar(files: &ApprovedFiles, skill: &Skill) -> bool {
    let Some(digest) = skill.sidecar_digest() else {
        return true;
    };
    let approved = files.get(&sidecar_path());
    approved.is_some_and(|file| Some(file.digest) == digest)
}

fn failed(differences: Vec<PackageDifference>) -> PackageComparison {
    PackageComparison {
        has_links: false,
        digests: Box::default(),
        result: Err(differences),
    }
}

fn severity(mode: TrustMode) -> Severity {
    match mode {
        TrustMode::Warn => Severity::Warning,
        TrustMode::Hide => Severity::Error,
    }
}

/// Returns the message about a package that differs. If the package is hidden, the names of added files and the
/// current version are not in the message: they are not approved.
fn change_message(
    package: &LockedPackage,
    differences: &[PackageDifference],
    mode: TrustMode,
) -> String {
    let mut files = Vec::new();
    let mut added = 0;
    for difference in differences {
        match difference {
            PackageDifference::Changed(path) => files.push(format!("~ {}", quote_path(path))),
            PackageDifference::Removed(path) => files.push(format!("- {}", quote_path(path))),
            PackageDifference::Added(path) if mode == TrustMode::Warn => {
                files.push(format!("+ {}", quote_path(path)));
            }
            PackageDifference::Unreadable(path) if mode == TrustMode::Warn => {
                files.push(format!("? {}, which is not served", quote_path(path)));
            }
            PackageDifference::Added(_) | PackageDifference::Unreadable(_) => added += 1,
            PackageDifference::Version { approved, current } => {
                let approved = quote_version(approved);
                files.push(match mode {
                    TrustMode::Warn => format!("version {approved} -> {}", quote_version(current)),
                    TrustMode::Hide => format!("another version than {approved}"),
                });
            }
            PackageDifference::TooManyEntries => files.push("too many directories".to_owned()),
            PackageDifference::ReadTooOften => {
                files.push("the files change too often, and are read again in a minute".to_owned());
            }
        }
    }
    if added > 0 {
        files.push("+ added files".to_owned());
    }

    let name = match package {
        LockedPackage::Skill(skill) => quote_word(skill.name()),
        LockedPackage::Plugin(plugin) => {
            format!("the plugin {}", quote_word(&plugin.manifest.name))
        }
    };
    if files.is_empty() {
        return format!(
            "the files of {name} cannot be compared with the lock; check their permissions"
        );
    }
    let files = files.join(", ");
    format!(
        "{name} differs from the lock: {files}; review the files, then run caproot lock with --update"
    )
}

fn quote_version(version: &str) -> String {
    if version.is_empty() {
        "none".to_owned()
    } else {
        quote_word(version)
    }
}

fn quote_path(path: &RelPath) -> String {
    quote_word(&encode_path(path))
}

/// Reports the number of skills and of plugins that the lock does not have.
fn report_unknown(mode: TrustMode, counts: TrustCounts, diagnostics: &mut BoundedDiagnostics) {
    let kinds = [
        (EntryKind::Skill, counts.skills.unknown),
        (EntryKind::Plugin, counts.plugins.unknown),
    ];
    for (kind, unknown) in kinds {
        let noun = kind.noun();
        let subject = match unknown {
            0 => continue,
            1 => format!("1 {noun} is"),
            _ => format!("{unknown} {noun}s are"),
        };
        let message =
            format!("{subject} not in the lock; review them, then run caproot lock with --add");
        diagnostics.push(Diagnostic {
            resource: None,
            problem: FileProblem::new(DiagnosticCode::PackagesNotApproved, severity(mode), message),
        });
    }
}

/// Observer that watches the directories of a package under its token.
struct WatchObserver<'a> {
    recorder: WatchRecorder<'a>,
    progress: &'a ScanProgress,
}

impl PackageObserver for WatchObserver<'_> {
    fn on_dir(&mut self, dir: BorrowedFd<'_>) {
        self.recorder.watch_dir(dir);
        self.progress.tick();
    }

    fn on_file(&mut self, file: &OpenFile) {
        self.recorder.track_file(file);
        self.progress.tick();
    }

    fn is_cancelled(&self) -> bool {
        self.progress.tick();
        self.progress.is_cancelled()
    }
}
