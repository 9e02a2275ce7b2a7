//! Skill of an MCP server or a site as files on this machine: the source fetches and verifies all
//! files, which are few and small, and the pull writes them as those of a daemon.

use super::pull_error::SystemResult as _;
use super::repeat::PullAttempts;
use super::{PackageOrigin, PullError, PullProgress, PullReport, PullRequest, pull_from};
use crate::session::SkillSource;
use caproot_core::proto::caproot::v1::Resource;
use caproot_core::wire::ContentDigest;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

/// Fetched files of a skill.
pub struct SourcePackage {
    package: String,
    /// Contents by name: the handle of the file without the handle of the package.
    files: BTreeMap<String, Vec<u8>>,
}

/// Writes a skill of an MCP server or a site to a directory. The package of the request is the handle
/// of the skill. A file is written only if it passes the checks of a read. If the skill changes in the
/// meantime, the pull starts again, at most four times.
///
/// # Errors
///
/// A source that does not return the files, files that fail verification, and the errors of
/// [`super::pull_package`].
pub async fn pull_skill(
    source: &dyn SkillSource,
    request: &PullRequest,
    report_progress: &mut (dyn FnMut(PullProgress) + Send),
) -> Result<PullReport, PullError> {
    let mut attempts = PullAttempts::new();
    let package = loop {
        let fetched = SourcePackage::fetch(source, &request.package).await;
        if let Some(fetched) = attempts.finish(fetched).await {
            break fetched?;
        }
    };
    pull_from(PackageOrigin::Source(&package), request, report_progress).await
}

impl SourcePackage {
    async fn fetch(source: &dyn SkillSource, package: &str) -> Result<Self, PullError> {
        let fetched = source.fetch_package(package).await;
        let mut files = BTreeMap::new();
        for file in fetched.map_err(PullError::Source)? {
            let name = file.resource.strip_prefix(package);
            let Some(name) = name.and_then(|rest| rest.strip_prefix('/')) else {
                return Err(PullError::invalid(&file.resource, "is outside the package"));
            };
            files.insert(name.to_owned(), file.bytes);
        }
        Ok(Self {
            package: package.to_owned(),
            files,
        })
    }

    /// Returns the files as a daemon lists them.
    pub fn resources(&self) -> Vec<Resource> {
        let files = self.files.iter().map(|(name, bytes)| Resource {
            resource: format!("{}/{name}", self.package),
            size_bytes: bytes.len() as u64,
            digest: ContentDigest::of(bytes).to_string(),
            ..Resource::default()
        });
        files.collect()
    }

    /// Writes a file.
    pub fn write_file(&self, name: &str, mut out: File, path: &Path) -> Result<(), PullError> {
        let bytes = self.files.get(name).ok_or(PullError::KeepsChanging)?;
        out.write_all(bytes).at(path)
    }
}
