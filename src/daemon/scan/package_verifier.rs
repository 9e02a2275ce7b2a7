//! Comparison of the packages of a root with the lock. A package is compared when its skill is new,
//! when a directory of the package changes, and when a read found bytes that are not approved.

use super::parallel_list::process_in_order;
use super::scan_progress::ScanProgress;
use super::scanned_root::{ScanContext, ScannedRoot};
use super::search::SearchRules;
use super::watches::{DirWatches, WatchRecorder};
use crate::daemon::fs::open_file::OpenFile;
use crate::daemon::fs::{
    KnownFileDigest, KnownFiles, MatchedVersion, PackageComparison, PackageComparisonRequest,
    PackageDifference, PackageObserver, ReadBudget, ResolvedRootDir, compare_package,
};
use crate::daemon::model::catalog::{ApprovedView, BoundedDiagnostics};
use crate::daemon::model::sidecar::sidecar_path;
use crate::daemon::model::{
    Catalog, Diagnostic, DiagnosticCode, FileProblem, FileVersion, RootTrust, Severity, Skill,
    SkillTrust, TrustCounts, TrustMode, TrustPolicy, skill_file_name,
};
use caproot_core::lock::ApprovedSkill;
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
    packages: HashMap<RelPath, VerifiedPackage>,
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

/// Result of the last comparison of a package.
#[derive(Debug)]
struct VerifiedPackage {
    /// Skill as scanned.
    scanned: Arc<Skill>,
    /// Skill with its approval.
    verified: Arc<Skill>,
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
    root: ResolvedRootDir,
    rules: &'a SearchRules,
    scanned: &'a Catalog,
    context: &'a ScanContext<'a>,
    read_budget: &'a ReadBudget,
}

impl PackageVerifier {
    /// Returns the catalog of the root with the approval of each skill. Returns `None` if no lock applies
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
        let skills = self.due_skills(scanned, due);
        let is_known = self
            .last
            .as_ref()
            .is_some_and(|last| Arc::ptr_eq(&last.scanned, scanned));
        if is_known && skills.is_empty() {
            return None;
        }

        self.refill_read_budget(trust, context.progress.started_at());
        self.compare_packages(&skills, root, due, context);
        self.packages.retain(|package, _| {
            let skill = scanned.skill(package);
            skill.is_some_and(|skill| skill.trust == Some(SkillTrust::Changed))
        });

        let verified = self.build_catalog(scanned, trust);
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

