//! Report of one pull of every skill.

use super::{changed_files, conflicts_json, join_candidates, report_json};
use crate::cli::ask::report::{count_with_noun, withheld_lines};
use crate::cli::copy::print_lines;
use crate::cli::copy::pull::dir_check::difference_lines;
use crate::cli::copy::pull::dir_mirror::PassError;
use crate::cli::copy::pull::skill_list::SkillList;
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{OutputFormat, print_json, print_stderr};
use caproot_client::CallError;
use caproot_client::pull::{PullError, PullReport, PullRequest};
use caproot_core::proto::caproot::v1::Skill;
use caproot_core::text::escape_text;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tonic::Code;

/// Outcome of a pass so far.
pub struct PassReport {
    output: OutputFormat,
    packages: Vec<Value>,
    removed: Vec<Value>,
    /// Skills that are in their directories.
    pub pulled: usize,
    /// Skills that are not pulled.
    failed: usize,
    /// Whether a directory changed.
    has_changes: bool,
    /// Exit code of the first failure.
    failure: Option<u8>,
    /// Lines of the last pass and of this pass on stderr.
    last_lines: BTreeSet<String>,
    pub lines: BTreeSet<String>,
}

impl PassReport {
    pub fn new(output: OutputFormat, last_lines: BTreeSet<String>) -> Self {
        Self {
            output,
            packages: Vec::new(),
            removed: Vec::new(),
            pulled: 0,
            failed: 0,
            has_changes: false,
            failure: None,
            last_lines,
            lines: BTreeSet::new(),
        }
    }

    /// Prints a line on stderr, unless the last pass printed the line.
    fn print_new_line(&mut self, line: String) {
        if !self.last_lines.contains(&line) {
            print_stderr(std::slice::from_ref(&line));
        }
        self.lines.insert(line);
    }

    fn record_failure(&mut self, code: u8) {
        self.failure.get_or_insert(code);
    }

    /// Reports a skill whose directory an earlier skill of the list has.
    pub fn report_collision(&mut self, name: &str, first: &Skill, skipped: &Skill) {
        self.failed += 1;
        self.record_failure(exit::PROBLEMS_FOUND);
        let reason = format!("{} has the directory {name}", first.package);
        let package = &skipped.package;
        self.packages
            .push(json!({ "package": package, "error": reason }));
        self.print_new_line(escape_text(&format!(
            "caproot: {package} is skipped: {reason}"
        )));
    }

    /// Reports the skills without a name for a directory.
    pub fn report_unnamed(&mut self, list: &SkillList) {
        if list.unnamed.is_empty() {
            return;
        }
        self.failed += list.unnamed.len();
        self.record_failure(exit::PROBLEMS_FOUND);
        let handles = join_candidates(list.unnamed.iter().map(String::as_str));
        let reason = "the name has no letter and no digit; pull by the handle";
        let unnamed = list.unnamed.iter();
        self.packages
            .extend(unnamed.map(|package| json!({ "package": package, "error": reason })));
        self.print_new_line(escape_text(&format!("caproot: {reason}: {handles}")));
    }

    /// Reports the number of skills that are copies of pulls.
    pub fn report_copies(&mut self, copies: usize) {
        if copies > 0 {
            let skills = count_with_noun(copies, "listed skill");
            self.print_new_line(format!(
                "caproot: not pulled again, because a pull wrote them: {skills}"
            ));
        }
    }

    /// Reports a pull. Returns whether the skill is in its directory.
    pub fn report_pull(
        &mut self,
        name: &str,
        request: &PullRequest,
        pulled: Result<PullReport, PullError>,
    ) -> Result<bool, PassError> {
        match pulled {
            Ok(report) => {
                self.pulled += 1;
                self.has_changes |= report.is_replaced;
                self.packages.push(report_json(request, &report));
                // A watch compares unchanged directories again and again.
                if report.is_replaced && self.output == OutputFormat::Text {
                    let withheld = report.withheld.iter().map(|file| format!("{name}/{file}"));
                    let withheld: Vec<_> = withheld.collect();
                    print_stderr(&withheld_lines(withheld.iter().map(String::as_str)));
                }
                self.print_changes(name, &report)?;
                Ok(true)
            }
            Err(error) => {
                self.failed += 1;
                self.report_error(name, request, error, "nothing is written")?;
                Ok(false)
            }
        }
    }

