//! Pull of every skill of a selection, and of a plugin, whose skills are packages of their own.

use super::{PullOptions, conflicts_json, join_candidates, pull_with_progress, report_json};
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::handle_arg::{find_root, list_request};
use crate::cli::output::{OutputFormat, print_json, print_stderr, write_stdout};
use crate::cli::report::{count_with_noun, skills_report, withheld_lines};
use crate::cli::verify::difference_lines;
use caproot_client::pull::{PullError, PullReport, PullRequest};
use caproot_client::{CallError, Client};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::{Consistency, RootState, SelectedCapabilityRoot, Skill};
use caproot_core::text::escape_text;
use caproot_core::wire::ResourceHandle;
use caproot_core::wire::handle::is_within;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use tonic::Code;

/// Reasons for which a skill is not pulled together with the others.
const SAME_NAME: &str = "several skills have a directory with this name";
/// Programs read hidden directories, such as `.git`, and a daemon must not choose one.
const HIDDEN_NAME: &str = "a pull of all skills never writes a directory that begins with `.`";

/// Pulls each skill of the roots to its own directory in `into`. A skill that cannot be pulled does not
/// stop the others; the exit code is that of the first failure.
pub async fn pull_all(
    client: &Client,
    roots: Vec<SelectedCapabilityRoot>,
    into: &Path,
    options: &PullOptions,
    env: &ProcessEnv,
) -> Result<u8, CommandFailure> {
    let mut lister = client.clone();
    let request = list_request(roots.clone(), Consistency::Cached);
    let list = lister.list_skills(&request).await?;
    create_dir(into)?;

    let mut outcome = AllPulls::new(options.output);
    for (name, skills) in skills_by_directory(&list.skills) {
        let name = name.as_os_str();
        let [skill] = &skills[..] else {
            outcome.reject(name, &skills, SAME_NAME);
            continue;
        };
        if name.as_bytes().starts_with(b".") {
            outcome.reject(name, &skills, HIDDEN_NAME);
            continue;
        }

        let root = find_root(&skill.package, roots.clone())?;
        let mut request = options.request(root, skill.package.clone(), into.join(name), env)?;
        request.approved = options.approved_versions(&skill.name);
        let pulled = pull_with_progress(client, &request).await;
        outcome.report_pull(name, &request, pulled)?;
    }

    // A skill of such a root may be missing.
    let is_ready = list
        .roots
        .iter()
        .all(|root| root.state() == RootState::Ready);
    if !is_ready {
        outcome.record_failure(exit::PROBLEMS_FOUND);
    }
    let code = outcome.finish()?;
    print_stderr(&skills_report(&list));
    Ok(code)
}

/// Creates the directory of all packages. The directory above must exist, as for one package.
fn create_dir(dir: &Path) -> Result<(), CommandFailure> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(PullError::Io {
            path: dir.to_owned(),
            error,
        }
        .into()),
        _ => Ok(()),
    }
}

/// Returns the skills by the name of their directory; the skill of a root has the root's id.
fn skills_by_directory(skills: &[Skill]) -> BTreeMap<OsString, Vec<&Skill>> {
    let mut by_name = BTreeMap::<_, Vec<_>>::new();
    for skill in skills {
        let Ok(handle) = ResourceHandle::parse(&skill.package) else {
            continue;
        };
        let name = match handle.path.file_name() {
            Some(name) => name.to_vec(),
            None => handle.root.as_str().replace('/', "-").into_bytes(),
        };
        by_name
            .entry(OsString::from_vec(name))
            .or_default()
            .push(skill);
    }
    by_name
}

/// Outcome of the pulls so far.
struct AllPulls {
    output: OutputFormat,
    packages: Vec<Value>,
    pulled: usize,
    /// Exit code of the first failure.
    failure: Option<u8>,
}

impl AllPulls {
    fn new(output: OutputFormat) -> Self {
        Self {
            output,
            packages: Vec::new(),
            pulled: 0,
            failure: None,
        }
    }

    fn record_failure(&mut self, code: u8) {
        self.failure.get_or_insert(code);
    }

    /// Reports skills that are not pulled, and why.
    fn reject(&mut self, name: &OsStr, skills: &[&Skill], reason: &str) {
        let name = escape_text(&name.to_string_lossy());
        let handles = skills.iter().map(|skill| &*skill.package);
        let handles = escape_text(&join_candidates(handles));
        print_stderr(&[format!(
            "caproot: {name}: {reason}; pull by the handle: {handles}"
        )]);

        for skill in skills {
            self.packages
                .push(json!({ "package": skill.package, "error": reason }));
        }
        self.record_failure(exit::PROBLEMS_FOUND);
    }

