//! Diagnostics: problems found below a root, with a severity and a position.

use caproot_core::text::truncate_with_ellipsis;
use caproot_core::wire::{RelPath, handle};
use std::collections::HashSet;

/// Maximum bytes of a message. A longer message is truncated.
const MAX_MESSAGE_BYTES: usize = 512;

/// Kind of a problem. `DiagnosticCode` in `diagnostic.proto` documents cause and fix of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum DiagnosticCode {
    OutsideRoot,
    LimitReached,
    NotRegular,
    Unreadable,
    DanglingLink,
    Alias,
    WrongCase,
    DirectoriesSkipped,
    NoFrontmatter,
    YamlSyntax,
    YamlRepaired,
    MissingDescription,
    NameInvalid,
    FieldTooLong,
    FieldInvalid,
    FieldUnknown,
    NotUtf8,
    ManifestInvalid,
    HandleTooLong,
    WatchDegraded,
    PluginFileInvalid,
    PathInvalid,
    PathMissing,
    ComponentInvalid,
    SecretRedacted,
    HiddenText,
    ReferenceMissing,
    ScriptNotRunnable,
    SkillTooLong,
    UseNotDescribed,
    PackageChanged,
    PackagesNotApproved,
    SkillNotOffered,
    UnusualContent,
}

impl DiagnosticCode {
    /// All codes, in the order of the protobuf enum.
    pub const ALL: [Self; 34] = [
        Self::OutsideRoot,
        Self::LimitReached,
        Self::NotRegular,
        Self::Unreadable,
        Self::DanglingLink,
        Self::Alias,
        Self::WrongCase,
        Self::DirectoriesSkipped,
        Self::NoFrontmatter,
        Self::YamlSyntax,
        Self::YamlRepaired,
        Self::MissingDescription,
        Self::NameInvalid,
        Self::FieldTooLong,
        Self::FieldInvalid,
        Self::FieldUnknown,
        Self::NotUtf8,
        Self::ManifestInvalid,
        Self::HandleTooLong,
        Self::WatchDegraded,
        Self::PluginFileInvalid,
        Self::PathInvalid,
        Self::PathMissing,
        Self::ComponentInvalid,
        Self::SecretRedacted,
        Self::HiddenText,
        Self::ReferenceMissing,
        Self::ScriptNotRunnable,
        Self::SkillTooLong,
        Self::UseNotDescribed,
        Self::PackageChanged,
        Self::PackagesNotApproved,
        Self::SkillNotOffered,
        Self::UnusualContent,
    ];

    /// Codes that the linter reports, and the daemon does not.
    pub const CHECK_ONLY: [Self; 5] = [
        Self::ReferenceMissing,
        Self::ScriptNotRunnable,
        Self::SkillTooLong,
        Self::UseNotDescribed,
        Self::UnusualContent,
    ];

    /// Returns the name in the protobuf enum, without its prefix.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OutsideRoot => "OUTSIDE_ROOT",
            Self::LimitReached => "LIMIT_REACHED",
            Self::NotRegular => "NOT_REGULAR",
            Self::Unreadable => "UNREADABLE",
            Self::DanglingLink => "DANGLING_LINK",
            Self::Alias => "ALIAS",
            Self::WrongCase => "WRONG_CASE",
            Self::DirectoriesSkipped => "DIRECTORIES_SKIPPED",
            Self::NoFrontmatter => "NO_FRONTMATTER",
            Self::YamlSyntax => "YAML_SYNTAX",
            Self::YamlRepaired => "YAML_REPAIRED",
            Self::MissingDescription => "MISSING_DESCRIPTION",
            Self::NameInvalid => "NAME_INVALID",
            Self::FieldTooLong => "FIELD_TOO_LONG",
            Self::FieldInvalid => "FIELD_INVALID",
            Self::FieldUnknown => "FIELD_UNKNOWN",
            Self::NotUtf8 => "NOT_UTF8",
            Self::ManifestInvalid => "MANIFEST_INVALID",
            Self::HandleTooLong => "HANDLE_TOO_LONG",
            Self::WatchDegraded => "WATCH_DEGRADED",
            Self::PluginFileInvalid => "PLUGIN_FILE_INVALID",
            Self::PathInvalid => "PATH_INVALID",
            Self::PathMissing => "PATH_MISSING",
            Self::ComponentInvalid => "COMPONENT_INVALID",
            Self::SecretRedacted => "SECRET_REDACTED",
            Self::HiddenText => "HIDDEN_TEXT",
            Self::ReferenceMissing => "REFERENCE_MISSING",
            Self::ScriptNotRunnable => "SCRIPT_NOT_RUNNABLE",
            Self::SkillTooLong => "SKILL_TOO_LONG",
            Self::UseNotDescribed => "USE_NOT_DESCRIBED",
            Self::PackageChanged => "PACKAGE_CHANGED",
            Self::PackagesNotApproved => "PACKAGES_NOT_APPROVED",
            Self::SkillNotOffered => "SKILL_NOT_OFFERED",
            Self::UnusualContent => "UNUSUAL_CONTENT",
        }
    }
}

/// Effect of a problem. Orders the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// A skill, file or field is omitted.
    Error,
    /// The content is used, but not as its author meant or not as the format requires.
    Warning,
    /// Information without an effect.
    Note,
}

impl Severity {
    /// Returns the name in the protobuf enum, without its prefix.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Warning => "WARNING",
            Self::Note => "NOTE",
        }
    }
}

