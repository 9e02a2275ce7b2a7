//! Pull of every skill of a selection, each to its own directory: once, or as a mirror of the list until
//! a signal comes.

use super::{
    COMPARE_INTERVAL, INTERVAL_PER_COMPARISON, PullArgs, PullOptions, is_permission_error,
    pull_with_progress, run_on_disk,
};
use crate::cli::ask::report::skills_report;
use crate::cli::copy::pull::pass_report::PassReport;
use crate::cli::copy::pull::skill_list::SkillList;
use crate::cli::executor::ConnectedExecutor;
use crate::cli::failure::CommandFailure;
use crate::cli::handle_arg::{find_root, list_request};
use crate::cli::output::print_stderr;
use caproot_client::pull::{
    PackageLocation, PackagesDir, PullError, PullReport, PullRequest, is_pulled_copy,
};
use caproot_client::{CallError, Client, Mirror, MirrorSelection};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::{Consistency, SelectedCapabilityRoot, Skill};
use caproot_core::text::escape_text;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Error that ends a pass, because no further skill can be pulled.
pub enum PassError {
    Pull(PullError),
    Command(CommandFailure),
}

impl From<PullError> for PassError {
    fn from(error: PullError) -> Self {
        Self::Pull(error)
    }
}

impl From<CallError> for PassError {
    fn from(error: CallError) -> Self {
        Self::Pull(error.into())
    }
}

impl From<CommandFailure> for PassError {
    fn from(failure: CommandFailure) -> Self {
        Self::Command(failure)
    }
}

impl From<PassError> for CommandFailure {
    fn from(error: PassError) -> Self {
        match error {
            PassError::Pull(error) => error.into(),
            PassError::Command(failure) => failure,
        }
    }
}

/// Pulls each skill of the roots to its own directory, with `--watch` until a signal comes.
pub async fn pull_all(
    args: PullArgs,
    mut executor: ConnectedExecutor,
    mut roots: Vec<SelectedCapabilityRoot>,
    options: PullOptions,
    env: &ProcessEnv,
) -> Result<u8, CommandFailure> {
    let path = args.into.clone();
    let dir = run_on_disk(move || PackagesDir::open(&path)).await?;
    let client = executor.client.clone();
    let mut mirror = DirMirror {
        client: &client,
        into: &args.into,
        dir: Arc::new(dir),
        options: &options,
        prunes: args.prune,
        env,
        pulled: BTreeMap::new(),
        copies: BTreeMap::new(),
        failed: BTreeSet::new(),
        last_lines: BTreeSet::new(),
    };

    // The stream starts first, so that no change is lost between the first pass and the watch.
    let watch_list = |roots| Mirror::start(&client, MirrorSelection::new(roots));
    let mut changes = args.watch.then(|| watch_list(roots.clone()));
    let mut start = Instant::now();
    let code = mirror.run_pass(&roots, true).await?;

    while let Some(changed) = &mut changes {
        // The daemon reports no change of the files in directories such as `scripts`.
        let interval = COMPARE_INTERVAL.max(start.elapsed() * INTERVAL_PER_COMPARISON);
        let next_comparison = start + interval;
        let mut compares_all = false;
        while !compares_all {
            let event = tokio::time::timeout_at(next_comparison.into(), changed.changed());
            // Events without a pause must not delay the comparison.
            compares_all = event.await.is_err() || Instant::now() >= next_comparison;
            start = Instant::now();
            mirror.repeat_pass(&roots, compares_all).await?;
        }

        // A reload of the daemon may publish other roots.
        if args.selection.selects_published()
            && let Ok(published) = executor.published_roots().await
            && published != roots
        {
            roots = published;
            *changed = watch_list(roots.clone());
        }
    }
    Ok(code)
}

/// Directory that is kept equal to the list of a daemon.
struct DirMirror<'a> {
    client: &'a Client,
    into: &'a Path,
    dir: Arc<PackagesDir>,
    options: &'a PullOptions,
    prunes: bool,
    env: &'a ProcessEnv,
    /// Skills that are in their directories, as they were listed, by the name of the directory.
    pulled: BTreeMap<String, Skill>,
    /// Whether a package is a copy of a pull, by the handle of the package.
    copies: BTreeMap<String, bool>,
    /// Packages that this pass could not pull.
    failed: BTreeSet<String>,
    /// Lines of the last pass on stderr. A line that comes again is not printed again.
    last_lines: BTreeSet<String>,
}

