//! Fixes of problems with one safe answer: quotes, indents, white space, letter case and file modes.
//! Each change has a unified diff.

mod markdown;

pub use markdown::{fix_plugin_markdown, fix_skill_md};

use super::{CheckRequest, CheckResult, DisplayPath, check_dir};
use crate::daemon::fs::replace_file::EditableFile;
use crate::daemon::fs::{AllowedDirs, ResolvedRootDir};
use crate::daemon::model::{DiagnosticCode, RootReason, skill_file_name};
use crate::daemon::parse::frontmatter;
use crate::daemon::scan::ScanProgress;
use crate::lint::package::executable_mode;
use caproot_core::text::escape_text;
use caproot_core::wire::RelPath;
use similar::TextDiff;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;

/// Maximum number of rounds. A fix can reveal a skill with scripts, which need a second round.
const MAX_ROUNDS: usize = 4;
/// Lines of context in a diff.
const CONTEXT_LINES: usize = 3;
/// Codes of problems in the text of a SKILL.md that may have a fix.
const TEXT_CODES: [DiagnosticCode; 7] = [
    DiagnosticCode::NoFrontmatter,
    DiagnosticCode::YamlSyntax,
    DiagnosticCode::YamlRepaired,
    DiagnosticCode::MissingDescription,
    DiagnosticCode::NameInvalid,
    DiagnosticCode::FieldInvalid,
    DiagnosticCode::WrongCase,
];

/// Whether fixes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FixMode {
    /// Files are changed.
    Write,
    /// Only the differences are computed.
    DryRun,
}

/// Result of fixing one directory.
#[derive(Debug, Default)]
pub struct FixResult {
    /// Result of the check after the fixes, or without them in a dry run.
    pub checked: CheckResult,
    /// Fixes, in the order of their paths.
    pub fixes: Vec<FileFix>,
    /// Files that could not be changed, with the reason.
    pub failures: Vec<(DisplayPath, String)>,
}

/// Change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFix {
    /// Path of the file before the change.
    pub path: DisplayPath,
    /// Difference in the unified format, with the extended headers of Git for modes and names.
    /// Misleading characters are escaped.
    pub diff: String,
}

/// Change that is not written yet.
struct PlannedFix {
    path: DisplayPath,
    file: EditableFile,
    content: Option<Vec<u8>>,
    mode: Option<u32>,
    new_name: Option<RelPath>,
}

/// Checks one directory and fixes its problems until no fix is left.
pub fn fix_dir(
    request: &CheckRequest,
    mode: FixMode,
    progress: &ScanProgress,
) -> Result<FixResult, RootReason> {
    let mut result = FixResult::default();

    for round in 1..=MAX_ROUNDS {
        result.checked = check_dir(request, progress)?;

        let root = AllowedDirs::new(request.allowed_dirs.clone()).resolve(&request.target.path)?;

        let plan = plan_fixes(request, &root, &result.checked);
        let is_last = plan.is_empty() || round == MAX_ROUNDS;

        for fix in plan {
            let written = match mode {
                FixMode::Write => fix.write(&root),
                FixMode::DryRun => Ok(()),
            };
            match written {
                Ok(()) => result.fixes.push(fix.into_fix(request)),
                Err(error) => result.failures.push((fix.path, error.to_string())),
            }
        }

        // A file that cannot be changed would fail again in each round.
        if is_last || mode == FixMode::DryRun || !result.failures.is_empty() {
            break;
        }
    }
    Ok(result)
}

/// Returns the fixes of the findings, one for each file.
fn plan_fixes(
    request: &CheckRequest,
    root: &ResolvedRootDir,
    checked: &CheckResult,
) -> Vec<PlannedFix> {
    let mut codes: BTreeMap<&RelPath, Vec<DiagnosticCode>> = BTreeMap::new();
    for finding in &checked.findings {
        codes
            .entry(&finding.resource)
            .or_default()
            .push(finding.problem.code);
    }

    let mut plan = Vec::new();
    for (path, found) in &codes {
        // Two files such as `skill.md` and `Skill.md` have no single answer.
        let is_ambiguous = found.contains(&DiagnosticCode::WrongCase)
            && codes.iter().any(|(other, codes)| {
                other != path
                    && codes.contains(&DiagnosticCode::WrongCase)
                    && other.parent() == path.parent()
            });
        if !is_ambiguous {
            plan.extend(plan_fix(request, root, path, found));
        }
    }
    plan
}

