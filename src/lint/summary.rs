//! Counts of check results.

use super::CheckResult;
use crate::daemon::model::{DiagnosticCode, Severity};
use std::collections::HashSet;
use std::fmt;

/// Counts over all checked directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CheckSummary {
    /// Skills that a daemon would list.
    pub skills: usize,
    /// Problems because of which a skill or component is omitted.
    pub errors: usize,
    /// Problems because of which a part is not used as intended.
    pub warnings: usize,
    /// Problems without effect.
    pub notes: usize,
    /// Files with a skill or a problem.
    pub files: usize,
    /// Findings over the limit.
    pub dropped: u64,
}

impl CheckSummary {
    /// Counts the results.
    #[must_use]
    pub fn from_results(all: &[CheckResult]) -> Self {
        let mut summary = Self::default();
        let mut files = HashSet::new();

        for checked in all {
            summary.skills += checked.skills.len();
            summary.dropped += u64::from(checked.dropped);
            files.extend(checked.skills.iter().map(|listed| &listed.path));

            for finding in &checked.findings {
                match finding.problem.severity {
                    Severity::Error => summary.errors += 1,
                    Severity::Warning => summary.warnings += 1,
                    Severity::Note => summary.notes += 1,
                }
                // The paths of these diagnostics are directories.
                if !matches!(
                    finding.problem.code,
                    DiagnosticCode::DirectoriesSkipped | DiagnosticCode::LimitReached
                ) {
                    files.insert(&finding.path);
                }
            }
        }

        summary.files = files.len();
        summary
    }
}

impl fmt::Display for CheckSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (start, count, noun) in [
            ("", self.skills, "skill"),
            (", ", self.errors, "error"),
            (", ", self.warnings, "warning"),
            (", ", self.notes, "note"),
            (" in ", self.files, "file"),
        ] {
            let plural = if count == 1 { "" } else { "s" };
            write!(f, "{start}{count} {noun}{plural}")?;
        }
        if self.dropped > 0 {
            write!(f, "; {} more problems are not shown", self.dropped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::CheckSummary;

    #[test]
    fn summary_is_a_sentence() {
        let one = CheckSummary {
            skills: 1,
            errors: 1,
            warnings: 1,
            notes: 1,
            files: 1,
            dropped: 0,
        };
        assert_eq!(
            one.to_string(),
            "1 skill, 1 error, 1 warning, 1 note in 1 file"
        );
        let more = CheckSummary {
            dropped: 2,
            ..CheckSummary::default()
        };
        assert_eq!(
            more.to_string(),
            "0 skills, 0 errors, 0 warnings, 0 notes in 0 files; 2 more problems are not shown"
        );
    }
}