    fn report_pull(
        &mut self,
        name: &OsStr,
        request: &PullRequest,
        pulled: Result<PullReport, PullError>,
    ) -> Result<(), CommandFailure> {
        let name = escape_text(&name.to_string_lossy());

        match pulled {
            Ok(report) => {
                self.pulled += 1;
                self.packages.push(report_json(request, &report));
                let withheld = report.withheld.iter().map(|file| format!("{name}/{file}"));
                print_stderr(&withheld_lines(&withheld.collect::<Vec<_>>()));
                self.print_lines(&report_lines(&name, &report))
            }

            Err(PullError::Conflicts(conflicts)) => {
                let count = count_with_noun(conflicts.len(), "file");
                print_stderr(&[format!(
                    "caproot: {name}: nothing is written: {count} not from a pull, or changed since"
                )]);
                self.packages.push(conflicts_json(request, &conflicts));
                self.record_failure(exit::PROBLEMS_FOUND);

                let lines = difference_lines(&conflicts).into_iter();
                let lines: Vec<_> = lines.map(|line| format!("{name}: {line}")).collect();
                self.print_lines(&lines)
            }

            // Without the daemon, no further skill can be pulled.
            Err(PullError::Call(error)) if is_unavailable(&error) => {
                Err(PullError::Call(error).into())
            }
            Err(error) => {
                let sentence = escape_text(&error.to_string());
                print_stderr(&[format!("caproot: {name}: {sentence}")]);
                self.packages
                    .push(json!({ "package": request.package, "error": sentence }));
                self.record_failure(CommandFailure::from(error).exit_code());
                Ok(())
            }
        }
    }

    fn print_lines(&self, lines: &[String]) -> Result<(), CommandFailure> {
        match self.output {
            OutputFormat::Json => Ok(()),
            OutputFormat::Text => {
                write_stdout(|stdout| lines.iter().try_for_each(|line| writeln!(stdout, "{line}")))
            }
        }
    }

    fn finish(self) -> Result<u8, CommandFailure> {
        let total = self.packages.len();
        match self.output {
            OutputFormat::Json => print_json(&json!({ "packages": self.packages }))?,
            OutputFormat::Text => {
                let skills = count_with_noun(total, "skill");
                write_stdout(|stdout| writeln!(stdout, "pulled {} of {skills}", self.pulled))?;
            }
        }
        Ok(self.failure.unwrap_or(exit::OK))
    }
}

fn is_unavailable(error: &CallError) -> bool {
    matches!(error, CallError::Status(status) if status.code() == Code::Unavailable)
}

/// Returns the changed files of one package. Without a change, there is no line.
fn report_lines(name: &str, report: &PullReport) -> Vec<String> {
    let mut lines = Vec::new();
    for (mark, files) in [('+', &report.written), ('-', &report.removed)] {
        for file in files {
            lines.push(format!("{mark} {name}/{}", escape_text(file)));
        }
    }
    lines
}

/// Returns the failure of a pull without files, with the skills of the plugin.
pub async fn no_files_failure(client: &mut Client, request: &PullRequest) -> CommandFailure {
    let failure = CommandFailure::from(PullError::NoFiles);
    match list_skills_below(client, request).await {
        Ok(skills) if !skills.is_empty() => failure.with_hint(other_packages_hint(&skills)),
        _ => failure,
    }
}

/// Reports the skills of a pulled plugin. The skills of a pulled skill are a part of it.
pub async fn report_other_packages(
    client: &mut Client,
    request: &PullRequest,
) -> Result<(), CommandFailure> {
    if request.dir.join("SKILL.md").exists() {
        return Ok(());
    }
    let skills = list_skills_below(client, request).await?;
    if !skills.is_empty() {
        print_stderr(&[format!("hint: {}", other_packages_hint(&skills))]);
    }
    Ok(())
}

fn other_packages_hint(skills: &[String]) -> String {
    let count = count_with_noun(skills.len(), "skill");
    let handles = escape_text(&join_candidates(skills.iter().map(String::as_str)));
    format!("{count} of the plugin can be pulled, each to its own directory: {handles}")
}

/// Returns the handles of the skills in a package.
async fn list_skills_below(
    client: &mut Client,
    request: &PullRequest,
) -> Result<Vec<String>, CommandFailure> {
    let roots = vec![request.root.clone()];
    let list = list_request(roots, Consistency::Cached);
    let list = client.list_skills(&list).await?;
    let below = list.skills.into_iter().map(|skill| skill.package);
    Ok(below
        .filter(|package| is_within(package, &request.package))
        .collect())
}