impl DirMirror<'_> {
    /// Runs a pass of a watch. Only an error that a later pass does not mend ends the watch.
    async fn repeat_pass(
        &mut self,
        roots: &[SelectedCapabilityRoot],
        compares_all: bool,
    ) -> Result<(), CommandFailure> {
        let error = match self.run_pass(roots, compares_all).await {
            Ok(_) => return Ok(()),
            Err(PassError::Pull(error)) if !is_permission_error(&error) => error,
            Err(error) => return Err(error.into()),
        };

        let sentence = escape_text(&error.to_string());
        let line = format!("caproot: {sentence}; the directories stay as they are");
        if self.last_lines.insert(line.clone()) {
            print_stderr(&[line]);
        }
        Ok(())
    }

    /// Makes the directory equal to the list. Unless the pass `compares_all` skills, only skills whose list
    /// entries changed after the last pass, or whose last pull failed, are pulled. A skill that cannot be
    /// pulled does not stop the others. Returns the exit code of the first failure.
    async fn run_pass(
        &mut self,
        roots: &[SelectedCapabilityRoot],
        compares_all: bool,
    ) -> Result<u8, PassError> {
        let request = list_request(roots.to_vec(), Consistency::Cached);
        let list = self.client.clone().list_skills(&request).await?;
        let report_lines = skills_report(&list);
        let mut list = SkillList::new(list);
        self.failed.clear();
        if compares_all {
            self.pulled.clear();
            self.copies.clear();
        }

        // Each pass has at least the line of the summary.
        let is_first = self.last_lines.is_empty();
        let mut report = PassReport::new(self.options.output, self.last_lines.clone());
        let mut kept = BTreeSet::new();
        for (name, skills) in list.take_skills() {
            let pulled = self.pull_first(&name, skills, &list, roots, &mut report);
            if pulled.await? {
                kept.insert(name);
            }
        }
        report.report_unnamed(&list);
        report.report_copies(self.copies.values().filter(|is_copy| **is_copy).count());

        if self.prunes {
            self.remove_unlisted(&kept, &list, &mut report).await?;
        }
        let code = report.finish(&report_lines, list.is_ready(), is_first)?;
        self.last_lines = report.lines;
        Ok(code)
    }

    /// Pulls the first skill of a directory that is no copy of a pull, and reports the others. Returns
    /// whether a skill has the directory.
    async fn pull_first(
        &mut self,
        name: &str,
        mut skills: Vec<Skill>,
        list: &SkillList,
        roots: &[SelectedCapabilityRoot],
        report: &mut PassReport,
    ) -> Result<bool, PassError> {
        // A single skill needs no read of its own, because its pull fails if the skill is a copy.
        let is_unclear = |skill: &Skill| self.copies.contains_key(&skill.package);
        if skills.len() > 1 || skills.iter().any(is_unclear) {
            skills = self.without_copies(skills, roots).await?;
        }
        let mut skills = skills.into_iter();
        let Some(skill) = skills.next() else {
            return Ok(false);
        };
        for other in skills {
            report.report_collision(name, &skill, &other);
        }

        if self.pulled.get(name) == Some(&skill) {
            report.pulled += 1;
            return Ok(true);
        }
        let mut request = self.request(name, &skill, roots)?;
        let outcome = self.pull_skill(&mut request, &skill, list).await;
        if let Err(PullError::PulledCopy) = outcome {
            self.copies.insert(skill.package, true);
            return Ok(false);
        }
        if report.report_pull(name, &request, outcome)? {
            self.pulled.insert(name.to_owned(), skill);
        } else {
            self.pulled.remove(name);
            self.failed.insert(skill.package);
        }
        Ok(true)
    }

    /// Returns the skills that are no copies of pulls.
    async fn without_copies(
        &mut self,
        skills: Vec<Skill>,
        roots: &[SelectedCapabilityRoot],
    ) -> Result<Vec<Skill>, PassError> {
        let mut others = Vec::new();
        for skill in skills {
            if !self.copies.contains_key(&skill.package) {
                let location = PackageLocation {
                    root: &find_root(&skill.package, roots.to_vec())?,
                    package: &skill.package,
                };
                let is_copy = is_pulled_copy(self.client, location).await?;
                self.copies.insert(skill.package.clone(), is_copy);
            }
            if !self.copies[&skill.package] {
                others.push(skill);
            }
        }
        Ok(others)
    }

    fn request(
        &self,
        name: &str,
        skill: &Skill,
        roots: &[SelectedCapabilityRoot],
    ) -> Result<PullRequest, CommandFailure> {
        let root = find_root(&skill.package, roots.to_vec())?;
        let dir = self.into.join(name);
        let package = skill.package.clone();
        let mut request = self.options.request(root, package, dir, self.env)?;
        // The directory may be the source itself, if the daemon serves it.
        request.keeps_equal_dir = true;
        request.approved = self.options.approved_versions(&skill.name);
        Ok(request)
    }

    /// Pulls a skill. If the directory has a copy of another skill, the copy is replaced only if the
    /// other skill cannot have the directory any more.
    async fn pull_skill(
        &self,
        request: &mut PullRequest,
        skill: &Skill,
        list: &SkillList,
    ) -> Result<PullReport, PullError> {
        match pull_with_progress(self.client, request).await {
            Err(PullError::OtherPackage(other)) if list.is_superseded(&other, &skill.package) => {
                request.replaced_package = Some(other);
                pull_with_progress(self.client, request).await
            }
            outcome => outcome,
        }
    }

    /// Removes the copies of pulls that the complete list of their root does not have.
    async fn remove_unlisted(
        &self,
        kept: &BTreeSet<String>,
        list: &SkillList,
        report: &mut PassReport,
    ) -> Result<(), PassError> {
        let dir = self.dir.clone();
        let packages = run_on_disk(move || dir.packages()).await?;

        for (name, package) in packages {
            // A package that could not be pulled is still listed.
            let is_kept = kept.contains(&name) || self.failed.contains(&package);
            if is_kept || !list.is_complete_for(&package) {
                continue;
            }
            let removed = self.dir.remove_package(&name, &package).await;
            let request = PullRequest::new(
                SelectedCapabilityRoot::default(),
                package,
                self.into.join(&name),
            );
            report.report_removal(&name, &request, removed)?;
        }
        Ok(())
    }
}