        let skills = lock.lock.skills().iter();
        let approved_bytes: u64 = skills.map(|skill| skill.files.total_bytes()).sum();
        self.read_budget
            .refill(approved_bytes.saturating_mul(READS_PER_INTERVAL));
        self.last_refill = Some((now, lock.digest));
    }

    /// Returns the skills to compare. A skill whose name the lock has is `Changed` until then.
    fn due_skills(&self, scanned: &Catalog, due: DuePackages<'_>) -> Vec<Arc<Skill>> {
        let locked = scanned
            .skills(0)
            .filter(|skill| skill.trust == Some(SkillTrust::Changed));

        // Packages that were compared before keep their place.
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for package in self.packages.values() {
            if scanned.skill(&package.scanned.package).is_some() {
                *counts.entry(package.scanned.name()).or_default() += 1;
            }
        }

        let due = locked.filter(|skill| {
            let Some(last) = self.packages.get(&skill.package) else {
                let count = counts.entry(skill.name()).or_default();
                *count += 1;
                return *count <= MAX_PACKAGES_OF_NAME;
            };
            due.all
                || !Arc::ptr_eq(&last.scanned, skill)
                || due.tokens.contains(&last.token)
                || due.refused.contains(&skill.package)
                || due.unreported && last.needs_recheck
        });
        due.cloned().collect()
    }

    /// Compares packages on several threads, and stores the results.
    fn compare_packages(
        &mut self,
        skills: &[Arc<Skill>],
        root: &ScannedRoot,
        due: DuePackages<'_>,
        context: &ScanContext<'_>,
    ) {
        let (Some(trust), Some(scanned)) = (&root.rules.trust, &root.catalog) else {
            return;
        };
        let task = PackageTask {
            trust,
            root: ResolvedRootDir {
                snapshot: root.snapshot.clone(),
                path: root.path.clone(),
            },
            rules: &root.rules,
            scanned,
            context,
            read_budget: &self.read_budget,
        };

        let mut compared = Vec::with_capacity(skills.len());
        let packages = &self.packages;
        process_in_order(
            skills,
            MAX_INLINE_PACKAGES,
            context.progress,
            |skill, (): &mut ()| {
                let last = packages.get(&skill.package);
                let is_refused = due.refused.contains(&skill.package);
                task.verify(skill, last, is_refused)
            },
            |_, package| compared.push(package),
        );
        for package in compared {
            let path = package.scanned.package.clone();
            self.packages.insert(path, package);
        }
    }

    /// Builds the catalog that callers see.
    fn build_catalog(&self, scanned: &Catalog, trust: &TrustPolicy) -> Catalog {
        let mut counts = TrustCounts::default();
        let mut listed = Vec::new();
        let mut hidden = Vec::new();
        let mut reserved_names = BTreeSet::new();
        for skill in scanned.skills(0) {
            let package = self.packages.get(&skill.package);
            let skill = package.map_or(skill, |package| &package.verified);
            let state = skill.trust.clone().unwrap_or(SkillTrust::Unknown);
            counts.count_skill(&state);
            if state.is_approved() || trust.mode == TrustMode::Warn {
                listed.push(skill.clone());
            } else {
                if state == SkillTrust::Changed {
                    reserved_names.insert(skill.name());
                }
                hidden.push(skill.package.clone());
            }
        }

        let mut diagnostics = match trust.mode {
            TrustMode::Warn => (*scanned.diagnostics).clone(),
            TrustMode::Hide => self.approved_diagnostics(scanned, trust),
        };
        self.report_changes(trust.mode, &mut diagnostics);
        self.report_copies(scanned, trust.mode, &mut diagnostics);
        report_unknown(trust.mode, counts.unknown, scanned, &mut diagnostics);
        scanned.with_approval(ApprovedView {
            trust: RootTrust {
                mode: trust.mode,
                counts,
            },
            listed,
            hidden,
            reserved_names: reserved_names.into_iter().map(Into::into).collect(),
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
                let found = self.packages.get(&package);
                let version = found.and_then(|found| {
                    let state = found.verified.trust.as_ref()?;
                    trust.approved_version(found.verified.name(), state)
                });
                let file = resource.strip_prefix(&package);
                version
                    .zip(file)
                    .is_some_and(|(version, file)| version.files.get(&file).is_some())
            })
        })
    }

    /// Reports the names of which more packages exist than are compared.
    fn report_copies(
        &self,
        scanned: &Catalog,
        mode: TrustMode,
        diagnostics: &mut BoundedDiagnostics,
    ) {
        let locked = scanned
            .skills(0)
            .filter(|skill| skill.trust == Some(SkillTrust::Changed));
        let copies = locked.filter(|skill| !self.packages.contains_key(&skill.package));
        let names: BTreeSet<&str> = copies.map(|skill| skill.name()).collect();
        for name in names {
            let name = quote_word(name);
            let message = format!(
                "more than {MAX_PACKAGES_OF_NAME} packages are named {name}; the others are not \
                 compared with the lock; remove copies"
            );
            diagnostics.push(Diagnostic {
                resource: None,
                problem: FileProblem::new(DiagnosticCode::SkillChanged, severity(mode), message),
            });
        }
    }

    /// Reports each package that differs from the lock. The path of a hidden package is not approved.
    fn report_changes(&self, mode: TrustMode, diagnostics: &mut BoundedDiagnostics) {
        for package in self.packages.values() {
            let trust = package.verified.trust.as_ref();
            if trust.is_some_and(SkillTrust::is_approved) {
                continue;
            }
            let message = change_message(package.scanned.name(), &package.differences, mode);
            diagnostics.push(Diagnostic {
                resource: (mode == TrustMode::Warn).then(|| package.scanned.skill_file_path()),
                problem: FileProblem::new(DiagnosticCode::SkillChanged, severity(mode), message),
            });
        }
    }
}

