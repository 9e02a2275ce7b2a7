//! The linter: what the daemon would list below a directory and what it would say of it, with the
//! lines that it is about. Searches and parses by the daemon's own code and has no server. Leaves
//! flags, progress and exit codes to `cli`.

mod display_path;
mod excerpt;
pub mod explain;
mod explanations;
mod help;
pub mod json;
pub mod sarif;
mod summary;
pub mod text;

pub use display_path::DisplayPath;
pub use excerpt::SourceExcerpt;
pub use summary::CheckSummary;

use crate::disk::{self, AllowedDirs, ResolvedRootDir, ScanProgress, ScanTarget};
use crate::domain::catalog::Catalog;
use crate::domain::{
    DiagnosticCode, FileProblem, RelPath, RootId, RootReason, Severity, Skill, plugin,
};
use std::path::PathBuf;
use std::sync::Arc;

/// How many diagnostics of one directory are kept, far beyond what anybody reads.
pub const MAX_FINDINGS: usize = 100_000;

/// One directory to check.
#[derive(Debug, Clone)]
pub struct CheckRequest {
    /// As it was given: what places are shown below.
    pub display_dir: PathBuf,
    /// The id under which a daemon would publish it.
    pub id: RootId,
    /// The directories below which links may lead, absolute.
    pub allowed_dirs: Vec<PathBuf>,
    /// What a daemon would search, and how.
    pub target: ScanTarget,
}

/// What was found below one directory.
#[derive(Debug, Clone, Default)]
pub struct CheckResult {
    /// By qualified name, then place.
    pub skills: Vec<CheckedSkill>,
    /// By place, then line.
    pub findings: Vec<CheckFinding>,
    /// How many findings there was no room for; those kept are the worst.
    pub dropped: u32,
    /// How many plugins a daemon would list.
    pub plugin_count: usize,
}

/// A skill that a daemon would list.
#[derive(Debug, Clone)]
pub struct CheckedSkill {
    /// Its SKILL.md.
    pub path: DisplayPath,
    /// The skill.
    pub skill: Arc<Skill>,
}

/// A diagnostic, with all that is needed to show it.
#[derive(Debug, Clone)]
pub struct CheckFinding {
    /// What it is about.
    pub path: DisplayPath,
    /// What is wrong, and where in the file.
    pub problem: FileProblem,
    /// What to do next, in a sentence.
    pub help: String,
    /// The line that it is about, where there is one.
    pub excerpt: Option<SourceExcerpt>,
}

/// Searches one directory. `progress` counts the directories that were listed.
pub fn check_dir(
    subject: &CheckRequest,
    progress: &ScanProgress,
) -> Result<CheckResult, RootReason> {
    let allowed = AllowedDirs::new(subject.allowed_dirs.clone());
    let catalog = disk::scan_root(&allowed, &subject.target, progress)?;
    let mut problems: Vec<(RelPath, FileProblem)> = Vec::new();
    let mut skills = Vec::with_capacity(catalog.len());
    for skill in catalog.skills(0) {
        let main = skill.skill_file_path();
        match skill.check_handle(&subject.id) {
            Ok(()) => {
                let place = DisplayPath::new(&subject.display_dir, &main);
                skills.push(CheckedSkill { path: place, skill: skill.clone() });
            }
            Err(problem) => problems.push((main, problem)),
        }
    }
    let kept = catalog.diagnostics.kept();
    // Only what lies above the root has no place below it, and nothing above it is looked at.
    problems
        .extend(kept.iter().map(|d| (d.resource.clone().unwrap_or_default(), d.problem.clone())));
    problems.sort_by(|(a, p), (b, q)| {
        let key = |p: &FileProblem| (p.line, p.column, p.severity, p.code);
        a.cmp(b).then_with(|| key(p).cmp(&key(q)))
    });
    let dropped = catalog.diagnostics.total().saturating_sub(count(kept.len()));
    // A root that vanished meanwhile has no lines to show.
    let root = allowed.resolve(&subject.target.path).ok();
    let findings = build_findings(subject, &catalog, root.as_ref(), problems);
    Ok(CheckResult { skills, findings, dropped, plugin_count: catalog.plugins().len() })
}

/// Adds to each problem what shows it. Problems of one file follow each other, so each is read once.
fn build_findings(
    subject: &CheckRequest,
    catalog: &Catalog,
    root: Option<&ResolvedRootDir>,
    problems: Vec<(RelPath, FileProblem)>,
) -> Vec<CheckFinding> {
    let mut last: Option<(RelPath, Option<Vec<u8>>)> = None;
    let mut findings = Vec::with_capacity(problems.len());
    for (at, problem) in problems {
        let mut excerpt = None;
        if problem.line > 0 {
            if last.as_ref().is_none_or(|(read, _)| *read != at) {
                last = Some((at.clone(), root.and_then(|root| disk::read_source(root, &at))));
            }
            let text = last.as_ref().and_then(|(_, text)| text.as_deref());
            let text = text.filter(|text| !may_expose_secret(&at, text, problem.line));
            excerpt = text.and_then(|text| SourceExcerpt::new(text, problem.line, problem.column));
        }
        let skill = at.parent().and_then(|package| catalog.skill(&package));
        let help = help::help_for_problem(&problem, skill.map(|skill| &**skill));
        findings.push(CheckFinding {
            path: DisplayPath::new(&subject.display_dir, &at),
            problem,
            help,
            excerpt,
        });
    }
    findings
}

/// Whether a line should not be repeated, in a build's log for instance: it is in a file of JSON, where
/// plugins declare things, and may hold a secret.
fn may_expose_secret(at: &RelPath, text: &[u8], line: u32) -> bool {
    let is_json = at.file_name().is_some_and(|name| name.ends_with(b".json"));
    let line = text.split(|b| *b == b'\n').nth((line as usize).saturating_sub(1));
    is_json && line.is_some_and(|line| plugin::may_hold_secret(&String::from_utf8_lossy(line)))
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl CheckResult {
    /// Whether there is neither a skill nor a plugin, nor an error that says why.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let has_error = self.findings.iter().any(|f| f.severity() == Severity::Error);
        self.skills.is_empty() && self.plugin_count == 0 && !has_error
    }
}

impl CheckFinding {
    /// What kind of problem.
    #[must_use]
    pub fn code(&self) -> DiagnosticCode {
        self.problem.code
    }

    /// What it costs.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.problem.severity
    }
}
