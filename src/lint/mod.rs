//! Linter: the skills and diagnostics that a daemon would list for a directory, with source lines.
//! Scans and parses with the code of the daemon. Then reads the rest of each skill: its text, its
//! scripts and its links.
//!
//! ```
//! use caproot::lint::text::render_finding;
//! use caproot::lint::{CheckExclusions, CheckRequest, CheckSummary, check_dir};
//! use caproot::daemon::config::{Config, RootFlag, ServeFlags};
//! use caproot_core::net::endpoint::ProcessEnv;
//! use caproot::daemon::scan::{ScanProgress, ScanTarget};
//! use std::{fs, path::Path};
//!
//! /// Returns the request that `caproot check DIR` makes.
//! fn check_request(dir: &Path) -> Result<CheckRequest, Box<dyn std::error::Error>> {
//!     let roots = vec![RootFlag { id: Some("checked".to_owned()), dir: dir.to_owned() }];
//!     let flags = ServeFlags { roots, ..ServeFlags::default() };
//!     let config = Config::from_flags(flags, &ProcessEnv::from_process())?;
//!     let root = config.published_roots.first().ok_or("no root")?;
//!     Ok(CheckRequest {
//!         display_dir: dir.to_owned(),
//!         id: root.id.clone(),
//!         target: ScanTarget {
//!             path: root.path.clone(),
//!             rules: config.search_rules(),
//!             published: config.published_roots.clone().into(),
//!         },
//!         allowed_dirs: config.allowed_dirs,
//!         is_strict: false,
//!         exclusions: CheckExclusions::default(),
//!     })
//! }
//!
//! # let dir = tempfile::tempdir()?;
//! # let dir = dir.path();
//! fs::create_dir(dir.join("pdf"))?;
//! fs::write(dir.join("pdf/SKILL.md"), "---\nname: pdf\ndescription: \"Fills PDF forms.\n---\n")?;
//!
//! let result = check_dir(&check_request(dir)?, &ScanProgress::default()).map_err(|_| "no scan")?;
//! let text: String =
//!     result.findings.iter().map(|finding| render_finding(finding, false)).collect();
//! assert!(text.contains("error[YAML_SYNTAX]"));
//! assert_eq!(CheckSummary::from_results(&[result]).errors, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod body;
mod contents;
mod display_path;
mod excerpt;
mod exclusions;
pub mod explain;
pub mod fix;
pub mod github;
mod help;
pub mod json;
pub mod new_skill;
mod package;
pub mod sarif;
mod strict;
mod summary;
#[cfg(test)]
mod tests;
pub mod text;
mod yaml_help;

pub(crate) use help::suggest_name;

pub use display_path::DisplayPath;
pub use excerpt::SourceExcerpt;
pub use exclusions::{CheckExclusions, IGNORE_FILE};
pub use summary::CheckSummary;

use crate::daemon::fs::{self, AllowedDirs, LinkText, ResolveError, ResolvedRootDir};
use crate::daemon::model::catalog::Catalog;
use crate::daemon::model::{DiagnosticCode, FileProblem, RootReason, Severity, Skill};
use crate::daemon::parse::secret_filter;
use crate::daemon::scan::{self, ScanProgress, ScanTarget};
use caproot_core::text::quote_word;
use caproot_core::wire::{RelPath, RootId};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Maximum number of diagnostics of one directory.
pub const MAX_FINDINGS: usize = 100_000;

/// Directory to check.
#[derive(Debug, Clone)]
pub struct CheckRequest {
    /// Directory as the user gave it. Paths of findings start with it.
    pub display_dir: PathBuf,
    /// Root id under which a daemon would publish the directory.
    pub id: RootId,
    /// Allowed directories, absolute.
    pub allowed_dirs: Vec<PathBuf>,
    /// Path and rules of the scan.
    pub target: ScanTarget,
    /// Whether a skill that the format's validator rejects has an error.
    pub is_strict: bool,
    /// Paths that are left out.
    pub exclusions: CheckExclusions,
}

/// Result for one directory.
#[derive(Debug, Clone, Default)]
pub struct CheckResult {
    /// Sorted by qualified name, then path.
    pub skills: Vec<CheckedSkill>,
    /// Sorted by path, then line.
    pub findings: Vec<CheckFinding>,
    /// Number of findings over the limit. The most severe findings are kept.
    pub dropped: u32,
    /// Number of plugins that a daemon would list.
    pub plugin_count: usize,
}

/// Skill that a daemon would list.
#[derive(Debug, Clone)]
pub struct CheckedSkill {
    /// Path of its SKILL.md.
    pub path: DisplayPath,
    /// The skill.
    pub skill: Arc<Skill>,
}