    /// Reports the removal of a directory whose skill is no longer listed.
    pub fn report_removal(
        &mut self,
        name: &str,
        request: &PullRequest,
        removed: Result<Vec<String>, PullError>,
    ) -> Result<(), PassError> {
        let removed = match removed {
            Ok(removed) => removed,
            Err(error) => {
                let effect = "the skill is no longer listed, and the directory stays";
                return self.report_error(name, request, error, effect);
            }
        };

        self.has_changes = true;
        self.removed.push(json!({
            "package": request.package,
            "directory": request.dir.to_string_lossy(),
            "removed": removed,
        }));

        let report = PullReport {
            removed,
            ..PullReport::default()
        };
        Ok(self.print_changes(name, &report)?)
    }

    /// Reports an error of one directory. Returns the error if no further skill can be pulled.
    fn report_error(
        &mut self,
        name: &str,
        request: &PullRequest,
        error: PullError,
        effect: &str,
    ) -> Result<(), PassError> {
        match error {
            PullError::Call(CallError::Status(status)) if status.code() == Code::Unavailable => {
                Err(CallError::Status(status).into())
            }
            PullError::Conflicts(conflicts) => {
                self.packages.push(conflicts_json(request, &conflicts));
                self.record_failure(exit::PROBLEMS_FOUND);

                let files = count_with_noun(conflicts.len(), "file");
                let lines = difference_lines(&conflicts);
                let names = join_candidates(lines.iter().map(String::as_str));
                self.print_new_line(format!(
                    "caproot: {name}: {effect}: {files} not from a pull, or changed since: {names}"
                ));
                Ok(())
            }
            error => {
                let sentence = error.to_string();
                self.packages
                    .push(json!({ "package": request.package, "error": sentence }));
                self.print_new_line(escape_text(&format!("caproot: {name}: {sentence}")));
                // The other package is the copy of a root that is away, and stays until the root is back.
                let code = match error {
                    PullError::OtherPackage(_) => exit::PROBLEMS_FOUND,
                    error => CommandFailure::from(error).exit_code(),
                };
                self.record_failure(code);
                Ok(())
            }
        }
    }

    fn print_changes(&self, name: &str, report: &PullReport) -> Result<(), CommandFailure> {
        match self.output {
            OutputFormat::Json => Ok(()),
            OutputFormat::Text => print_lines(&changed_files(&format!("{name}/"), report)),
        }
    }

    /// Prints the result, unless a later pass changed nothing. Then prints the report of the list.
    /// Returns the exit code.
    pub fn finish(
        &mut self,
        list_report: &[String],
        is_list_ready: bool,
        is_first: bool,
    ) -> Result<u8, CommandFailure> {
        // A skill of a root that is not ready may be missing.
        if !is_list_ready {
            self.record_failure(exit::PROBLEMS_FOUND);
        }
        if is_first || self.has_changes {
            self.print_result()?;
        }
        for line in list_report {
            self.print_new_line(line.clone());
        }
        Ok(self.failure.unwrap_or(exit::OK))
    }

    fn print_result(&mut self) -> Result<(), CommandFailure> {
        let packages = std::mem::take(&mut self.packages);
        match self.output {
            OutputFormat::Json => {
                print_json(&json!({ "packages": packages, "removed": self.removed }))
            }
            OutputFormat::Text => {
                let skills = count_with_noun(self.pulled + self.failed, "skill");
                let removed = match self.removed.len() {
                    0 => String::new(),
                    count => format!(", removed {count}"),
                };
                print_lines(&[format!("pulled {} of {skills}{removed}", self.pulled)])
            }
        }
    }
}
