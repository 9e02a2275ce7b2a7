//! Comparison of the packages of a root with the lock. A package is compared when its skill or plugin is new,
//! when a directory of the package changes, and when a read found bytes that are not approved.

use super::parallel_list::process_in_order;
use super::scan_progress::ScanProgress;
use super::scanned_root::{ScanContext, ScannedRoot};
use super::watches::{WatchGuard, WatchRecorder};
use crate::daemon::fs::open_file::{OpenFile, find_target};
use crate::daemon::fs::{
    ApprovedVersion, KnownFileDigest, KnownFiles, PackageComparison, PackageComparisonRequest,
    PackageDifference, PackageObserver, ReadBudget, ResolvedRootDir, compare_package,
};
use crate::daemon::model::catalog::{ApprovedView, BoundedDiagnostics};
use crate::daemon::model::{
    Catalog, DiagnosticCode, FileProblem, FileVersion, PackageTrust, Plugin, RootTrust, Severity,
    Skill, TrustCounts, TrustMode, TrustPolicy, sidecar_path, skill_file_name,
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
    /// Packages by path. A directory may be a skill and a plugin.
    packages: HashMap<(EntryKind, RelPath), VerifiedPackage>,
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

/// Skill or plugin.
#[derive(Debug, Clone, PartialEq)]
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
    _watches: Vec<WatchGuard>,
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
#[derive(Clone, Copy)]
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
        let last = self.last.as_ref();
        let is_known = last.is_some_and(|last| Arc::ptr_eq(&last.scanned, scanned));
        if is_known && packages.is_empty() {
            return None;
        }

        self.refill_read_budget(trust, context.progress.started_at());
        let task = PackageTask {
            trust,
            scanned_root: root,
            root: ResolvedRootDir {
                snapshot: root.snapshot.clone(),
                path: root.path.clone(),
            },
            scanned,
            context,
            read_budget: &self.read_budget,
        };
        for package in self.compare_packages(&packages, &task, due.refused) {
            self.packages.insert(package.scanned.key(), package);
        }
        self.packages.retain(|key, _| {
            let package = LockedPackage::find(key, scanned);
            package.is_some_and(|package| package.is_locked(trust))
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
        packages.filter_map(|package| package.needs_recheck.then_some(package.token))
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

    /// Compares packages on several threads, and returns the results in their order.
    fn compare_packages(
        &self,
        packages: &[LockedPackage],
        task: &PackageTask<'_>,
        refused: &HashSet<RelPath>,
    ) -> Vec<VerifiedPackage> {
        let mut compared = Vec::with_capacity(packages.len());
        process_in_order(
            packages,
            MAX_INLINE_PACKAGES,
            task.context.progress,
            |package, (): &mut ()| {
                let last = self.packages.get(&package.key());
                task.verify(package, last, refused.contains(package.path()))
            },
            |_, package| compared.push(package),
        );
        compared
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
        for (key, package) in &self.packages {
            if LockedPackage::find(key, scanned).is_some() {
                *counts.entry(package.scanned.kind_and_name()).or_default() += 1;
            }
        }

        let due = locked_packages(scanned, trust).filter(|package| {
            let Some(last) = self.packages.get(&package.key()) else {
                let count = counts.entry(package.kind_and_name()).or_default();
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

    /// Returns all plugins with their approval, and remembers those that the lock does not have: an unchanged
    /// plugin keeps its `Arc`.
    fn list_plugins(&mut self, scanned: &Catalog, trust: &TrustPolicy) -> Vec<Arc<Plugin>> {
        let mut last = std::mem::take(&mut self.unknown_plugins);
        let mut listed = Vec::with_capacity(scanned.plugins().len());
        for plugin in scanned.plugins() {
            let key = (EntryKind::Plugin, plugin.package.clone());
            let package = self.packages.get(&key);
            if let Some(LockedPackage::Plugin(verified)) = package.map(|found| &found.verified) {
                listed.push(verified.clone());
                continue;
            }

            let state = Some(trust.initial_state(EntryKind::Plugin, &plugin.manifest.name));
            let known = last.remove(&plugin.package).filter(|(scanned, verified)| {
                Arc::ptr_eq(scanned, plugin) && verified.trust == state
            });
            let (_, verified) = known.unwrap_or_else(|| {
                let mut verified = plugin.clone();
                Arc::make_mut(&mut verified).trust = state;
                (plugin.clone(), verified)
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
            let key = (EntryKind::Skill, skill.package.clone());
            let package = self.packages.get(&key);
            let skill = match package.map(|package| &package.verified) {
                Some(LockedPackage::Skill(verified)) => verified,
                _ => skill,
            };
            let state = skill.trust.as_ref().unwrap_or(&PackageTrust::Unknown);
            counts.skills.count(state);
            if state.is_approved() || trust.mode == TrustMode::Warn {
                listed.push(skill.clone());
            } else {
                // No less trusted source may take the name of a hidden skill.
                if *state == PackageTrust::Changed {
                    reserved_names.insert(skill.name());
                }
                hidden.push(skill.package.clone());
            }
        }

        // Hidden plugins are counted, too.
        plugins.retain(|plugin| {
            let state = plugin.trust.as_ref().unwrap_or(&PackageTrust::Unknown);
            counts.plugins.count(state);
            state.is_approved() || trust.mode == TrustMode::Warn
        });

        let mut diagnostics = match trust.mode {
            TrustMode::Warn => (*scanned.diagnostics).clone(),
            TrustMode::Hide => self.approved_diagnostics(scanned, trust),
        };
        self.report_differences(scanned, trust, counts, &mut diagnostics);
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
            let packages = std::iter::successors(resource.parent(), RelPath::parent);
            let kinds = [EntryKind::Skill, EntryKind::Plugin];
            let mut keys = packages.flat_map(|path| kinds.map(|kind| (kind, path.clone())));
            keys.any(|key| {
                let package = self.packages.get(&key);
                let files = package.and_then(|package| package.approved_files(trust));
                let file = resource.strip_prefix(&key.1);
                files
                    .zip(file)
                    .is_some_and(|(files, file)| files.get(&file).is_some())
            })
        })
    }

    /// Reports each package that differs from the lock, the names of which more packages exist than are
    /// compared, and the number of skills and of plugins that the lock does not have.
    fn report_differences(
        &self,
        scanned: &Catalog,
        trust: &TrustPolicy,
        counts: TrustCounts,
        diagnostics: &mut BoundedDiagnostics,
    ) {
        let mode = trust.mode;
        let severity = match mode {
            TrustMode::Warn => Severity::Warning,
            TrustMode::Hide => Severity::Error,
        };
        for package in self.packages.values() {
            let trust = package.verified.trust();
            if trust.is_some_and(PackageTrust::is_approved) {
                continue;
            }
            let message = change_message(&package.scanned, &package.differences, mode);
            let problem = FileProblem::new(DiagnosticCode::PackageChanged, severity, message);
            // The path of a hidden package is not approved.
            let main_file = (mode == TrustMode::Warn).then(|| match &package.scanned {
                LockedPackage::Skill(skill) => skill.skill_file_path(),
                LockedPackage::Plugin(plugin) => plugin.package.join_path(&plugin.manifest_file),
            });
            diagnostics.report(main_file, problem);
        }

        let locked = locked_packages(scanned, trust);
        let copies = locked.filter(|package| !self.packages.contains_key(&package.key()));
        let names: HashSet<_> = copies.map(|package| package.kind_and_name()).collect();
        for (kind, name) in names {
            let noun = kind.noun();
            let name = quote_word(&name);
            let message = format!(
                "more than {MAX_PACKAGES_OF_NAME} {noun}s are named {name}; the others are not \
                 compared with the lock; remove copies"
            );
            let problem = FileProblem::new(DiagnosticCode::PackageChanged, severity, message);
            diagnostics.report(None, problem);
        }

        let unknown = [
            (EntryKind::Skill, counts.skills.unknown),
            (EntryKind::Plugin, counts.plugins.unknown),
        ];
        for (kind, unknown) in unknown {
            let noun = kind.noun();
            let subject = match unknown {
                0 => continue,
                1 => format!("1 {noun} is"),
                _ => format!("{unknown} {noun}s are"),
            };
            let message =
                format!("{subject} not in the lock; review them, then run caproot lock with --add");
            let code = DiagnosticCode::PackagesNotApproved;
            diagnostics.report(None, FileProblem::new(code, severity, message));
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
    /// Returns the package of this kind in a directory of the catalog.
    fn find((kind, path): &(EntryKind, RelPath), catalog: &Catalog) -> Option<Self> {
        match kind {
            EntryKind::Skill => catalog.skill(path).cloned().map(Self::Skill),
            EntryKind::Plugin => catalog.plugin(path).cloned().map(Self::Plugin),
        }
    }

    fn key(&self) -> (EntryKind, RelPath) {
        (self.kind(), self.path().clone())
    }

    fn kind_and_name(&self) -> (EntryKind, Box<str>) {
        (self.kind(), self.name().into())
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

    /// Whether the lock has the name. The scan looked the names of skills up.
    fn is_locked(&self, trust: &TrustPolicy) -> bool {
        match self {
            Self::Skill(skill) => skill.trust == Some(PackageTrust::Changed),
            Self::Plugin(_) => {
                trust.initial_state(EntryKind::Plugin, self.name()) == PackageTrust::Changed
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
        let mut new = self.clone();
        match &mut new {
            Self::Skill(skill) => Arc::make_mut(skill).trust = Some(trust),
            Self::Plugin(plugin) => Arc::make_mut(plugin).trust = Some(trust),
        }
        last.filter(|last| **last == new).cloned().unwrap_or(new)
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
        // The token stays the same, so that events of the last watches still make the package due.
        let token = last.map_or_else(
            || self.context.next_token.fetch_add(1, Ordering::Relaxed),
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
            _watches: observer.recorder.guards,
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
            Ok(matched) => {
                let approved = PackageTrust::Approved(Box::new(matched.content_digest));
                package.verified = scanned.with_trust(approved, last_verified);
                package.file_versions = matched.file_versions;
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
        let rules = &self.scanned_root.rules;
        let published = &self.context.target.published;
        let request = PackageComparisonRequest {
            package: scanned.path(),
            is_plugin: scanned.kind() == EntryKind::Plugin,
            versions: &candidates,
            max_depth: rules.limits.max_depth,
            rules: rules.read_rules(published, self.scanned, scanned.path()),
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
        let lock = &self.trust.lock.lock;
        let versions = lock.approved_files(EntryKind::Skill, skill.name());
        let versions = versions.map(|(content_digest, files)| ApprovedVersion {
            content_digest,
            files,
        });
        let mut candidates: Vec<_> = versions.collect();
        candidates.retain(|version| has_file(version, &skill_file_name(), skill.digest()));
        if candidates.is_empty() || skill.is_stale() {
            return Err(PackageDifference::Changed(skill_file_name()));
        }
        if let Some(digest) = skill.sidecar_digest() {
            candidates.retain(|version| has_file(version, &sidecar_path(), digest));
        }
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

        let ScannedRoot {
            snapshot,
            path,
            plugins,
            ..
        } = self.scanned_root;
        let dir = match find_target(snapshot, path, &plugin.package) {
            Ok(dir) if !plugin.stale => dir,
            // A stale plugin has parts of an earlier version, which the disk has no longer.
            _ => return Err(PackageDifference::Changed(plugin.manifest_file.clone())),
        };
        for (file, digest) in plugins.parsed_digests(&dir.real_path) {
            candidates.retain(|version| has_file(version, file, digest));
            if candidates.is_empty() {
                return Err(PackageDifference::Changed(file.clone()));
            }
        }
        Ok(candidates)
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

/// Whether a version has a file with the digest of the parsed bytes.
fn has_file(version: &ApprovedVersion<'_>, path: &RelPath, parsed: Option<ContentDigest>) -> bool {
    let approved = version.files.get(path);
    approved.is_some_and(|file| Some(file.digest) == parsed)
}

fn failed(differences: Vec<PackageDifference>) -> PackageComparison {
    PackageComparison {
        has_links: false,
        digests: Box::default(),
        result: Err(differences),
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

    let name = quote_word(package.name());
    let name = match package.kind() {
        EntryKind::Skill => name,
        EntryKind::Plugin => format!("the plugin {name}"),
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