/// Diagnostic with its help and excerpt.
#[derive(Debug, Clone)]
pub struct CheckFinding {
    /// File or directory below the checked directory.
    pub resource: RelPath,
    /// Path of the file or directory.
    pub path: DisplayPath,
    /// Problem and its position in the file.
    pub problem: FileProblem,
    /// Next step, in one sentence.
    pub help: String,
    /// Source line of the problem, if there is one.
    pub excerpt: Option<SourceExcerpt>,
}

/// Checks one directory. `progress` counts the directories that were listed.
pub fn check_dir(
    request: &CheckRequest,
    progress: &ScanProgress,
) -> Result<CheckResult, RootReason> {
    let allowed = AllowedDirs::new(request.allowed_dirs.clone());
    let catalog = scan::scan_root(&allowed, &request.target, progress)?;

    let mut problems = Vec::new();
    let skills = check_handles(request, &catalog, &mut problems);

    let kept = catalog.diagnostics.kept();
    for diagnostic in kept {
        // A problem without a path is above the root, and directories above the root are not scanned.
        let path = diagnostic.resource.clone().unwrap_or_default();
        problems.push((path, diagnostic.problem.clone()));
    }

    // If the root was deleted meanwhile, its packages are not examined, and findings have no excerpts.
    let root = allowed.resolve(&request.target.path).ok();
    let mut excess = 0;
    if let Some(root) = &root {
        excess += check_packages(request, root, &catalog, &mut problems);
    }
    if let Some(root) = root.as_ref().filter(|_| request.is_strict) {
        apply_strict_rules(request, root, &catalog, &mut problems);
    }

    let is_excluded = |path: &RelPath| request.exclusions.matches(path);
    problems.retain(|(path, _)| !is_excluded(path));
    if let Some(root) = &root {
        show_link_targets(root, &mut problems);
    }
    excess += drop_excess(&mut problems);
    problems.sort_by(|(a, p), (b, q)| {
        let rank = |at: &FileProblem| (at.line, at.column, at.severity, at.code);
        a.cmp(b).then_with(|| rank(p).cmp(&rank(q)))
    });

    let unkept = catalog
        .diagnostics
        .total()
        .saturating_sub(count(kept.len()));
    Ok(CheckResult {
        skills,
        findings: build_findings(request, &catalog, root.as_ref(), problems),
        dropped: unkept.saturating_add(count(excess)),
        plugin_count: catalog
            .plugins()
            .iter()
            .filter(|plugin| !is_excluded(&plugin.package))
            .count(),
    })
}

/// Returns the skills with a valid handle, and adds the problems of the others. Excluded skills are left
/// out.
fn check_handles(
    request: &CheckRequest,
    catalog: &Catalog,
    problems: &mut Vec<(RelPath, FileProblem)>,
) -> Vec<CheckedSkill> {
    let mut skills = Vec::new();
    for skill in catalog.skills(0) {
        let main = skill.skill_file_path();
        if request.exclusions.matches(&main) {
            continue;
        }

        match skill.check_handle(&request.id) {
            Ok(()) => skills.push(CheckedSkill {
                path: DisplayPath::new(&request.display_dir, &main),
                skill: skill.clone(),
            }),
            Err(problem) => problems.push((main, problem)),
        }
    }
    skills
}

/// Adds the problems of the packages that are not excluded. Returns the number of dropped problems.
fn check_packages(
    request: &CheckRequest,
    root: &ResolvedRootDir,
    catalog: &Catalog,
    problems: &mut Vec<(RelPath, FileProblem)>,
) -> usize {
    let mut excess = 0;
    for skill in catalog.skills(0) {
        if request.exclusions.matches(&skill.skill_file_path()) {
            continue;
        }
        problems.extend(package::package_problems(
            root,
            skill,
            &request.target.rules,
        ));

        // The problems may reach twice the limit, so that they are rarely sorted.
        if problems.len() > 2 * MAX_FINDINGS {
            excess += drop_excess(problems);
        }
    }
    excess
}

/// Adds the errors of the format's validator. An error replaces a problem with the same code and line.
fn apply_strict_rules(
    request: &CheckRequest,
    root: &ResolvedRootDir,
    catalog: &Catalog,
    problems: &mut Vec<(RelPath, FileProblem)>,
) {
    let mut errors: HashMap<RelPath, Vec<FileProblem>> = catalog
        .skills(0)
        .map(|skill| (skill.skill_file_path(), Vec::new()))
        .collect();

    let mut repaired = HashSet::new();
    for (path, problem) in problems.iter_mut() {
        if problem.code == DiagnosticCode::YamlRepaired && errors.contains_key(path) {
            problem.severity = Severity::Error;
            repaired.insert(path.clone());
        }
    }

    for (path, found) in &mut errors {
        if let Some(text) = package::read_text(root, path) {
            let dir_name = request.package_name(path);
            *found = strict::format_errors(&text, &dir_name, repaired.contains(path));
        }
    }

    problems.retain(|(path, problem)| {
        let mut replacing = errors.get(path).into_iter().flatten();
        !replacing.any(|error| (error.code, error.line) == (problem.code, problem.line))
    });
    for (path, found) in errors {
        problems.extend(found.into_iter().map(|error| (path.clone(), error)));
    }
}

