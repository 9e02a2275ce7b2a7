//! Reader of the files of a package.

use super::file_reader::{FileReader, FileSink};
use super::staging_dir::StagingDir;
use super::{PackageFiles, PackageLocation, PackageOrigin, PullError, PullProgress};
use caproot_core::wire::FileChecksum;
use futures_util::{StreamExt as _, stream};

/// Files that are read at the same time.
pub const CONCURRENT_READS: usize = 8;

/// Reader of the files of a package, from their origin into the staging directory.
#[derive(Clone, Copy)]
pub struct PackageReader<'a> {
    pub origin: PackageOrigin<'a>,
    pub location: PackageLocation<'a>,
    pub staging: &'a StagingDir,
}

impl PackageReader<'_> {
    /// Reads files, and adds each file that is complete to `complete`.
    pub async fn read_files(
        self,
        missing: &PackageFiles,
        complete: &mut PackageFiles,
        report_progress: &mut (dyn FnMut(PullProgress) + Send),
    ) -> Result<(), PullError> {
        let mut progress = PullProgress {
            files: 0,
            total_files: missing.len(),
        };
        // Owned names, because rustc finds no `Send` for futures that borrow them from the iterator.
        let reads = missing.clone().into_iter().map(|(name, file)| async move {
            self.read_file(&name, &file).await?;
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
    async fn read_file(self, name: &str, file: &FileChecksum) -> Result<(), PullError> {
        let (out, path) = self.staging.create_file(name, file.executable)?;
        let client = match self.origin {
            PackageOrigin::Daemon(client) => client,
            PackageOrigin::Source(source) => return source.write_file(name, out, &path),
        };
        let reader = FileReader {
            client,
            location: self.location,
        };
        let mut sink = FileSink { out, path };
        reader.read_file(name, file, &mut sink).await
    }
}
