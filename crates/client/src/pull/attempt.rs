//! One attempt of a pull: lists the package, prepares its files next to the directory, and replaces the
//! directory.

use super::checksum_file::ChecksumFile;
use super::package_hash::check_approval;
use super::package_list::{OriginPackage, PackageList, check_pulled_names};
use super::staging_dir::StagingDir;
use super::target_dir::{ScannedTarget, TargetDir, intact_files, scan_target};
use super::{
    DifferenceKind, PackageFiles, PullError, PullProgress, PullReport, PullRequest, run_blocking,
    total_bytes,
};
use caproot_core::wire::FileChecksum;
use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::sync::Arc;

/// File that each skill has. A package without it is a plugin.
const SKILL_FILE: &str = "SKILL.md";

/// Files that a failed attempt read, so that they need not be read again.
pub struct StagedFiles {
    staging: Arc<StagingDir>,
    files: PackageFiles,
}

/// Writes the package once.
pub async fn try_pull(
    package: OriginPackage<'_>,
    request: &PullRequest,
    target: &Arc<TargetDir>,
    staged: &mut Option<StagedFiles>,
    report_progress: &mut (dyn FnMut(PullProgress) + Send),
) -> Result<PullReport, PullError> {
    let listed = package.list_files().await?;
    let files = &listed.files;
    let withheld: Vec<_> = listed.withheld.keys().cloned().collect();
    if !withheld.is_empty() && !files.contains_key(SKILL_FILE) {
        return Err(PullError::Withheld(withheld));
    }
    check_pulled_names(files)?;
    check_approval(request.approved.as_ref(), &listed)?;

    let equal_files = request.keeps_equal_dir.then(|| files.clone());
    let local = scan_target(target, request.replaces_conflicts, equal_files).await?;

    let mut report = PullReport {
        files: files.len(),
        bytes: total_bytes(files),
        written: files.keys().cloned().collect(),
        withheld,
        ..PullReport::default()
    };
    if let Some(local) = &local {
        let known = local.open.checksums.as_ref();
        let is_of_package = known.is_none_or(|known| known.package == request.package);
        if local.is_equal && is_of_package {
            report.written.clear();
            return Ok(report);
        }
        check_conflicts(request, local)?;
        report.record_old_files(local, files);
        let is_known = known.is_some_and(|known| known.files == *files);
        if local.scan.differences.is_empty() && is_known && is_of_package {
            return Ok(report);
        }
    }

    let plan = PullPlan {
        request,
        listed,
        local,
        report,
    };
    plan.carry_out(package, target, staged, report_progress)
        .await
}

/// Files that one attempt writes.
struct PullPlan<'a> {
    request: &'a PullRequest,
    listed: PackageList,
    /// Existing target.
    local: Option<ScannedTarget>,
    report: PullReport,
}

impl PullPlan<'_> {
    /// Prepares the files in a staging directory, and replaces the target by the directory.
    async fn carry_out(
        mut self,
        package: OriginPackage<'_>,
        target: &Arc<TargetDir>,
        staged: &mut Option<StagedFiles>,
        report_progress: &mut (dyn FnMut(PullProgress) + Send),
    ) -> Result<PullReport, PullError> {
        let files = &self.listed.files;
        let local = self.local.as_ref();
        let checksums = ChecksumFile::new(&self.request.package, files.clone()).to_text()?;
        let staging = Arc::new(StagingDir::create(target)?);
        let mut complete = PackageFiles::new();
        let missing = link_known_files(&staging, files, local, staged.as_ref(), &mut complete);
        self.report.read_files = missing.len();

        let read = package
            .read_files(&missing, &staging, &mut complete, report_progress)
            .await;

        // The files are kept before an error returns, so that the next attempt links them.
        *staged = Some(StagedFiles {
            staging: staging.clone(),
            files: complete,
        });
        read?;
        package.confirm_list(&self.listed).await?;

        let replaced = target.clone();
        let local = self.local;
        let keeps_extra = !self.request.replaces_conflicts;
        self.report.is_replaced = run_blocking(move || {
            staging.write_checksum_file(&checksums)?;
            replaced.replace(&staging, local.as_ref(), keeps_extra)
        })
        .await?;
        if self.report.is_replaced {
            Ok(self.report)
        } else {
            Err(PullError::KeepsChanging)
        }
    }
}

impl PullReport {
    /// Records the files of the directory that the pull keeps or removes.
    fn record_old_files(&mut self, local: &ScannedTarget, files: &PackageFiles) {
        let intact = intact_files(local);
        self.written
            .retain(|name| intact.get(name) != files.get(name).as_ref());

        let extra = local
            .scan
            .differences
            .iter()
            .filter(|found| found.kind == DifferenceKind::Extra);
        let old = intact.keys().copied().chain(extra.map(|found| &found.name));
        self.removed = old
            .filter(|name| !files.contains_key(*name))
            .cloned()
            .collect();
        self.removed.sort();
    }
}

/// Returns an error if a file of the directory would be lost, unless the request replaces conflicting
/// files. Missing files are no conflict.
pub fn check_conflicts(request: &PullRequest, local: &ScannedTarget) -> Result<(), PullError> {
    if request.replaces_conflicts {
        return Ok(());
    }

    let differences = local.scan.differences.iter();
    let conflicts: Vec<_> = differences
        .filter(|found| found.kind != DifferenceKind::Missing)
        .cloned()
        .collect();
    if !conflicts.is_empty() {
        return Err(PullError::Conflicts(conflicts));
    }

    match &local.open.checksums {
        Some(known)
            if known.package != request.package
                && request.replaced_package.as_ref() != Some(&known.package) =>
        {
            Err(PullError::OtherPackage(known.package.clone()))
        }
        _ => Ok(()),
    }
}

/// Directory of a linked file.
#[derive(Debug, Clone, Copy)]
enum FileOrigin {
    Target,
    Staged,
}

/// Links files that the directory or the last attempt has. Adds the files of the last attempt to
/// `complete`. Returns the files to read.
///
/// Each file is linked at most once, so that files with equal content are separate files.
fn link_known_files(
    staging: &StagingDir,
    files: &PackageFiles,
    local: Option<&ScannedTarget>,
    staged: Option<&StagedFiles>,
    complete: &mut PackageFiles,
) -> PackageFiles {
    let mut sources = BTreeMap::<&FileChecksum, Vec<_>>::new();
    if let Some(StagedFiles { staging, files }) = staged {
        for (name, checksum) in files {
            sources.entry(checksum).or_default().push((
                staging.fd.as_fd(),
                name,
                FileOrigin::Staged,
            ));
        }
    }
    if let Some(local) = local {
        for (name, checksum) in intact_files(local) {
            sources.entry(checksum).or_default().push((
                local.open.fd.as_fd(),
                name,
                FileOrigin::Target,
            ));
        }
    }

    let mut missing = PackageFiles::new();
    for (name, checksum) in files {
        let source = sources.get_mut(checksum).and_then(Vec::pop);
        // For example, a filesystem without hard links, or a file of another user.
        let linked = source.filter(|(dir, from, _)| staging.link_file(*dir, from, name).is_some());

        match linked {
            None => {
                missing.insert(name.clone(), *checksum);
            }
            Some((.., FileOrigin::Staged)) => {
                complete.insert(name.clone(), *checksum);
            }
            // The next attempt links the file from the target again.
            Some((.., FileOrigin::Target)) => {}
        }
    }
    missing
}