/// Adds the target to each problem of a link that leads outside. If nothing is at the target, the link is
/// dangling: the author may know which files exist on the own machine.
fn show_link_targets(root: &ResolvedRootDir, problems: &mut [(RelPath, FileProblem)]) {
    let outside = scan::link_problem(ResolveError::Outside);
    for (path, problem) in problems {
        if problem.message != outside.message {
            continue;
        }
        let Some(link) = LinkText::read(&root.snapshot, &root.path, path) else {
            continue;
        };

        let target = quote_word(&String::from_utf8_lossy(&link.target));
        *problem = if link.is_dangling {
            let severity = match problem.severity {
                Severity::Error => Severity::Error,
                Severity::Warning | Severity::Note => Severity::Note,
            };
            let why = format!("the link's target {target} does not exist; fix or remove the link");
            FileProblem::new(DiagnosticCode::DanglingLink, severity, why)
        } else {
            let why = format!(
                "leads to {target}, outside the allowed directories; allow the target's directory, or \
                 replace the link"
            );
            FileProblem::new(DiagnosticCode::OutsideRoot, problem.severity, why)
        };
    }
}

/// Keeps the most severe problems, at most [`MAX_FINDINGS`]. Returns the number of dropped problems.
fn drop_excess(problems: &mut Vec<(RelPath, FileProblem)>) -> usize {
    let excess = problems.len().saturating_sub(MAX_FINDINGS);
    if excess > 0 {
        problems.sort_by_key(|(_, problem)| problem.severity);
        problems.truncate(MAX_FINDINGS);
    }
    excess
}

/// Adds help and excerpt to each problem. Problems are sorted by file, so each file is read once.
fn build_findings(
    request: &CheckRequest,
    catalog: &Catalog,
    root: Option<&ResolvedRootDir>,
    problems: Vec<(RelPath, FileProblem)>,
) -> Vec<CheckFinding> {
    let mut last: Option<(RelPath, Option<Vec<u8>>)> = None;
    let mut findings = Vec::new();

    for (at, problem) in problems {
        let mut source = None;
        if problem.line > 0 {
            if last.as_ref().is_none_or(|(read, _)| *read != at) {
                last = Some((at.clone(), root.and_then(|root| fs::read_source(root, &at))));
            }
            source = last.as_ref().and_then(|(_, text)| text.as_deref());
        }
        let source_help = source.and_then(|text| yaml_help::help_for_source(&problem, text));
        let excerpt = source
            .filter(|text| !may_expose_secret(&at, text, problem.line))
            .and_then(|text| SourceExcerpt::new(text, problem.line, problem.column));

        let skill = at.parent().and_then(|package| catalog.skill(&package));
        findings.push(CheckFinding {
            path: DisplayPath::new(&request.display_dir, &at),
            help: source_help.map_or_else(
                || help::help_for_problem(&at, &problem, skill.map(|skill| &**skill)),
                str::to_owned,
            ),
            resource: at,
            problem,
            excerpt,
        });
    }
    findings
}

/// Whether the line must not be printed, for example in the log of a build: JSON files declare
/// components of plugins, and the line may contain a secret.
fn may_expose_secret(at: &RelPath, text: &[u8], line: u32) -> bool {
    let is_json = at.file_name().is_some_and(|name| name.ends_with(b".json"));
    let mut lines = text.split(|b| *b == b'\n').map(String::from_utf8_lossy);
    let line = lines.nth((line as usize).saturating_sub(1));
    is_json && line.is_some_and(|line| secret_filter::redact_in_line(&line) != *line)
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl CheckRequest {
    /// Returns the name of the directory of a SKILL.md.
    fn package_name(&self, path: &RelPath) -> Vec<u8> {
        let package = path.parent().unwrap_or_default();
        let mut root_names = self.target.path.rsplit(|b| *b == b'/');
        let name = package.file_name();
        name.or_else(|| root_names.find(|name| !name.is_empty()))
            .unwrap_or_default()
            .to_vec()
    }
}

impl CheckResult {
    /// Whether a file in the wrong letter case is the reason why there is no skill.
    #[must_use]
    pub fn is_empty_by_letter_case(&self) -> bool {
        let mut findings = self.findings.iter();
        self.is_empty() && findings.any(|finding| finding.problem.code == DiagnosticCode::WrongCase)
    }

    /// Whether there is no skill, no plugin, and no error that explains why.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let mut findings = self.findings.iter();
        self.skills.is_empty()
            && self.plugin_count == 0
            && !findings.any(|finding| finding.problem.severity == Severity::Error)
    }
}
