//! Reader of the files of a package.

use super::package_list::OriginPackage;
use super::pull_error::SystemResult as _;
use super::staging_dir::StagingDir;
use super::{PackageFiles, PackageOrigin, PullError, PullProgress};
use caproot_core::wire::FileChecksum;
use futures_util::{StreamExt as _, stream};
use std::io::Write as _;

/// Files that are read at the same time.
pub const CONCURRENT_READS: usize = 8;

impl OriginPackage<'_> {
    /// Reads files into the staging directory, and adds each file that is complete to `complete`.
    pub(super) async fn read_files(
        self,
        missing: &PackageFiles,
        staging: &StagingDir,
        complete: &mut PackageFiles,
        report_progress: &mut (dyn FnMut(PullProgress) + Send),
    ) -> Result<(), PullError> {
        let mut progress = PullProgress {
            files: 0,
            total_files: missing.len(),
        };
        // Owned names, because rustc finds no `Send` for futures that borrow them from the iterator.
        let reads = missing.clone().into_iter().map(|(name, file)| async move {
            self.read_file(&name, &file, staging).await?;
            Ok::<_, PullError>((name, file))
        });
        let mut reads = stream::iter(reads).buffer_unordered(CONCURRENT_READS);

        report_progress(progress);
        while let Some(read) = reads.next().await {
            complete.extend([read?]);
            progress.files += 1;
            report_progress(progress);
        }
        Ok(())
    }

    /// Reads one file, in the version that was listed.
    async fn read_file(
        self,
        name: &str,
        file: &FileChecksum,
        staging: &StagingDir,
    ) -> Result<(), PullError> {
        let (mut out, path) = staging.create_file(name, file.executable)?;
        let mut write_page = |page: &[u8]| out.write_all(page).at(&path);
        let location = self.location;
        match self.origin {
            PackageOrigin::Daemon(client) => {
                location
                    .read_file(client, name, file, &mut write_page)
                    .await
            }
            PackageOrigin::Source(files) => {
                let bytes = files.get(&format!("{}/{name}", location.package));
                write_page(bytes.ok_or(PullError::KeepsChanging)?)
            }
        }
    }
}