/// Plans the changes of one file. Returns `None` without a change.
fn plan_fix(
    request: &CheckRequest,
    root: &ResolvedRootDir,
    path: &RelPath,
    codes: &[DiagnosticCode],
) -> Option<PlannedFix> {
    let is_script = codes.contains(&DiagnosticCode::ScriptNotRunnable);
    let is_in_wrong_case = codes.contains(&DiagnosticCode::WrongCase);
    let is_skill = path.file_name() == Some(b"SKILL.md") || is_in_wrong_case;
    let may_fix_skill = is_skill && codes.iter().any(|code| TEXT_CODES.contains(code));
    let may_fix_values = !is_skill && codes.contains(&DiagnosticCode::YamlRepaired);
    if !is_script && !may_fix_skill && !may_fix_values {
        return None;
    }

    let file = EditableFile::read(root, path)?;
    let dir_name = request.package_name(path);
    let mut content = None;
    if may_fix_skill {
        content = fix_skill_md(&file.content, &dir_name);
    } else if may_fix_values {
        content = fix_plugin_markdown(&file.content);
    }
    if is_in_wrong_case {
        // Without usable frontmatter, a file such as `skill.md` may be any text.
        let text = content.as_ref().unwrap_or(&file.content);
        frontmatter::read(text, true, Some(&dir_name)).frontmatter?;
    }

    let package = path.parent().unwrap_or_default();
    let fix = PlannedFix {
        path: DisplayPath::new(&request.display_dir, path),
        mode: is_script.then(|| executable_mode(&file)).flatten(),
        new_name: is_in_wrong_case.then(|| package.join_path(&skill_file_name())),
        content,
        file,
    };
    let has_change = fix.content.is_some() || fix.mode.is_some() || fix.new_name.is_some();
    has_change.then_some(fix)
}

impl PlannedFix {
    fn write(&self, root: &ResolvedRootDir) -> io::Result<()> {
        if let Some(mode) = self.mode {
            self.file.set_mode(root, mode)?;
        }
        if let Some(content) = &self.content {
            self.file.replace_content(root, content)?;
        }
        // The rename comes last, because the other changes find the file by its old name.
        if let Some(name) = self.new_name.as_ref().and_then(RelPath::file_name) {
            self.file.rename(root, name)?;
        }
        Ok(())
    }

    fn into_fix(self, request: &CheckRequest) -> FileFix {
        let old_path = self.path.to_string();
        let new_path = match &self.new_name {
            Some(name) => DisplayPath::new(&request.display_dir, name).to_string(),
            None => old_path.clone(),
        };

        let mut diff = String::new();
        // Writing to a string cannot fail.
        if self.mode.is_some() || old_path != new_path {
            let _ = writeln!(diff, "diff --git {old_path} {new_path}");
        }
        if let Some(mode) = self.mode {
            let old = self.file.mode;
            let _ = writeln!(diff, "old mode 100{old:03o}\nnew mode 100{mode:03o}");
        }
        if old_path != new_path {
            let _ = writeln!(diff, "rename from {old_path}\nrename to {new_path}");
        }

        if let Some(content) = &self.content {
            diff += &unified_diff(&self.file.content, content, &old_path, &new_path);
        }
        FileFix {
            path: self.path,
            diff,
        }
    }
}

/// Returns the difference of two files for a person.
fn unified_diff(old: &[u8], new: &[u8], old_path: &str, new_path: &str) -> String {
    let old = String::from_utf8_lossy(old);
    let new = String::from_utf8_lossy(new);
    let lines = TextDiff::from_lines(&*old, &*new);
    let mut unified = lines.unified_diff();
    let text = unified
        .context_radius(CONTEXT_LINES)
        .header(old_path, new_path)
        .to_string();
    // A CR at the end of a line would be shown as an escape.
    text.split('\n')
        .map(|line| escape_text(line.strip_suffix('\r').unwrap_or(line)))
        .collect::<Vec<_>>()
        .join("\n")
}