/// Problem in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileProblem {
    /// Kind of the problem.
    pub code: DiagnosticCode,
    /// Effect of the problem.
    pub severity: Severity,
    /// Cause and fix in plain text, at most 512 bytes.
    pub message: Box<str>,
    /// Line from 1, or 0 if the problem has no position.
    pub line: u32,
    /// Column in characters from 1, or 0 if the problem has no position.
    pub column: u32,
}

impl FileProblem {
    /// Returns a problem without a position.
    #[must_use]
    pub fn new(code: DiagnosticCode, severity: Severity, message: impl Into<String>) -> Self {
        let message = truncate_with_ellipsis(&message.into(), MAX_MESSAGE_BYTES).into();
        Self {
            code,
            severity,
            message,
            line: 0,
            column: 0,
        }
    }

    /// Returns a problem with severity `Error` and no position.
    #[must_use]
    pub fn error(code: DiagnosticCode, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Error, message)
    }

    /// Returns a problem with severity `Warning` and no position.
    #[must_use]
    pub fn warning(code: DiagnosticCode, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Warning, message)
    }

    /// Returns a problem with severity `Note` and no position.
    #[must_use]
    pub fn note(code: DiagnosticCode, message: impl Into<String>) -> Self {
        Self::new(code, Severity::Note, message)
    }

    /// Sets the line and column, both from 1.
    #[must_use]
    pub fn with_position(mut self, line: u32, column: u32) -> Self {
        (self.line, self.column) = (line, column);
        self
    }
}

/// Problem with a file or directory below a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// File or directory below the root. `None` if the problem is about the whole root or about a
    /// directory above the root.
    pub resource: Option<RelPath>,
    /// Problem with the file or directory.
    pub problem: FileProblem,
}

/// Diagnostics of one root. Counts all and keeps the worst, up to a limit. The order of insertion
/// does not change which diagnostics are kept.
#[derive(Debug, Clone, PartialEq)]
pub struct BoundedDiagnostics {
    limit: usize,
    total: u32,
    kept: Vec<Diagnostic>,
}

impl BoundedDiagnostics {
    /// Creates an empty list that keeps at most `limit` diagnostics.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        Self {
            limit,
            total: 0,
            kept: Vec::new(),
        }
    }

    /// Counts a problem with this file or directory and keeps it if it is among the worst.
    pub fn report(&mut self, resource: Option<RelPath>, problem: FileProblem) {
        self.push(Diagnostic { resource, problem });
    }

    /// Counts a diagnostic and keeps it if it is among the worst.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.total = self.total.saturating_add(1);
        self.kept.push(diagnostic);
        if self.kept.len() >= self.limit.saturating_mul(4).max(1) {
            self.sort_and_truncate();
        }
    }

    /// Returns the kept diagnostics that match. The dropped ones are not counted.
    #[must_use]
    pub fn filtered(&self, matches: impl Fn(&Diagnostic) -> bool) -> Self {
        let mut filtered = Self::with_limit(self.limit);
        let matching = self.kept.iter().filter(|found| matches(found)).cloned();
        matching.for_each(|diagnostic| filtered.push(diagnostic));
        filtered
    }

    /// How many diagnostics were found, including those that were dropped.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Returns the diagnostics that are kept. They are sorted after
    /// [`Catalog::new`](super::Catalog::new).
    #[must_use]
    pub fn kept(&self) -> &[Diagnostic] {
        &self.kept
    }

    /// Sorts by severity, resource and position, drops duplicates and truncates to the limit.
    pub(super) fn sort_and_truncate(&mut self) {
        self.kept.sort_by(|a, b| {
            let x = &a.problem;
            let y = &b.problem;
            let compare_resources = || match (&a.resource, &b.resource) {
                (Some(a), Some(b)) => handle::compare_encoded(a, b),
                (a, b) => a.is_some().cmp(&b.is_some()),
            };
            (x.severity.cmp(&y.severity))
                .then_with(compare_resources)
                .then_with(|| (x.line, x.column, x.code).cmp(&(y.line, y.column, y.code)))
                .then_with(|| x.message.cmp(&y.message))
        });

        // The scan reports a link, and the reader of the linked file reports it again. Only the
        // worst of the two stays.
        let mut reported = HashSet::new();
        let before = self.kept.len();
        self.kept.retain(|d| {
            let code = d.problem.code;
            let is_link_problem = matches!(
                code,
                DiagnosticCode::OutsideRoot
                    | DiagnosticCode::DanglingLink
                    | DiagnosticCode::Unreadable
            );
            !is_link_problem || reported.insert((code, d.resource.clone()))
        });

        self.total -= u32::try_from(before - self.kept.len()).unwrap_or_default();
        self.kept.truncate(self.limit);
        self.kept.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::{BoundedDiagnostics, Diagnostic, DiagnosticCode, FileProblem, Severity};

    #[test]
    fn the_worst_are_kept_in_any_order_of_insertion() {
        for worst in 0..4_u32 {
            let mut diagnostics = BoundedDiagnostics::with_limit(2);
            for n in 0..20_u32 {
                let is_worst = n % 10 == worst;
                let severity = if is_worst {
                    Severity::Error
                } else {
                    Severity::Note
                };
                let problem =
                    FileProblem::new(DiagnosticCode::NotUtf8, severity, "").with_position(n + 1, 1);
                diagnostics.push(Diagnostic {
                    resource: None,
                    problem,
                });
            }
            diagnostics.sort_and_truncate();
            assert_eq!((diagnostics.total(), diagnostics.kept().len()), (20, 2));
            assert!(
                diagnostics
                    .kept()
                    .iter()
                    .all(|d| d.problem.severity == Severity::Error)
            );
        }
    }
}