impl PackageTask<'_> {
    /// Compares a package with its approved versions. After a refused read, each file is read again.
    fn verify(
        &self,
        skill: &Arc<Skill>,
        last: Option<&VerifiedPackage>,
        is_refused: bool,
    ) -> VerifiedPackage {
        let next_token = self.context.next_token;
        let token = last.map_or_else(
            || next_token.fetch_add(1, Ordering::Relaxed),
            |last| last.token,
        );
        let mut observer = WatchObserver {
            recorder: WatchRecorder::new(self.context.watcher, token),
            progress: self.context.progress,
        };
        let compared = self.compare(skill, last.filter(|_| !is_refused), &mut observer);

        let mut package = VerifiedPackage {
            scanned: skill.clone(),
            verified: skill.clone(),
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
                let approved = skill.with_trust(SkillTrust::Approved(Box::new(content_digest)));
                let known = last.filter(|last| *last.verified == approved);
                package.verified =
                    known.map_or_else(|| Arc::new(approved), |last| last.verified.clone());
                package.file_versions = file_versions;
            }
        }
        package
    }

    /// Compares the parsed files first, which costs nothing, and then the files on the disk.
    fn compare(
        &self,
        skill: &Skill,
        last: Option<&VerifiedPackage>,
        observer: &mut dyn PackageObserver,
    ) -> PackageComparison {
        let versions = self.trust.lock.lock.versions(skill.name());
        let mut candidates: Vec<_> = versions.iter().collect();
        candidates.retain(|version| has_skill_file(version, skill));
        if candidates.is_empty() || skill.is_stale() {
            return changed(skill_file_name());
        }
        candidates.retain(|version| has_sidecar(version, skill));
        if candidates.is_empty() {
            return changed(sidecar_path());
        }

        let known = last.and_then(|last| {
            let trust = last.verified.trust.as_ref()?;
            let version = self.trust.approved_version(skill.name(), trust)?;
            Some(KnownFiles {
                files: &version.files,
                versions: &last.file_versions,
            })
        });
        let request = PackageComparisonRequest {
            package: &skill.package,
            versions: &candidates,
            max_depth: self.rules.limits.max_depth,
            rules: self.rules.read_rules(
                &self.context.target.published,
                self.scanned,
                &skill.package,
            ),
            known,
            known_digests: last.map_or(&[], |last| &last.digests),
            read_budget: self.read_budget,
        };
        compare_package(&self.root, &request, observer).unwrap_or_else(|_| failed(Vec::new()))
    }
}

/// Whether the parsed SKILL.md is the approved one.
fn has_skill_file(version: &ApprovedSkill, skill: &Skill) -> bool {
    let approved = version.files.get(&skill_file_name());
    approved.map(|file| file.digest) == skill.digest() && skill.digest().is_some()
}

/// Whether the parsed agents/openai.yaml is the approved one, if the skill has the file.
fn has_sidecar(version: &ApprovedSkill, skill: &Skill) -> bool {
    let Some(digest) = skill.sidecar_digest() else {
        return true;
    };
    let approved = version.files.get(&sidecar_path());
    approved.is_some_and(|file| Some(file.digest) == digest)
}

fn changed(file: RelPath) -> PackageComparison {
    failed(vec![PackageDifference::Changed(file)])
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

/// Returns the message about a package that differs. If the skill is hidden, the names of added files
/// are not in the message: they are not approved.
fn change_message(name: &str, differences: &[PackageDifference], mode: TrustMode) -> String {
    let mut files = Vec::new();
    let mut added = 0;
    for difference in differences {
        match difference {
            PackageDifference::Changed(path) => files.push(format!("~ {}", quote_path(path))),
            PackageDifference::Removed(path) => files.push(format!("- {}", quote_path(path))),
            PackageDifference::Added(path) if mode == TrustMode::Warn => {
                files.push(format!("+ {}", quote_path(path)));
            }
            PackageDifference::Added(_) => added += 1,
            PackageDifference::TooManyEntries => files.push("too many directories".to_owned()),
            PackageDifference::ReadTooOften => {
                files.push("the files change too often, and are read again in a minute".to_owned());
            }
        }
    }
    if added > 0 {
        files.push("+ added files".to_owned());
    }

    let name = quote_word(name);
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

fn quote_path(path: &RelPath) -> String {
    quote_word(&encode_path(path))
}

/// Reports the number of skills that the lock does not have. In the mode `hide`, the plugins are omitted,
/// too, which is a note: no lock can have them.
fn report_unknown(
    mode: TrustMode,
    unknown: usize,
    scanned: &Catalog,
    diagnostics: &mut BoundedDiagnostics,
) {
    if unknown > 0 {
        let subject = match unknown {
            1 => "skill is",
            _ => "skills are",
        };
        let message = format!(
            "{unknown} {subject} not in the lock; review them, then run caproot lock with --add"
        );
        report_not_approved(severity(mode), message, diagnostics);
    }

    let plugins = scanned.plugins().len();
    if mode == TrustMode::Hide && plugins > 0 {
        let subject = match plugins {
            1 => "plugin is",
            _ => "plugins are",
        };
        let message = format!("{plugins} {subject} omitted, because a lock has no plugins");
        report_not_approved(Severity::Note, message, diagnostics);
    }
}

fn report_not_approved(severity: Severity, message: String, diagnostics: &mut BoundedDiagnostics) {
    diagnostics.push(Diagnostic {
        resource: None,
        problem: FileProblem::new(DiagnosticCode::SkillsNotApproved, severity, message),
    });
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
